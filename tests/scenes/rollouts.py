"""What the scene tests share: a fixed sequence of actions, and what came of it."""

import hashlib
import json
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from lerobot_policy_quantile.scenes.contract import Scene, make_scene

KEY = (0, 1, 7)  # task, index, seed
STEPS = 12
OBSERVED = (4, 11)
SIZE = 64


def random_actions(steps: int = STEPS, seed: int = 3) -> np.ndarray:
    """Actions that move every joint and both ways of the gripper."""
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 7))


@dataclass
class Trace:
    start_frames: dict
    states: list
    simulator_states: list
    frames: dict
    successes: list

    def digest(self) -> str:
        """One hash over every number and pixel."""
        total = hashlib.sha256()
        pictures = [self.start_frames, *(self.frames[step] for step in sorted(self.frames))]
        for array in [*self.states, *self.simulator_states, *(p[c] for p in pictures for c in sorted(p))]:
            total.update(np.ascontiguousarray(array).tobytes())
        total.update(json.dumps(self.successes).encode())
        return total.hexdigest()


def drive(scene: Scene, actions: np.ndarray, step, observed=OBSERVED) -> Trace:
    trace = Trace(scene.frames(), [scene.state()], [scene.simulator_state()], {}, [scene.success()])
    for number, action in enumerate(actions):
        step(action, number in observed)
        trace.states.append(scene.state())
        trace.simulator_states.append(scene.simulator_state())
        trace.successes.append(scene.success())
        if number in observed:
            trace.frames[number] = scene.frames()
    return trace


def rollout(scene: Scene, key: tuple[int, int, int] = KEY) -> Trace:
    scene.reset(*key)
    return drive(scene, random_actions(), lambda action, seen: scene.step(action, observe=seen))


def marked(name: str, *values: object, slow: bool = False) -> ParameterSet:
    """A scene as a test's parameter, with the markers it needs; `values` stand beside it."""
    marks = [pytest.mark.libero] * name.startswith("libero") + [pytest.mark.slow] * slow
    return pytest.param((name, *values) if values else name, marks=marks)


if __name__ == "__main__":
    print(rollout(make_scene(sys.argv[1], camera_size=SIZE)).digest())
