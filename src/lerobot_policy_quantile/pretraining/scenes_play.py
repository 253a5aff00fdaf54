"""Play data: the reflex expert runs whole episodes under noise and kicks; labels are its undisturbed actions.

Where an apprentice drives, the expert acts its chunk out, as in `suite_play.py`.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from lerobot_policy_quantile.pretraining.apprentice import Apprentice, Learner, foresee
from lerobot_policy_quantile.pretraining.samples import CHUNK, THINGS, SampleList, Samples, first_actions, moment
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, Array
from lerobot_policy_quantile.scenes.experts.reflex import reflex
from lerobot_policy_quantile.scenes.fast.physics import OPEN_GRIPPER
from lerobot_policy_quantile.scenes.staging import Stage, StageView

NOISE = 0.08  # standard deviation of what is added to the commanded position change
KICK = 0.012  # chance per step
KICK_STEPS = (3, 8)
KICK_SIZE = 0.5
EVERY = 4  # steps from one kept moment to the next
START_BOX = np.array([(-0.25, -0.28, 0.93), (0.06, 0.24, 1.10)])


@dataclass
class Played[Seen]:
    """One episode: the expert's action at every step, where something else was done, and what was kept of moments."""

    answers: list[Float[Array, "7"]] = field(default_factory=list)
    pushed: list[bool] = field(default_factory=list)
    seen: list[tuple[int, Seen]] = field(default_factory=list)
    foreseen: dict[int, list[Float[Array, "7"]]] = field(default_factory=dict)
    """Step -> the expert's chunk from there, of moments in the apprentice's turns."""

    def kept(self, step: int) -> bool:
        """Whether the moment of this step, the present one, is kept."""
        return bool(self.seen) and self.seen[-1][0] == step

    def chunk(self, step: int) -> tuple[Float[Array, "h d"], Bool[Array, " h"]]:
        """The label of a moment, and which of its steps count."""
        if step in self.foreseen:
            return chunk_of(self.foreseen[step], [False] * CHUNK, 0)
        return chunk_of(self.answers, self.pushed, step)


def play_samples(
    stage: Stage, rng: np.random.Generator, kind: str, steps: int, learner: Learner | None = None
) -> tuple[Samples, bool]:
    """One episode of at most `steps` steps: its samples, and whether the object reached the basket.

    A `learner` drives now and then; not on a stage whose heights are raised, which the policy does not know.
    """
    _begin(stage, rng, kind)
    apprentice = None if learner is None else Apprentice(learner, stage.scene, rng)
    record, driven = _drive(stage, rng, kind, steps, apprentice), THINGS.index(kind)
    samples = SampleList()
    for step, view in record.seen:
        actions, valid = first_actions(view)
        actions[driven], valid[driven] = record.chunk(step)
        samples.add(view, actions, valid, driven)
    return samples.finish(), moment(stage.view(), kind).delivered


def chunk_of(
    answers: list[Float[Array, "7"]], kicked: list[bool], step: int
) -> tuple[Float[Array, "h d"], Bool[Array, " h"]]:
    """The expert's actions from `step` on, up to the next kick: later ones react to it."""
    actions, valid = np.zeros((CHUNK, ACTION_DIM)), np.zeros(CHUNK, dtype=bool)
    for ahead in range(min(CHUNK, len(answers) - step)):
        if ahead and kicked[step + ahead - 1]:
            break
        actions[ahead], valid[ahead] = answers[step + ahead], True
    return actions, valid


def _begin(stage: Stage, rng: np.random.Generator, kind: str) -> None:
    while True:
        stage.shuffle(rng, kind)
        if rng.random() < 0.4 or stage.reach(rng.uniform(*START_BOX), rng.normal(0, 0.02, 3)):
            break
    stage.forward()
    for step in range(4):
        stage.scene.step(OPEN_GRIPPER, observe=step == 3)


def _drive(
    stage: Stage, rng: np.random.Generator, kind: str, steps: int, apprentice: Apprentice | None
) -> Played[StageView]:
    record, left, after = Played[StageView](), 0, 0
    kick: Array = np.zeros(3)
    phase = int(rng.integers(EVERY))
    for step in range(steps):
        view = stage.view()
        now = moment(view, kind)
        answer = reflex(now)
        if step % EVERY == phase and view.frames is not None:
            record.seen.append((step, view))
            if apprentice is not None:
                apprentice.look(step)
        own = None if apprentice is None else apprentice.action(step)
        if own is not None and record.kept(step):
            record.foreseen[step] = foresee(stage.scene, answer, lambda: reflex(moment(stage.view(), kind)))
        if left == 0 and rng.random() < KICK:
            left, kick = int(rng.integers(*KICK_STEPS)), rng.uniform(-KICK_SIZE, KICK_SIZE, 3)
        record.answers.append(answer)
        record.pushed.append(left > 0 or own is not None)
        action = answer.copy()
        action[:3] += rng.normal(0, NOISE, 3)
        if left:
            action[:3], left = kick, left - 1
        action = action if own is None else own
        stage.scene.step(np.clip(action, -1, 1), observe=(step + 1) % EVERY == phase)
        after += now.delivered
        if after > CHUNK:
            break
    return record
