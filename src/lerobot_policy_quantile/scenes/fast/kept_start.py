"""Keeps the start of an episode: another reset to the same key copies it back instead of rebuilding the model.

What an episode changes is all of MuJoCo's data (warm start and contacts included) and what robosuite's Python objects
remember: the controller's goal, the gripper's ramp, the robot's buffers, the observables' clock. Everything is copied
back, so an episode from a kept start is bit-identical to one from a fresh reset; building costs seconds, this
milliseconds.
"""

from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from robosuite.utils.buffers import Buffer

Key = tuple[int, int, int]
"""Task, index, seed."""

_PLAIN = (bool, int, float, str, type(None), np.ndarray, np.generic, Buffer)


@dataclass(frozen=True)
class KeptStart:
    """A saved state of one simulator, which can be restored."""

    key: Key
    sim: Any
    """The simulator it belongs to; a hard reset makes a new one, for which this start is invalid."""
    data: mujoco.MjData
    memories: tuple[tuple[Any, dict[str, Any]], ...]

    @classmethod
    def of(cls, world: Any, key: Key) -> "KeptStart":
        """Save the current state of a robosuite environment."""
        memories = tuple((thing, _memory(thing)) for thing in _things(world))
        return cls(key, world.sim, copy(world.sim.data._data), memories)

    def fits(self, world: Any, key: Key) -> bool:
        """Whether this is the start of `key` in the simulator that the world has now."""
        return world is not None and self.key == key and self.sim is world.sim

    def restore(self) -> None:
        """Restore simulator and Python objects. robosuite reaches MuJoCo's data through this one name."""
        self.sim.data._data = copy(self.data)
        for thing, memory in self.memories:
            for name, value in memory.items():
                setattr(thing, name, deepcopy(value))


def _things(world: Any) -> list[Any]:
    robot = world.robots[0]
    return [world, robot, robot.controller, robot.gripper, *world._observables.values()]


def _memory(thing: Any) -> dict[str, Any]:
    """The plain values in an object's attributes; models, simulators and functions are not copied."""
    return {name: deepcopy(value) for name, value in vars(thing).items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):  # the frames of the start
        return all(isinstance(entry, np.ndarray) for entry in value.values())
    return isinstance(value, _PLAIN)
