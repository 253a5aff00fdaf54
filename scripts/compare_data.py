"""Compare two folders that `qhead data plus` or `qhead data pro` made, by what they mean; exits with 1 if they differ.

python -m scripts.compare_data plus A/plus B/plus
"""

import argparse
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.scenes.libero.initial_states import read_states
from lerobot_policy_quantile.scenes.libero.plus_instances import INSTANCES, JOINTS, LAYOUT_BDDL, LAYOUT_STATES
from lerobot_policy_quantile.scenes.libero.pro import OBJECTS

Parts = Iterator[tuple[str, dict[str, Any]]]
"""What -> name -> content."""


def plus(folder: Path) -> Parts:
    """Instances but for the mark which of them a folder of assets can run; layouts; starts of the arm."""
    lines = map(json.loads, (folder / INSTANCES).read_text(encoding="utf-8").splitlines())
    yield "instances", {f"{e['suite']} {e['id']}": {k: v for k, v in e.items() if k != "real"} for e in lines}
    yield "starts of the arm", dict(enumerate(json.loads((folder / JOINTS).read_text(encoding="utf-8"))))
    with zipfile.ZipFile(folder / LAYOUT_BDDL) as archive:
        yield "layouts' bddl files", {name: archive.read(name) for name in archive.namelist()}
    with np.load(folder / LAYOUT_STATES, allow_pickle=False) as archive:
        yield "layouts' states", {name: archive[name].tobytes() for name in archive.files}


def pro(folder: Path) -> Parts:
    """Perturbed tasks, their states, and the objects."""
    yield "bddl files", {_name(folder, f): f.read_bytes() for f in (folder / "bddl_files").rglob("*.bddl")}
    states = (folder / "init_files").rglob("*.pruned_init")
    yield "tasks' states", {_name(folder, file): read_states(file).tobytes() for file in states}
    yield "objects", json.loads((folder / OBJECTS).read_text(encoding="utf-8"))


def _name(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix()


def main() -> int:
    """Print, for each kind of content, how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", choices=("plus", "pro"))
    parser.add_argument("folders", nargs=2, type=Path)
    options = parser.parse_args()
    read: Callable[[Path], Parts] = {"plus": plus, "pro": pro}[options.benchmark]
    alike = True
    for (what, mine), (_, theirs) in zip(*map(read, options.folders), strict=True):
        names = {*mine, *theirs}
        equal = sum(name in mine and name in theirs and mine[name] == theirs[name] for name in names)
        alike &= equal == len(names)
        print(f"{equal:,} of {len(names):,} {what} are equal")
    return int(not alike)


if __name__ == "__main__":
    sys.exit(main())
