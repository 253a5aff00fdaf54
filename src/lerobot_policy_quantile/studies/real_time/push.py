"""A scene whose object is pushed aside once, while it still stands on the table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.scenes.embedded import EmbeddedScene

PUSH = 0.05
"""Metres."""
WHEN = (8, 40)
"""First step at which it may happen, and the first at which it no longer does."""
LIFTED = 0.02
"""Metres above its resting place: a lifted object is in the hand and is left there."""
PUSH_SEED = 20261118


class PushedScene:
    """The embedded scene; step and direction of the push follow from the episode's key."""

    def __init__(self, scene: EmbeddedScene) -> None:
        self._scene = scene
        self.versions: Mapping[str, str] = {**scene.versions, "push": f"{PUSH} m at a step of {WHEN[0]} to {WHEN[1]}"}

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key."""
        self._scene.reset(task, index, seed)
        draw = np.random.default_rng([task, index, seed, PUSH_SEED])
        angle = draw.uniform(-np.pi, np.pi)
        self._at, self._way = int(draw.integers(*WHEN)), PUSH * np.array([np.cos(angle), np.sin(angle)])
        self._count, self._pushed, self._rest = 0, -1, self._scene.layout().object[2]

    def step(self, action: Float[Array, "7"], *, observe: bool = False) -> None:
        """One control step, before which the object may be moved."""
        if self._count == self._at and self._scene.layout().object[2] < self._rest + LIFTED:
            self._scene.move_target(self._way)
            self._pushed = self._count
        self._count += 1
        self._scene.step(action, observe=observe)

    def notes(self) -> Mapping[str, Array]:
        """The step of the push; -1 if there was none."""
        return {"pushed_at": np.asarray(self._pushed)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)
