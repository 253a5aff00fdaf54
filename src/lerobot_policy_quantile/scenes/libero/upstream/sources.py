"""Finds files in a clone or a download, and writes a converted folder."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lerobot_policy_quantile.scenes.libero.assets import MARK, find_assets

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
PACKAGES = ("libero/libero", "liberopro/liberopro", "libero_data", ".")
"""Where LIBERO's folders lie in a repository, in a fork, and in a download from the hub."""

RECORD = "source.json"


@dataclass(frozen=True)
class Converted:
    """What a conversion made."""

    folder: Path
    counts: dict[str, int]
    """What -> how many."""
    notes: list[str] = field(default_factory=list)
    """What is missing or broken upstream."""
    hashes: dict[str, str] = field(default_factory=dict)
    """File in the folder -> sha256."""

    @property
    def digest(self) -> str:
        """Twelve hex digits over all files, their names included."""
        return hashlib.sha256(json.dumps(self.hashes, sort_keys=True).encode()).hexdigest()[:12]


def find_in(sources: Sequence[Path], *parts: str) -> Path | None:
    """The first of the sources that has a file or folder, in any of the places LIBERO's package may have."""
    candidates = (source / package / Path(*parts) for source in sources for package in PACKAGES)
    return next((path for path in candidates if path.exists()), None)


def require_in(sources: Sequence[Path], *parts: str, hint: str) -> Path:
    """The same; refuses if there is none."""
    found = find_in(sources, *parts)
    if found is None:
        raise ValueError(
            f"--from must hold {'/'.join(parts)}, in it or in {PACKAGES[0]}; got {', '.join(map(str, sources))}; {hint}"
        )
    return found


def commits_of(sources: Iterable[Path]) -> list[str]:
    """The git commit of each source, or `unknown`."""
    return [_commit(source) for source in sources]


def _commit(source: Path) -> str:
    if not (source / ".git").exists() or shutil.which("git") is None:
        return "unknown"
    command = ["git", "-C", str(source), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_folder(
    folder: Path, sources: Sequence[Path], fill: Callable[[Path], tuple[dict[str, int], list[str]]]
) -> Converted:
    """Write a folder completely or not at all: `fill` writes into a temporary one, which is then renamed.

    `source.json` beside the files lists the commits they were made from and the sha256 of each.
    """
    if folder.exists():
        raise ValueError(f"--out must not hold {folder.name!r} yet; remove {folder} to convert again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        counts, notes = fill(made)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        hashes = {f.relative_to(made).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
        record = {"commits": commits_of(sources), "counts": counts, "notes": notes, "sha256": hashes}
        (made / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        made.rename(folder)
    return Converted(folder, counts, notes, hashes)


def add_assets(sources: Sequence[Path], target: Path) -> int:
    """Files of the sources' assets that `target` lacks, as hard links where the disk allows; how many were added.

    Where the sources' assets are a part only, LIBERO's own (found as the scenes find them) fill the rest. Files that
    are there already stay as they are.
    """
    found = [assets for source in sources if (assets := _assets_in(source)) is not None]
    if not found:
        return 0
    added = sum(_link_missing(assets, target) for assets in found)
    if not (target / MARK).is_file():
        added += _link_missing(find_assets(), target)
    return added


def _assets_in(source: Path) -> Path | None:
    folders = [source / package / "assets" for package in PACKAGES] + [source]
    return next((folder for folder in folders if (folder / "scenes").is_dir()), None)


def _link_missing(source: Path, target: Path) -> int:
    added = 0
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path.resolve(), place)
            except OSError:
                shutil.copyfile(path, place)
            added += 1
    return added
