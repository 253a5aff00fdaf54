"""LIBERO-Plus's 10,030 instances as data: what each changes, and whether its files are available.

`plus/instances.jsonl` lists them, `layout_bddl.zip` and `layout_init.npz` hold the layouts, `robot_init_qpos.json` the
arm's starts. An instance whose files are missing stays in the list with the reason.
"""

import json
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.scenes.libero.assets import find_assets, find_data, import_libero

INSTANCES, JOINTS = "instances.jsonl", "robot_init_qpos.json"
LAYOUT_BDDL, LAYOUT_STATES = "layout_bddl.zip", "layout_init.npz"
LAYOUT = "Objects Layout"


@dataclass(frozen=True)
class Instance:
    """One line of the list. `number` counts from 0 within its suite: upstream's id minus one."""

    suite: str
    number: int
    name: str
    category: str
    base_task: str
    change: dict[str, Any]
    """What differs from the base task: view, initstate, noise, language, scene_xml, styles, added_objects."""

    @property
    def layout_name(self) -> str | None:
        """Where a layout's own bddl and start are, None for the other categories."""
        return f"{self.suite}/{self.name}" if self.category == LAYOUT else None


@cache
def instances(suite: str) -> tuple[Instance, ...]:
    """The instances made from a suite, in upstream's order: position = `number`."""
    found = tuple(instance for instance in _all(find_data("plus")) if instance.suite == suite)
    if [instance.number for instance in found] != list(range(len(found))):
        raise ValueError(f"ids of {suite} in {INSTANCES} must count 1, 2, 3, ...; they do not")
    return found


@cache
def _all(folder: Path) -> tuple[Instance, ...]:
    path = folder / INSTANCES
    if not path.is_file():
        raise ValueError(f"LIBERO-Plus's instances must be listed in {path}; there is no such file")
    return tuple(_instance(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def _instance(entry: dict[str, Any]) -> Instance:
    known = {name: entry[name] for name in ("suite", "name", "category", "base_task")}
    change = {name: value for name, value in entry.items() if name not in (*known, "id", "difficulty", "real")}
    return Instance(number=int(entry["id"]) - 1, change=change, **known)


def why_unavailable(instance: Instance) -> str | None:
    """The reason why an instance cannot be run with the files at hand; None if it can."""
    change = instance.change
    scene = change.get("scene_xml")
    if scene is not None and not (find_assets() / scene).is_file():
        return f"the assets have no scene file for it (in {Path(scene).parent}/)"
    for kind in ("floor", "wall"):
        style = change.get(f"{kind}_style")
        if style is not None and not texture_known(kind, style):
            return f"the assets have no texture for its {kind} style"
    if not _object_names().issuperset(change.get("added_objects", ())):
        return "hf-libero does not know its added objects, and their meshes (LIBERO-Plus's new_objects/) are not here"
    if instance.layout_name is not None and instance.layout_name not in _layouts():
        return f"its layout is not in {LAYOUT_BDDL} and {LAYOUT_STATES}"
    if change.get("initstate") is not None and not 1 <= change["initstate"] <= len(arm_starts()):
        return f"its start of the arm is not in {JOINTS}"
    return None


def texture_known(kind: str, style: str) -> bool:
    """Whether hf-libero, or a texture file of that very name, knows a floor or wall style; the latter is registered."""
    import_libero()
    from libero.libero.envs.arenas.style import STYLE_MAPPING

    styles = STYLE_MAPPING[kind]
    if style not in styles and (find_assets() / "textures" / f"{style}.png").is_file():
        styles[style] = f"{style}.png"
    return style in styles and (find_assets() / "textures" / styles[style]).is_file()


@cache
def _object_names() -> frozenset[str]:
    import_libero()
    from libero.libero.envs.objects import OBJECTS_DICT

    return frozenset(OBJECTS_DICT)


@cache
def _layouts() -> frozenset[str]:
    import numpy as np

    folder = find_data("plus")
    with zipfile.ZipFile(folder / LAYOUT_BDDL) as archive:
        problems = {name.removesuffix(".bddl") for name in archive.namelist()}
    with np.load(folder / LAYOUT_STATES, allow_pickle=False) as archive:
        return frozenset(problems & set(archive.files))


@cache
def arm_starts() -> tuple[tuple[float, ...], ...]:
    """Seven joints per start; `initstate` n is entry n - 1, and 0 is LIBERO's own."""
    starts = json.loads((find_data("plus") / JOINTS).read_text(encoding="utf-8"))
    if any(len(joints) != 7 for joints in starts):
        raise ValueError(f"starts in {JOINTS} must have seven joints each; some have not")
    return tuple(tuple(map(float, joints)) for joints in starts)
