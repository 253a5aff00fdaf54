"""LIBERO-Plus's repository -> `plus/`: the list of instances, the layouts' bddl files and starts, the arm's starts."""

import ast
import json
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.scenes.libero.assets import libero_package
from lerobot_policy_quantile.scenes.libero.initial_states import read_states
from lerobot_policy_quantile.scenes.libero.plus_instances import INSTANCES, JOINTS, LAYOUT, LAYOUT_BDDL, LAYOUT_STATES
from lerobot_policy_quantile.scenes.libero.upstream.bddl_text import kinds_in, language_of, problem_of, read_bddl
from lerobot_policy_quantile.scenes.libero.upstream.python_source import base_of, classes_in, settings_in, value_of
from lerobot_policy_quantile.scenes.libero.upstream.sources import SUITES, Converted, require_in, write_folder

CLASSIFICATION = "task_classification.json"
HINT = "clone it: git clone https://github.com/sylvestf/LIBERO-plus"
_VIEWED = re.compile(
    r"^(?P<bddl>.+?)_view_(?P<view>\d+_\d+_\d+_\d+_\d+)_initstate_(?P<start>\d+)(_noise_(?P<noise>\d+))?$"
)
_PLAIN_VIEW = [0, 0, 100, 0, 0]


def convert_plus(sources: Sequence[Path], folder: Path) -> Converted:
    """Make `folder` from a checkout of the repository."""
    return write_folder(folder, sources, lambda made: _fill(sources, made))


