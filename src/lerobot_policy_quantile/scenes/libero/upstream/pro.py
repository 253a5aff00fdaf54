"""LIBERO-Pro's repository and hub dataset -> `pro/`: perturbed bddl files, initial states, and its own objects.

The repository has the objects and the rules (`libero_ood`), the hub dataset the 160 perturbed tasks; a clone into
which the dataset was moved, as LIBERO-Pro's README describes, has both.
"""

import ast
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.scenes.libero.assets import libero_package
from lerobot_policy_quantile.scenes.libero.initial_states import load_initial_states
from lerobot_policy_quantile.scenes.libero.pro import FOLDERS, OBJECTS
from lerobot_policy_quantile.scenes.libero.upstream.bddl_text import kinds_in, read_bddl
from lerobot_policy_quantile.scenes.libero.upstream.python_source import attributes_in, base_of, classes_in
from lerobot_policy_quantile.scenes.libero.upstream.sources import SUITES, Converted, find_in, write_folder

RULES = "libero_ood"
HINT = (
    "get the perturbed tasks from the hub, hf download --repo-type dataset zhouxueyang/LIBERO-Pro --local-dir HUB, and"
    " add --from HUB"
)
_FILES = {"bddl_files": "bddl", "init_files": "pruned_init"}
_MESHES = {
    "google_scanned_objects.py": "stable_scanned_objects",
    "hope_objects.py": "stable_hope_objects",
    "turbosquid_objects.py": "turbosquid_objects",
    "articulated_objects.py": "articulated_objects",
}
"""File that defines a kind of object -> the folder of its meshes in the assets."""
_ARENAS = frozenset({"table", "kitchen_table", "living_room_table", "study_table", "coffee_table", "floor"})


def convert_pro(sources: Sequence[Path], folder: Path) -> Converted:
    """Make `folder` from a checkout of the repository and what was downloaded from the hub."""
    return write_folder(folder, sources, lambda made: _fill(sources, made))


def _fill(sources: Sequence[Path], made: Path) -> tuple[dict[str, int], list[str]]:
    missing = [f"{folder}/{group}" for group in _groups() for folder in _FILES if not _found(sources, folder, group)]
    if missing:
        raise ValueError(
            f"--from must hold LIBERO-Pro's perturbed tasks in bddl_files/ and init_files/; {len(missing)} of"
            f" {len(_groups()) * len(_FILES)} folders are missing, such as {missing[0]}; {HINT}"
        )
    notes = [note for group in _groups() for note in _copy_group(sources, group, made)]
    for rules in sorted(path for source in sources[:1] for path in (source / RULES).glob("*.yaml")):
        (made / RULES).mkdir(exist_ok=True)
        (made / RULES / rules.name).write_bytes(rules.read_bytes())
    kinds = {file: kinds_in(read_bddl(file)) for file in sorted((made / "bddl_files").rglob("*.bddl"))}
    objects, strangers = own_objects(sources, dict.fromkeys(kind for its in kinds.values() for kind in its))
    (made / OBJECTS).write_text(json.dumps(objects, indent=1) + "\n", encoding="utf-8")
    for file, its in kinds.items():
        unknown, task = strangers.intersection(its), f"{file.parent.name}/{file.stem}"
        if unknown and not any(note.startswith(f"{task}:") for note in notes):
            notes.append(f"{task}: envs/objects does not define its {', '.join(sorted(unknown))}")
    return {"tasks": len(kinds), "tasks that can be run": len(kinds) - len(notes), "objects": len(objects)}, notes


def _groups() -> list[str]:
    return [f"{suite}_{kind}" for suite in SUITES for kind in FOLDERS.values()]


def _found(sources: Sequence[Path], folder: str, group: str) -> Path | None:
    """The first source's folder that has any of the group's files."""
    for source in sources:
        path = find_in([source], folder, group)
        if path is not None and any(path.glob(f"*.{_FILES[folder]}")):
            return path
    return None


def _copy_group(sources: Sequence[Path], group: str, made: Path) -> Iterable[str]:
    """Copy the ten tasks of a group; those that cannot be run are copied unchanged and noted."""
    suite = group.rpartition("_")[0]
    for task in sorted(path.stem for path in (libero_package() / "bddl_files" / suite).glob("*.bddl")):
        reason = None
        for folder, suffix in _FILES.items():
            found = _found(sources, folder, group)
            file = None if found is None else found / f"{task}.{suffix}"
            if file is None or not file.is_file():
                reason = f"its {suffix} file is missing"
                continue
            place = made / folder / group / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
            if suffix == "pruned_init":
                reason = reason or _why_broken(place)
        if reason is not None:
            yield f"{group}/{task}: {reason}"


def _why_broken(states: Path) -> str | None:
    try:
        load_initial_states(states)
    except ValueError as error:
        return str(error).partition("; got")[0]
    return None


def own_objects(sources: Sequence[Path], kinds: Iterable[str]) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """Meshes and orientation of the kinds that hf-libero does not know, and the kinds that no source defines.

    If two sources define an object, the first is used.
    """
    known = {_kind(name) for _, name, _ in _object_classes([libero_package().parents[1]])} | _ARENAS
    upstream = {_kind(name): (file, node) for file, name, node in reversed(list(_object_classes(sources)))}
    if not upstream:
        raise ValueError(
            "--from must hold LIBERO-Pro's objects in envs/objects; got no such folder; add the repository: git clone"
            " https://github.com/Zxy-MLlab/LIBERO-PRO, --from LIBERO-PRO"
        )
    wanted = [kind for kind in kinds if kind not in known]
    return {kind: _entry(*upstream[kind]) for kind in wanted if kind in upstream}, {*wanted} - {*upstream}


def _object_classes(sources: Sequence[Path]) -> Iterable[tuple[str, str, ast.ClassDef]]:
    for source in sources:
        for file in _MESHES:
            path = find_in([source], "envs", "objects", file)
            if path is not None:
                yield from ((file, name, node) for name, node in classes_in(path).items() if node.decorator_list)


def _kind(class_name: str) -> str:
    """`Chefmate8Frypan` -> `chefmate_8_frypan`, as LIBERO registers its objects."""
    return "_".join(part.lower() for part in re.findall(r"[A-Z][a-z]*|[0-9]", class_name))


def _entry(file: str, node: ast.ClassDef) -> dict[str, Any]:
    if _MESHES[file] == "articulated_objects":
        return {"folder": _MESHES[file], "like": _twin(node)}
    own = attributes_in(node)
    return {
        "folder": _MESHES[file],
        "rotation": own.get("rotation", "default"),
        "rotation_axis": own.get("rotation_axis", "default"),
    }


def _twin(node: ast.ClassDef) -> str:
    """The kind of hf-libero's that an articulated object behaves like: the same class but for its name."""
    for _, name, other in _object_classes([libero_package().parents[1]]):
        if base_of(other) == base_of(node) and _nameless(other) == _nameless(node):
            return _kind(name)
    raise ValueError(f"{node.name} must be like one of hf-libero's articulated objects; it is like none")


def _nameless(node: ast.ClassDef) -> str:
    body = "\n".join(map(ast.unparse, node.body))
    return body.replace(_kind(node.name), "NAME")
