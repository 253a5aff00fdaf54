"""Starts of episodes without building a model anew, bit-identical to those of a model that was.

`Built` takes a world back to how it was when its model had just been compiled. Compiling draws no random number, so a
reset that begins there goes on as it would after building: the same placements, drawn from the same generator.

`KeptStart` is the start of one key: MuJoCo's integration state, the model's arrays that the reset changed (LIBERO
writes the places of fixtures and the visibility of sites into the model), and what robosuite's objects remember (the
controller's goal, the gripper's ramp, buffers, the observables' clock), all one control step before the start. Taking
that step again gives everything that MuJoCo derives from its state.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from robosuite.utils.buffers import Buffer

from lerobot_policy_quantile.scenes.contract import Array, Frames

Key = tuple[int, int, int]
"""Task, index, seed."""

Memory = tuple[dict[str, Any], ...]
"""What each of a world's objects remembers, in the order of `_things`."""

_PLAIN = (bool, int, float, str, type(None), np.ndarray, np.generic, Buffer)
_ASSETS = ("mesh_", "tex_", "bvh_", "oct_", "hfield_", "skin_", "flex_", "name", "text_", "tuple_", "plugin")
"""Beginnings of the names of those model arrays that nobody writes after compiling; most of a model's memory."""

_PROPERTIES = "object_properties"
"""Where LIBERO's objects remember, among other things, whether a stove shows that it is on."""

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class Built:
    """A world whose model has just been compiled; `sim.reset` of its simulator goes back to this."""

    def __init__(self, world: Any) -> None:
        self._sim, self._clear = world.sim, world.sim.reset
        self._arrays = _arrays(world.sim.model._model)
        self._compiled = {name: array.copy() for name, array in self._arrays.items()}
        self._things = _made_with_the_model(world)
        self._memory = tuple(map(_memory, self._things))
        self._warm_start: Array | None = None
        self._sim.reset = self.restore

    def restore(self) -> None:
        """As after compiling and making a renderer, as far as the next forward pass can tell.

        robosuite calls `forward` in both; only the solver's warm start outlives the next one.
        """
        self.write({})
        _remember(self._things, self._memory)
        self._clear()
        warm_start = self._sim.data._data.qacc_warmstart
        if self._warm_start is None:
            self._sim.forward()
            self._sim.forward()
            self._warm_start = warm_start.copy()
        warm_start[:] = self._warm_start

    def changed(self) -> dict[str, Array]:
        """The model's arrays that differ from the compiled ones."""
        compiled, arrays = self._compiled, self._arrays.items()
        return {name: array.copy() for name, array in arrays if array.tobytes() != compiled[name].tobytes()}

    def write(self, changed: dict[str, Array]) -> None:
        """The compiled arrays, but for those that are given."""
        for name, array in self._arrays.items():
            array[...] = changed.get(name, self._compiled[name])


@dataclass(frozen=True)
class SavedMoment:
    """A world between two control steps."""

    state: Float[Array, "n"]
    """MuJoCo's integration state: all that physics depends on, the solver's warm start included."""
    sensors: Float[Array, "sensor"]
    """Readings of the step before, which the robot notes at the beginning of the next."""
    changed: dict[str, Array]
    """The model's arrays that are not as compiled."""
    memory: Memory

    @classmethod
    def of(cls, world: Any) -> "SavedMoment":
        """The present one."""
        model, data = world.sim.model._model, world.sim.data._data
        state = np.empty(mujoco.mj_stateSize(model, _STATE))
        mujoco.mj_getState(model, data, state, _STATE)
        return cls(state, data.sensordata.copy(), world.built.changed(), tuple(map(_memory, _things(world))))

    def restore(self, world: Any) -> None:
        """Make it the present one, as far as the next control step can tell."""
        world.built.write(self.changed)
        data = world.sim.data._data
        mujoco.mj_setState(world.sim.model._model, data, self.state, _STATE)
        data.sensordata[:] = self.sensors
        _remember(_things(world), self.memory)


@dataclass(frozen=True)
class KeptStart:
    """The start of an episode: the moment before its last settling step, and what was seen in that step."""

    before: SavedMoment
    frames: Frames

    def nbytes(self) -> int:
        """Memory that its arrays take."""
        memory = (value for each in self.before.memory for value in each.values() if isinstance(value, np.ndarray))
        arrays = self.before.state, self.before.sensors, *self.before.changed.values(), *memory, *self.frames.values()
        return sum(array.nbytes for array in arrays)


def _arrays(model: mujoco.MjModel) -> dict[str, Array]:
    """The model's arrays but for those of its assets; what is written into them is written into the model."""
    names = (name for name in dir(model) if not name.startswith(("_", *_ASSETS)))
    return {name: array for name in names if isinstance(array := getattr(model, name), np.ndarray)}


def _made_with_the_model(world: Any) -> list[Any]:
    """What robosuite and LIBERO make anew together with a model."""
    robot = world.robots[0]
    return [robot, robot.gripper, *world.model.mujoco_objects]


def _things(world: Any) -> list[Any]:
    """What remembers something from one control step to the next."""
    return [world, *_made_with_the_model(world), world.robots[0].controller, *world._observables.values()]


def _memory(thing: Any) -> dict[str, Any]:
    """What an object remembers in plain values; models, simulators and functions are left where they are."""
    return {name: deepcopy(value) for name, value in vars(thing).items() if name == _PROPERTIES or _is_plain(value)}


def _remember(things: list[Any], memory: Memory) -> None:
    for thing, values in zip(things, memory, strict=True):
        for name, value in values.items():
            setattr(thing, name, deepcopy(value))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):  # observations
        return all(isinstance(entry, np.ndarray) for entry in value.values())
    return isinstance(value, _PLAIN)
