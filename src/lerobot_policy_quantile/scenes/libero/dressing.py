"""Changes that LIBERO-Plus and LIBERO-Pro make to a LIBERO task before it is built, read from data files."""

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
class CameraMove:
    """One stage of a camera move: a rotation about the pivot and a scaling of the distance to it."""

    axis: str = "z"
    degrees: float = 0.0
    stretch: float = 1.0
    on_the_spot: bool = False
    """The camera rotates in place."""

    def __call__(self, place: Float[Array, "3"], quaternion: Float[Array, "4"]) -> tuple[Array, Array]:
        """The pose after it; quaternions are (x, y, z, w). Four decimals, as LIBERO-Plus rounds after every stage."""
        turn = Rotation.from_euler(self.axis, self.degrees, degrees=True)
        if not self.on_the_spot:
            place = PIVOT + self.stretch * turn.apply(place - PIVOT)
        if self.stretch == 1:
            quaternion = (turn * Rotation.from_quat(quaternion)).as_quat()
        return _rounded(place), _rounded(quaternion)


def _rounded(values: Float[Array, "n"]) -> Float[Array, "n"]:
    """To four decimals by Python's rule; numpy's rounds a product, which differs in rare last digits."""
    return np.array([round(value, 4) for value in values.tolist()])


@dataclass(frozen=True)
class CameraPose:
    """A camera pose as LIBERO-Plus writes it: whole degrees, and per cent of the distance from the pivot."""

    horizontal: int = 0
    vertical: int = 0
    distance: int = 100
    turn: int = 0
    tilt: int = 0

    def stages(self) -> list[CameraMove]:
        """Elevation, azimuth, distance, yaw, pitch; stages without effect are left out, except the azimuth."""
        ways = (
            (self.vertical != 0, CameraMove("y", -self.vertical)),
            (True, CameraMove("z", self.horizontal)),
            (self.distance != 100, CameraMove(stretch=self.distance / 100)),
            (self.turn != 0, CameraMove("z", self.turn, on_the_spot=True)),
            (self.tilt != 0, CameraMove("y", -self.tilt, on_the_spot=True)),
        )
        return [stage for needed, stage in ways if needed]

    def pose(self, position: Float[Array, "3"], quaternion: Float[Array, "4"]) -> tuple[Array, Array]:
        """New pose of a camera at `position` with `quaternion` (w, x, y, z)."""
        place, facing = np.asarray(position, dtype=np.float64), np.roll(quaternion, -1)
        for stage in self.stages():
            place, facing = stage(place, facing)
        return place, np.roll(facing, 1)


@dataclass(frozen=True)
class Dressing:
    """How a task is built: its bddl file and the changes to it."""

    bddl: Path
    view: CameraPose | None = None
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
        """Move the external camera of a built arena to the pose of the view."""
        if self.view is None:
            return
        camera = arena.worldbody.find(f"./camera[@name='{CAMERA}']")
        position, quaternion = (np.array(camera.get(name).split(), dtype=np.float64) for name in ("pos", "quat"))
        place, facing = self.view.pose(position, quaternion)
        arena.set_camera(camera_name=CAMERA, pos=list(place), quat=list(facing))