def _fill(sources: Sequence[Path], made: Path) -> tuple[dict[str, int], list[str]]:
    classification = require_in(sources, "benchmark", CLASSIFICATION, hint=HINT)
    (made / CLASSIFICATION).write_bytes(classification.read_bytes())
    listed: dict[str, list[dict[str, Any]]] = json.loads(classification.read_text(encoding="utf-8"))
    reader = _Reader(sources)
    instances = [reader.instance(suite, entry) for suite in SUITES for entry in listed[suite]]
    lines = [json.dumps(instance, ensure_ascii=False, separators=(",", ":")) for instance in instances]
    (made / INSTANCES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    starts = arm_starts(require_in(sources, "envs", "robots", "mounted_panda.py", hint=HINT))
    (made / JOINTS).write_text(json.dumps(starts, separators=(",", ":")), encoding="utf-8")
    layouts = [f"{i['suite']}/{i['name']}" for i in instances if i["category"] == LAYOUT]
    _write_layouts(made, reader, layouts)
    counts = dict(Counter(str(instance["category"]) for instance in instances))
    return {"instances": len(instances), **counts, "layouts": len(layouts), "starts of the arm": len(starts)}, []


class _Reader:
    """The repository's bddl files and problem classes."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self.bddl_files = require_in(sources, "bddl_files", hint=HINT)
        self.states = require_in(sources, "init_files", "libero_newobj", hint=HINT)
        problems = require_in(sources, "envs", "problems", hint=HINT)
        self._classes = {k.lower(): v for f in sorted(problems.glob("libero_*.py")) for k, v in classes_in(f).items()}
        self._tasks = {suite: _base_tasks(suite) for suite in SUITES}

    def instance(self, suite: str, entry: dict[str, Any]) -> dict[str, Any]:
        """One line of the list."""
        name = str(entry["name"])
        if not re.fullmatch(r"\w+", name, re.ASCII):
            raise ValueError(f"names in {CLASSIFICATION} must be letters, digits and underscores; got {name!r}")
        bases = [task for task in self._tasks[suite] if name.startswith(f"{task}_")]
        if not bases:
            raise ValueError(f"{name!r} of {suite} must begin with the name of one of its tasks; it does not")
        base, category = max(bases, key=len), str(entry["category"])
        return {
            "suite": suite,
            "id": entry["id"],
            "name": name,
            "category": category,
            "difficulty": entry.get("difficulty_level"),
            "base_task": base,
            **self._change(suite, name, base, category),
        }

    def _change(self, suite: str, name: str, base: str, category: str) -> dict[str, Any]:
        viewed = _VIEWED.match(name)
        if category == "Language Instructions":
            return {"language": language_of(self.bddl(suite, viewed["bddl"] if viewed else name))}
        if viewed is not None:
            return _of_the_name(viewed)
        text = self.bddl(suite, name)
        if category == LAYOUT:
            added = [kind for kind in kinds_in(text) if kind not in _kinds_of(suite, base)]
            return {"added_objects": added} if added else {}
        return self._scene(problem_of(text), with_styles=category == "Background Textures")

    def bddl(self, suite: str, name: str) -> str:
        """The text of one of the suite's files."""
        path = self.bddl_files / suite / f"{name}.bddl"
        if not path.is_file():
            raise ValueError(f"the checkout must hold every instance's bddl file; there is no {path}; {HINT}")
        return read_bddl(path)

    def _scene(self, problem: str, *, with_styles: bool) -> dict[str, Any]:
        """The scene file, floor and wall that a problem's class puts in place of LIBERO's; None where it keeps them."""
        found: dict[str, str] = {}
        name: str | None = problem
        while name is not None and name.lower() in self._classes:
            node = self._classes[name.lower()]
            name = base_of(node)
            if name != "BDDLBaseDomain":  # LIBERO's own problem class
                found = {**settings_in(node), **found}
        if not found:
            raise ValueError(f"problem {problem!r} must be a class in envs/problems that changes the scene; it is not")
        wanted = ("scene_xml", "floor_style", "wall_style") if with_styles else ("scene_xml",)
        return {"problem": problem, **{key: found.get(key) for key in wanted}}


def _of_the_name(viewed: re.Match[str]) -> dict[str, Any]:
    """The perturbation in a name such as `..._view_0_0_100_2_352_initstate_0`; defaults are left out."""
    view = [int(part) for part in viewed["view"].split("_")]
    found: dict[str, Any] = {} if view == _PLAIN_VIEW else {"view": view}
    if int(viewed["start"]):
        found["initstate"] = int(viewed["start"])
    if viewed["noise"]:
        found["noise"] = int(viewed["noise"])
    return found


def _base_tasks(suite: str) -> list[str]:
    return sorted(path.stem for path in (libero_package() / "bddl_files" / suite).glob("*.bddl"))


@cache
def _kinds_of(suite: str, task: str) -> frozenset[str]:
    """What the unperturbed task declares."""
    return frozenset(kinds_in(read_bddl(libero_package() / "bddl_files" / suite / f"{task}.bddl")))


def arm_starts(path: Path) -> list[list[float]]:
    """The joints of `MountedPanda1`, `MountedPanda2`, ...: seven numbers each."""
    classes = classes_in(path)
    numbered = {int(name.removeprefix("MountedPanda")): name for name in classes if name[-1].isdigit()}
    if sorted(numbered) != list(range(1, len(numbered) + 1)) or not numbered:
        raise ValueError(f"{path} must define MountedPanda1, MountedPanda2, ... without a gap; it does not")
    return [_joints(classes[numbered[number]], path) for number in sorted(numbered)]


def _joints(node: ast.ClassDef, path: Path) -> list[float]:
    returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value is not None]
    joints = value_of(returned[0]) if len(returned) == 1 else None
    if not isinstance(joints, list) or len(joints) != 7:
        raise ValueError(f"{node.name} in {path} must return seven joints; it does not")
    return [float(joint) for joint in joints]


def _write_layouts(made: Path, reader: _Reader, layouts: Sequence[str]) -> None:
    with zipfile.ZipFile(made / LAYOUT_BDDL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in layouts:
            entry = zipfile.ZipInfo(f"{name}.bddl")  # dated 1980: the same bytes on every day
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, (reader.bddl_files / f"{name}.bddl").read_bytes())
    states: dict[str, Any] = {name: read_states(reader.states / f"{name}.pruned_init").reshape(-1) for name in layouts}
    np.savez_compressed(made / LAYOUT_STATES, **states)
