"""What LIBERO-Plus and LIBERO-Pro change about a LIBERO world before it is built. All of it comes from data files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from lerobot_policy_quantile.scenes.contract import Array

PIVOT = np.array([0.0, 0.0, 0.8])
"""The point LIBERO-Plus turns and scales its cameras about, in metres."""

CAMERA = "agentview"


@dataclass(frozen=True)
class View:
    """A camera pose as LIBERO-Plus writes it: whole degrees, and per cent of the distance from the pivot."""

    horizontal: int = 0
    vertical: int = 0
    distance: int = 100
    turn: int = 0
    tilt: int = 0

    def pose(self, position: Float[Array, "3"], quaternion: Float[Array, "4"]) -> tuple[Array, Array]:
        """Where the camera goes that stood at `position` with `quaternion` (w, x, y, z).

        Up about the pivot's y axis, around the z axis, away from the pivot; then the camera alone turns and tilts.
        Every stage is rounded to four decimals, as LIBERO-Plus does, so that pictures agree with it.
        """
        place, facing = np.asarray(position, dtype=np.float64), Rotation.from_quat(np.roll(quaternion, -1))
        if self.vertical:
            up = Rotation.from_rotvec([0.0, -np.radians(self.vertical), 0.0])
            place, facing = _rounded(PIVOT + up.apply(place - PIVOT), up * facing)
        around = Rotation.from_euler("z", self.horizontal, degrees=True)
        place, facing = _rounded(around.apply(place), around * facing)
        if self.distance != 100:
            place, facing = _rounded(PIVOT + (place - PIVOT) * (self.distance / 100), facing)
        if self.turn:
            place, facing = _rounded(place, Rotation.from_euler("z", self.turn, degrees=True) * facing)
        if self.tilt:
            place, facing = _rounded(place, Rotation.from_rotvec([0.0, -np.radians(self.tilt), 0.0]) * facing)
        return place, np.roll(facing.as_quat(), 1).round(4)


def _rounded(place: Array, facing: Rotation) -> tuple[Array, Rotation]:
    return place.round(4), Rotation.from_quat(facing.as_quat().round(4))


@dataclass(frozen=True)
class Dressing:
    """One task as it shall be built: its bddl and what differs from it."""

    bddl: Path
    language: str | None = None
    """The instruction in place of the bddl's `:language`."""
    view: View | None = None
    joints: tuple[float, ...] | None = None
    """The arm's seven joints when the world is reset, in radians.

    As in LIBERO-Plus the stored state comes after the reset and puts the arm back, while the controller still holds the
    pose of these joints: in the ten waiting steps the arm moves towards it.
    """
    scene_xml: str | None = None
    styles: tuple[str, str] | None = None
    """Floor and wall."""

    def options(self) -> dict[str, Any]:
        """Arguments of hf-libero's problem classes."""
        found: dict[str, Any] = {}
        if self.scene_xml is not None:
            found["scene_xml"] = self.scene_xml
        if self.styles is not None:
            found["scene_properties"] = dict(zip(("floor_style", "wall_style"), self.styles, strict=True))
        return found

    def move_camera(self, arena: Any) -> None:
        """Put the external camera of a built arena where the view says."""
        if self.view is None:
            return
        camera = arena.worldbody.find(f"./camera[@name='{CAMERA}']")
        position, quaternion = (np.array(camera.get(name).split(), dtype=np.float64) for name in ("pos", "quat"))
        place, facing = self.view.pose(position, quaternion)
        arena.set_camera(camera_name=CAMERA, pos=list(place), quat=list(facing))
