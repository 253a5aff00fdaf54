"""Runs as the explorer reads them: every row that can be read, and in words what cannot.

Nothing outside a run's folder is read: file names follow from the digest of a key, and a link that leads out of the
folder is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lerobot_policy_quantile.evaluation.journal import Row, read_what_is_whole
from lerobot_policy_quantile.evaluation.naming import rows_named
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL
from lerobot_policy_quantile.util.digests import plain_digest

SIDE = "side"
LARGEST_FILE = 256 * 2**20
"""Bytes of a side file that is read; those of a long episode with two cameras take some megabytes."""


@dataclass(frozen=True)
class PolicyUnits:
    """What a policy's folder tells of its actions."""

    scale: tuple[float, ...]
    """Commands per normalised unit, for every dimension."""
    grippers: tuple[int, ...]


@dataclass(frozen=True)
class ExploredRun:
    """A folder that `qhead eval` wrote or is writing."""

    name: str
    folder: Path
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    """What of the journal cannot be read."""
    units: dict[str, PolicyUnits] = field(default_factory=dict)
    """Policy -> its units, where its folder was given."""

    def row(self, digest: str) -> Row | None:
        """The row of the episode that is called by these digits."""
        return self._by_digest.get(digest)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_digest", {row.key.digest: row for row in self.rows})

    _by_digest: dict[str, Row] = field(init=False, repr=False, compare=False)

    def side_file(self, row: Row, suffix: str) -> Path:
        """A file of the episode; ValueError says why there is none to read."""
        path = SideFiles(self.folder / SIDE).path(row.key, suffix)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"{path.name} is a link out of the run's folder and was not followed")
        if not path.is_file():
            what = "is not a file" if path.exists() else "is missing"
            raise ValueError(f"{path.name} {what}" + (f" ({row.side_error})" if row.side_error else ""))
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"{path.name} must have at most {LARGEST_FILE} bytes; got {path.stat().st_size}")
        return path


def alteration(path: Path, row: Row) -> list[str]:
    """In words, if a side file is not the one that the journal names; rows of old journals name none."""
    recorded = row.side_files.get(path.suffix)
    if recorded is None or plain_digest(path.read_bytes()) == recorded:
        return []
    return [f"{path.name} is not as it was when the journal recorded it"]


def read_run(path: Path, units: dict[str, PolicyUnits] | None = None) -> ExploredRun:
    """The run in a folder, or beside a journal file; damage becomes a problem of the run, not an error."""
    journal = path / JOURNAL if path.is_dir() else path
    rows, problems = read_what_is_whole(journal)
    return ExploredRun(journal.parent.name or str(path), journal.parent, tuple(rows), tuple(problems), units or {})


def read_named(path: Path, episode: str) -> tuple[ExploredRun, Row]:
    """A run and the one of its episodes that is meant; ValueError if there is none."""
    require_run(path)
    run = read_run(path)
    if not run.rows:
        raise ValueError(f"RUN must hold an episode; got none in {path}" + "".join(f"; {why}" for why in run.problems))
    return run, rows_named(run.rows, episode)[0]


def few_episodes(runs: Sequence[ExploredRun], episodes: Sequence[str], most: int) -> list[ExploredRun]:
    """The runs with the named episodes only or, without names, so many; those of one key stay together."""
    if episodes:
        named = {row.key for text in episodes for row in rows_named([row for run in runs for row in run.rows], text)}
    else:
        keys = {row.key for run in runs for row in run.rows}
        ordered = sorted(keys, key=lambda key: (key.scene, key.task, key.index, key.seed, key.policy, key.decoder))
        named = set(ordered[:most])
    return [replace(run, rows=tuple(row for row in run.rows if row.key in named)) for run in runs]


def require_run(path: Path) -> None:
    """Refuse a place where there is no journal at all."""
    journal = path / JOURNAL if path.is_dir() else path
    if not journal.is_file():
        raise ValueError(f"RUN must be a folder that qhead eval wrote, with {JOURNAL}, or a journal; got {path}")


def stamp_of(path: Path) -> str:
    """Changes whenever a journal grows."""
    journal = path / JOURNAL if path.is_dir() else path
    found = []
    for file in (journal, journal.with_name(f"{journal.name}-wal")):
        try:
            facts = file.stat()
            found.append(f"{facts.st_mtime_ns}-{facts.st_size}")
        except OSError:
            found.append("-")
    return " ".join(found)
