"""A saved policy that drives now and then in an expert's episodes, so that play visits what its own errors lead to.

The expert answers every moment, also those that the apprentice brought about (DAgger, Ross et al., AISTATS 2011). Its
answers after the apprentice's turn are whole chunks: how to get out of there.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import Observation, Policy, World
from lerobot_policy_quantile.pretraining.samples import CHUNK
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.fast.kept_start import SavedMoment
from lerobot_policy_quantile.scenes.fast.physics import RobosuiteScene

Learner = tuple[Policy, float]
"""A policy, and the share of episodes in which it drives now and then."""

APPRENTICE_STEPS, EXPERT_STEPS = (20, 90), (15, 60)
"""Ranges of the lengths of their turns, in steps."""
MOST_TURNS = 3
"""Of the apprentice in an episode; the expert ends it."""
DECODER = "median"


class Apprentice:
    """A policy in one episode: its turns are drawn beforehand, and it looks when samples are taken."""

    def __init__(self, learner: Learner, world: World, rng: np.random.Generator) -> None:
        (policy, share), self._world = learner, world
        self._policy = policy
        self._turns = draw_turns(rng) if rng.random() < share else []
        self._memory: Any = policy.begin(int(rng.integers(2**31)), world, DECODER)
        self._chunk: Float[Array, "h d"] = np.zeros((0, 0))
        self._asked = 0

    def look(self, step: int) -> None:
        """Ask for a chunk if it is the policy's turn."""
        if not self._has(step):
            return
        seen = Observation(dict(self._world.frames()), np.array(self._world.state()), self._world.instruction)
        (chunk,) = self._policy.act([seen], [self._memory])
        self._chunk, self._asked = chunk.actions, step

    def action(self, step: int) -> Float[Array, "7"] | None:
        """The chunk's action for this step; None after the turn, and before its first look."""
        ahead = step - self._asked
        if not self._has(step) or not self._has(self._asked) or ahead >= len(self._chunk):
            return None
        action: Float[Array, "7"] = np.clip(self._chunk[ahead], -1.0, 1.0)
        return action

    def _has(self, step: int) -> bool:
        return any(begin <= step < end for begin, end in self._turns)


def draw_turns(rng: np.random.Generator) -> list[tuple[int, int]]:
    """First step of each of the apprentice's turns, and the step after its last."""
    turns, step = [], int(rng.integers(*EXPERT_STEPS)) * int(rng.integers(2))
    for _ in range(int(rng.integers(1, MOST_TURNS + 1))):
        end = step + int(rng.integers(*APPRENTICE_STEPS))
        turns.append((step, end))
        step = end + int(rng.integers(*EXPERT_STEPS))
    return turns


def foresee(
    scene: RobosuiteScene, answer: Float[Array, "7"], following: Callable[[], Float[Array, "7"]]
) -> list[Float[Array, "7"]]:
    """The expert's chunk, whose first action is its answer to the present moment; the next step sees nothing of it.

    `following` answers the moments that it leads to.
    """
    present, chunk = SavedMoment.of(scene.world), [answer]
    while len(chunk) < CHUNK:
        scene.step(chunk[-1])
        chunk.append(following())
    present.restore(scene.world)
    return chunk


@cache
def apprentice_policy(folder: str) -> Policy:
    """The policy of a folder, loaded once per process."""
    return SceneFactory({folder: folder}).policy(folder)
