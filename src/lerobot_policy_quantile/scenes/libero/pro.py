"""LIBERO-Pro as scenes such as `libero_pro_spatial_object`: four suites, four perturbations and two controls.

Tasks are numbered as in the suite they perturb; bddl and initial states are LIBERO-Pro's files, its own objects are
registered with hf-libero from `pro/objects.json`. Original is the unperturbed suite under LIBERO-Pro's limits. Semantic
and task perturbations change the language or the goal and use their bddl's instruction; the others use the unperturbed
task's.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, require_index
from lerobot_policy_quantile.scenes.libero.assets import find_data, import_libero
from lerobot_policy_quantile.scenes.libero.dressing import Dressing
from lerobot_policy_quantile.scenes.libero.initial_states import load_initial_states
from lerobot_policy_quantile.scenes.libero.suites import LiberoScene
from lerobot_policy_quantile.scenes.libero.wording import bddl_language
from lerobot_policy_quantile.util.wording import TASK

PREFIX = "libero_pro_"
OBJECTS = "objects.json"
FOLDERS = {"object": "object", "position": "swap", "semantic": "lan", "task": "task"}
"""Perturbation -> how LIBERO-Pro's folders call it."""

SPEAK_THEIR_BDDL = ("semantic", "task")
"""Perturbations whose instruction is not the unperturbed task's."""

ORIGINAL, ENVIRONMENT = "original", "environment"
LONG_LIMIT = 800
_BASES = {
    "stable_scanned_objects": "GoogleScannedObject",
    "stable_hope_objects": "HopeBaseObject",
    "turbosquid_objects": "TurbosquidObjects",
}


class ProScene(LiberoScene):
    """The ten tasks of one suite under one perturbation."""

    def __init__(self, name: str, *, obstacle: bool, camera_size: int, wording: str = TASK) -> None:
        if obstacle:
            raise ValueError(f"obstacle is defined for libero_object, task 0; got {name}")
        suite, _, self.perturbation = name.removeprefix(PREFIX).rpartition("_")
        if self.perturbation not in (*FOLDERS, ORIGINAL, ENVIRONMENT):
            raise ValueError(
                f"perturbation must be one of {', '.join((*FOLDERS, ORIGINAL, ENVIRONMENT))}; got {self.perturbation!r}"
            )
        super().__init__(name, obstacle=False, camera_size=camera_size, wording=wording, suite=f"libero_{suite}")
        self.limit = LONG_LIMIT if self.suite == "libero_10" else self.limit
        register_objects()

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key; raises ValueError if the task's files are missing or broken."""
        require_index("task", task, self.task_count)
        if reason := self.why_unavailable(task):
            raise ValueError(f"{self.name} task {task} ({self.tasks[task].name}) cannot be run: {reason}")
        super().reset(task, index, seed)

    def why_unavailable(self, task: int) -> str | None:
        """The reason why a task cannot be run with the files at hand; None if it can."""
        if self.perturbation == ENVIRONMENT:
            return "LIBERO-Pro ships no bddl files and initial states for its environments"
        if self.perturbation != ORIGINAL and not self._own(task, "bddl").is_file():
            return "its bddl file is missing"
        try:
            self._initial_states(task)
        except ValueError as error:
            return "its initial states are missing or broken: " + str(error).partition("; got")[0]
        return None

    def state_count(self, task: int) -> int:
        """How many initial states are stored; none for a task that cannot be run."""
        return 0 if self.why_unavailable(task) else super().state_count(task)

    def _own(self, task: int, kind: str) -> Path:
        folder, suffix = {"bddl": ("bddl_files", ".bddl"), "init": ("init_files", ".pruned_init")}[kind]
        group = f"{self.suite}_{FOLDERS[self.perturbation]}"
        return find_data("pro") / folder / group / f"{self.tasks[task].name}{suffix}"

    def _words(self, task: int) -> str:
        if self.perturbation in SPEAK_THEIR_BDDL:
            return bddl_language(self._own(task, "bddl"))
        return super()._words(task)

    def _initial_states(self, task: int) -> Float[Array, "index n"]:
        if self.perturbation == ORIGINAL:
            return super()._initial_states(task)
        if task not in self._states:
            self._states[task] = load_initial_states(self._own(task, "init"))
        return self._states[task]

    def _dressing(self, task: int) -> Dressing:
        return super()._dressing(task) if self.perturbation == ORIGINAL else Dressing(self._own(task, "bddl"))


@cache
def register_objects() -> None:
    """Register LIBERO-Pro's objects with hf-libero: meshes and orientation; cabinets behave like existing ones."""
    import_libero()
    from libero.libero.envs import objects as known

    entries: dict[str, dict[str, Any]] = json.loads((find_data("pro") / OBJECTS).read_text(encoding="utf-8"))
    for name, entry in entries.items():
        if name not in known.OBJECTS_DICT:
            make_class = _articulated if "like" in entry else _rigid
            known.OBJECTS_DICT[name] = made = make_class(name, entry, known)
            if entry.get("like") in known.VISUAL_CHANGE_OBJECTS_DICT:  # a stove shows whether it is on
                known.VISUAL_CHANGE_OBJECTS_DICT[name] = made


def _rigid(name: str, entry: dict[str, Any], known: Any) -> type:
    base = getattr(known, _BASES[entry["folder"]])
    free = [{"type": "free", "damping": "0.0005"}]

    class RigidThing(base):  # type: ignore[misc, valid-type]
        def __init__(self, name: str = name, obj_name: str = name, joints: Any = free) -> None:
            # Hope objects are always free; the others may be fixed in place.
            super().__init__(name, obj_name, *(() if entry["folder"] == "stable_hope_objects" else (joints,)))
            self.category_name = entry_name
            if entry["rotation"] != "default":
                self.rotation = _tuples(entry["rotation"])
            if entry["rotation_axis"] != "default":
                self.rotation_axis = entry["rotation_axis"]

    entry_name = name
    RigidThing.__name__ = _camel(name)
    return RigidThing


def _articulated(name: str, entry: dict[str, Any], known: Any) -> type:
    base = known.OBJECTS_DICT[entry["like"]]
    free = [{"type": "free", "damping": "0.0005"}]

    class ArticulatedThing(base):  # type: ignore[misc, valid-type]
        def __init__(self, name: str = name, obj_name: str = name, joints: Any = free) -> None:
            super().__init__(name, obj_name, joints)
            self.category_name = entry_name

    entry_name = name
    ArticulatedThing.__name__ = _camel(name)
    return ArticulatedThing


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _tuples(rotation: Any) -> Any:
    if isinstance(rotation, dict):
        return {axis: tuple(span) for axis, span in rotation.items()}
    return tuple(rotation)


def make(name: str, *, obstacle: bool, camera_size: int, wording: str) -> ProScene:
    """Build the scene; called by `scenes.contract.make_scene`."""
    return ProScene(name, obstacle=obstacle, camera_size=camera_size, wording=wording)
