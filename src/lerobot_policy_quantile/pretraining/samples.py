"""Pretraining samples: images of a scene, the expert's actions for each named object, and privileged positions.

Axes: n sample, o object (in the order of `THINGS`), h chunk step, d action dim.
"""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from lerobot_policy_quantile.pretraining.arrays import Arrays
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, Array
from lerobot_policy_quantile.scenes.embedded import NAMES
from lerobot_policy_quantile.scenes.experts.reflex import Moment, finger_of, reflex
from lerobot_policy_quantile.scenes.libero.kinds import KINDS
from lerobot_policy_quantile.scenes.staging import StageView

CHUNK = 10
EMBEDDED_THINGS = len(NAMES)
"""Number of objects that belong to the embedded scene; the others are LIBERO's."""

THINGS = (*NAMES.values(), *KINDS)
"""Every object that an instruction can name."""

STATIC = -1
"""Value of `driven` in samples of static scenes."""


@dataclass(frozen=True)
class Samples(Arrays):
    """Arrays of equal length."""

    external: UInt8[Array, "n y x 3"]
    wrist: UInt8[Array, "n y x 3"]
    state: Float[Array, "n 8"]
    things: Float[Array, "n o 3"]  # NaN for objects that are not in the scene
    goal: Float[Array, "n 3"]
    external_place: Float[Array, "n 3"]
    external_turn: Float[Array, "n 3 3"]
    wrist_place: Float[Array, "n 3"]
    wrist_turn: Float[Array, "n 3 3"]
    actions: Float[Array, "n o h d"]  # for each object that could be named
    valid: Bool[Array, "n o h"]
    driven: Int[Array, " n"]  # the expert's target object, or `STATIC`


def moment(view: StageView, kind: str) -> Moment:
    """The expert's input when this object is named."""
    return Moment(view.state[:3], finger_of(view.state), view.things[view.kinds.index(kind)], kind, view.goal)


def first_actions(view: StageView) -> tuple[Float[Array, "o h d"], Bool[Array, "o h"]]:
    """A chunk per thing of which only the first action is known, for each thing that could be named: while the expert
    holds one, only that.
    """
    actions, valid = np.zeros((len(THINGS), CHUNK, ACTION_DIM)), np.zeros((len(THINGS), CHUNK), dtype=bool)
    moments = [moment(view, kind) for kind in view.kinds]
    held = np.array([now.between_fingers and now.finger < 0.036 for now in moments])
    settled = np.array([now.delivered for now in moments])
    rows = [THINGS.index(kind) for kind in view.kinds]
    actions[rows, 0] = [reflex(now) for now in moments]
    valid[rows, 0] = (held | ~held.any()) & ~(settled & ~held)
    return actions, valid


class SampleList:
    """Samples under collection."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Array]] = {field.name: [] for field in fields(Samples)}

    def __len__(self) -> int:
        return len(self._rows["state"])

    def add(self, view: StageView, actions: Float[Array, "o h d"], valid: Bool[Array, "o h"], driven: int) -> None:
        """Add a sample; the view must have frames."""
        if view.frames is None:
            raise ValueError("view must have frames; look with pictures=True")
        row = {"external": view.frames["external"], "wrist": view.frames["wrist"], "valid": valid}
        row |= {"driven": np.array(driven, dtype=np.int8)}
        everything = np.full((len(THINGS), 3), np.nan)
        everything[[THINGS.index(kind) for kind in view.kinds]] = view.things
        numbers = {"state": view.state, "things": everything, "goal": view.goal, "actions": actions}
        for name, camera in view.cameras.items():
            numbers |= {f"{name}_place": camera.place, f"{name}_turn": camera.turn}
        row |= {name: value.astype(np.float32) for name, value in numbers.items()}
        for name, value in row.items():
            self._rows[name].append(value)

    def finish(self) -> Samples:
        """All of them as arrays."""
        return Samples(**{name: np.stack(rows) for name, rows in self._rows.items()})
