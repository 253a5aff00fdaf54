"""A world that needs no simulator: it succeeds, fails, raises, hangs or dies as its key says.

A point moves by the actions' sum. Even indices succeed at step 13 + index % 5; odd ones never do. Scene names choose
what goes wrong: "raises", "hangs", "dies" misbehave at index 3 (always) and at index 5 (on the first attempt only,
told by a file in `folder`); "fake" never does.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lerobot_policy_quantile.contract import Chunk, Observation, UnusablePolicyError, World

LIMIT = 24


class FakeWorld:
    control_hz, limit, instruction, camera_size = 20, LIMIT, "move the point", 4

    def __init__(self, scene: str = "fake", *, folder: Path = Path(), pause: float = 0.0) -> None:
        self.scene, self.folder, self.pause = scene, folder, pause
        self.versions = {"fake": "1"}
        self.rendered: list[int] = []
        self.closed = False

    def reset(self, task: int, index: int, seed: int) -> None:
        self.task, self.index, self.count = task, index, 0
        self.where = np.random.default_rng([task, index, seed]).normal(size=8)
        self.fresh = True

    def step(self, action, *, observe: bool = False) -> None:
        if self.pause > 1:  # tells a test that an episode is under way
            (self.folder / "asleep").touch()
        time.sleep(self.pause)
        if self.count == 7 and self.scene != "fake" and self._bad():
            self._misbehave()
        self.where[:7] += action
        self.count += 1
        self.fresh = observe

    def _bad(self) -> bool:
        if self.index == 5:
            mark = self.folder / f"{self.scene}-seen"
            if mark.exists():
                return False
            mark.touch()
            return True
        return self.index == 3

    def _misbehave(self) -> None:
        if self.scene == "raises":
            raise FloatingPointError("the simulator exploded")
        if self.scene == "hangs":
            time.sleep(3600)
        if self.scene == "dies":
            os._exit(7)

    def frames(self):
        if not self.fresh:
            raise RuntimeError("no frame was asked for before this step")
        self.rendered.append(self.count)
        return {name: np.full((4, 4, 3), self.count + i, np.uint8) for i, name in enumerate(("external", "wrist"))}

    def state(self):
        return self.where

    def success(self) -> bool:
        return self.index % 2 == 0 and self.count >= 13 + self.index % 5

    def contacts(self) -> int:
        return int(self.count == 2)

    def simulator_state(self):
        return self.where

    def close(self) -> None:
        self.closed = True


@dataclass
class FakePolicy:
    """Actions are drawn from the episode's own generator and the state: order of service cannot matter."""

    n_action_steps: int = 5
    needs_images: bool = True

    @property
    def context(self) -> Mapping[str, str]:
        return {"policy": "fake", "n_action_steps": str(self.n_action_steps)}

    def begin(self, seed: int, world: World, decoder: str) -> np.random.Generator:
        return np.random.default_rng(seed)

    def act(self, observations: Sequence[Observation], memories: Sequence[np.random.Generator]) -> list[Chunk]:
        assert all(bool(o.images) == self.needs_images for o in observations)
        return [
            Chunk(0.1 * m.normal(size=(8, 7)) + 0.01 * o.state[:7], np.zeros((8, 7, 3)))
            for o, m in zip(observations, memories, strict=True)
        ]

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class FakeFactory:
    folder: Path
    pause: float = 0.0
    needs_images: bool = True

    def world(self, scene: str) -> FakeWorld:
        if scene == "missing":
            raise ValueError("scene must be one of fake; got 'missing'")
        return FakeWorld(scene, folder=self.folder, pause=self.pause)

    def policy(self, policy: str) -> FakePolicy:
        if policy == "unusable":
            raise UnusablePolicyError("policy 'unusable' cannot be loaded")
        return FakePolicy(needs_images=self.needs_images)
