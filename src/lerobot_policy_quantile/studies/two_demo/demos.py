"""The two demonstrations of an arm: collected by the scripted expert, verified, kept as arrays (App. B.3)."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.scenes.contract import Scene, make_scene
from lerobot_policy_quantile.scenes.demonstrations import Demonstration, demonstrate
from lerobot_policy_quantile.scenes.experts.waypoints import Route
from lerobot_policy_quantile.scenes.obstacle import DISTANCE, SIZE
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.checks import as_promised, identical_starts
from lerobot_policy_quantile.studies.two_demo.settings import OBSTACLE, StudySettings
from lerobot_policy_quantile.util.digests import digest
from lerobot_policy_quantile.util.files import write_atomically, write_json
from lerobot_policy_quantile.util.stamps import Stamp

ENVIRONMENT_SEED = 20260922
KEY = (0, 0, ENVIRONMENT_SEED)
"""Task, initial state and seed of every demonstration and every closed-loop episode."""
ROUTES = ("left", "right")
CONTROL = "straight"


class Lesson(NamedTuple):
    """What a policy is taught in an arm."""

    instruction: str
    demonstrations: tuple[records.DemonstrationRecord, ...]
    ground: float  # height of the surface things stand on


def arm_scene(arm: str, settings: StudySettings) -> Scene:
    """The scene of an arm."""
    return make_scene(
        arm.removesuffix(OBSTACLE),
        obstacle=arm.endswith(OBSTACLE),
        camera_size=settings.camera_size,
        wording=settings.wording,
    )


def stamp_of(folder: Path, settings: StudySettings) -> Stamp:
    """What an arm's demonstrations depend on."""
    return Stamp(folder, "demonstrations", {"camera_size": settings.camera_size, "key": list(KEY)})


def sides(arm: str) -> tuple[str, ...]:
    """What is driven in an arm: both detours, and the straight control where the obstacle stands."""
    return (*ROUTES, CONTROL) if arm.endswith(OBSTACLE) else ROUTES


def drive(arm: str, side: str, settings: StudySettings) -> tuple[Demonstration, dict[str, Any]]:
    """One demonstration, and what the arm's scene is like."""
    scene = arm_scene(arm, settings)
    limit = settings.arm_limit(arm)
    try:
        route = Route(side).around_obstacle() if scene.obstacle else Route(side)
        control = side == CONTROL
        driven = demonstrate(scene, KEY, route, limit=limit if control else None, pictures=not control)
        scene.reset(*KEY)
        return driven, _scene_facts(scene, limit)
    finally:
        scene.close()


def keep(folder: Path, driven: dict[str, Demonstration], facts: dict[str, Any]) -> list[records.Check]:
    """Write an arm's demonstrations, by side: arm.json and arrays.

    Nothing is written unless every check holds; the checks are returned either way.
    """
    demonstrations, control = [driven[side] for side in ROUTES], driven.get(CONTROL)
    checks = [identical_starts(demonstrations), *as_promised(demonstrations, control)]
    folder.mkdir(parents=True, exist_ok=True)
    if all(check.passed for check in checks):
        _write_arrays(folder / records.DEMONSTRATIONS, demonstrations, control)
        write_json(folder / records.ARM, facts | _how_they_ended(demonstrations, control))
    return checks


def _scene_facts(scene: Scene, limit: int) -> dict[str, Any]:
    layout, start = scene.layout(), scene.state()[:3]
    ahead = (layout.object - start)[:2]
    plane = np.array([*(start[:2] + DISTANCE * ahead / np.linalg.norm(ahead)), layout.ground + SIZE[2] / 2])
    return {
        "scene": scene.name,
        "obstacle": scene.obstacle,
        "instruction": scene.instruction,
        "limit": limit,
        "ground": layout.ground,
        "versions": scene.versions,
        "levels": quantile_levels().tolist(),
        "places": {
            "start": start.tolist(),
            "object": layout.object.tolist(),
            "goal": layout.goal.tolist(),
            "plane": (plane if layout.obstacle is None else layout.obstacle).tolist(),
            "obstacle_size": SIZE.tolist() if scene.obstacle else None,
        },
    }


def _how_they_ended(demonstrations: list[Demonstration], control: Demonstration | None) -> dict[str, Any]:
    return {
        "demonstrations": [
            {"route": d.route.side, "success": bool(d.success), "contacts": int(d.contacts)} for d in demonstrations
        ],
        "control": None if control is None else {"success": bool(control.success), "contacts": int(control.contacts)},
    }


def _write_arrays(path: Path, demonstrations: list[Demonstration], control: Demonstration | None) -> None:
    arrays: dict[str, Any] = {}
    for record in demonstrations:
        side = record.route.side
        arrays[f"{side}.states"] = np.asarray(record.states, dtype=np.float32)
        arrays[f"{side}.actions"] = np.asarray(record.actions, dtype=np.float32)
        for camera in CAMERA_KEYS:
            arrays[f"{side}.{camera}"] = np.stack([frames[camera] for frames in record.frames])
    if control is not None:
        arrays["control.path"] = np.array([state[:3] for state in control.states], dtype=np.float32)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def load_lesson(folder: Path) -> Lesson:
    """What an arm teaches."""
    facts = json.loads((folder / records.ARM).read_text())
    if "ground" not in facts:
        raise ValueError(f"{folder / records.ARM} must name its ground; it is of an older study, remove {folder}")
    return Lesson(facts["instruction"], records.load_demonstrations(folder, facts)[0], facts["ground"])


def data_hash(demonstrations: tuple[records.DemonstrationRecord, ...]) -> str:
    """Hash of every number and pixel that is trained on."""
    return digest(
        *(
            np.ascontiguousarray(array).tobytes()
            for d in demonstrations
            for array in (d.states, d.actions, *(d.frames[camera] for camera in sorted(d.frames)))
        )
    )
