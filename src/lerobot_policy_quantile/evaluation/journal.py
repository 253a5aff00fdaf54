"""The journal: one final row per episode key, on disk before the next episode starts.

SQLite in write-ahead mode with full synchronisation: a row is there in whole or not at all, whatever is killed or
runs full in between, and it can be read while a run writes. The schema itself refuses a second final row for a key,
a change and a deletion. Errors are kept attempt by attempt; only the last allowed one becomes a final row.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lerobot_policy_quantile.evaluation.outcome import Outcome, Status
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.util.stamps import moved
from lerobot_policy_quantile.util.wording import BDDL, WORDING

RETRIES = 3
"""How often an episode that ended in an error is run again."""

SCHEMA_VERSION = 1

_SCHEMA = f"""
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('success', 'failure', 'error')),
    attempts INTEGER NOT NULL CHECK (attempts BETWEEN 1 AND {RETRIES + 1}),
    steps INTEGER NOT NULL CHECK (steps >= 0),
    simulated_seconds REAL NOT NULL,
    wall_seconds REAL NOT NULL,
    first_action TEXT,
    contacts INTEGER NOT NULL,
    final_state TEXT,
    versions TEXT NOT NULL,
    hashes TEXT NOT NULL,
    traceback TEXT,
    side_error TEXT,
    CHECK ((status = 'error') = (traceback IS NOT NULL))
) STRICT;
CREATE TABLE errors (
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt BETWEEN 1 AND {RETRIES + 1}),
    traceback TEXT NOT NULL,
    PRIMARY KEY (key, attempt)
) STRICT;
CREATE TABLE contexts (scope TEXT PRIMARY KEY, context TEXT NOT NULL) STRICT;
{
    "".join(
        f"CREATE TRIGGER {table}_keep_{event.lower()} BEFORE {event} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;\n"
        for table in ("results", "errors", "contexts")
        for event in ("UPDATE", "DELETE")
    )
}
PRAGMA user_version = {SCHEMA_VERSION};
"""


class JournalError(RuntimeError):
    """The journal cannot be written or read; what it held before is untouched."""


@dataclass(frozen=True)
class Row:
    """A final row."""

    key: EpisodeKey
    status: Status
    attempts: int
    steps: int
    simulated_seconds: float
    wall_seconds: float
    first_action: tuple[float, ...] | None
    contacts: int
    final_state: tuple[float, ...] | None
    versions: dict[str, str]
    hashes: dict[str, str]
    traceback: str | None
    side_error: str | None


class Journal:
    """The one writer of a journal file. A second one at the same time is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_suffix(".lock").open("w")
        except OSError as error:
            raise JournalError(f"journal {path} cannot be opened for writing: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise JournalError(f"journal {path} is being written by another run; wait for it or stop it") from error
        try:
            self._db = _open(path)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back. A failure here (a full disk) loses nothing: the rows are in the write-ahead file."""
        try:
            with _told_of(self.path):
                self._db.close()
        finally:
            self._lock.close()

    def record(self, outcome: Outcome) -> bool:
        """Write an outcome down, durably. True if its key is now settled, False if it shall be tried again."""
        key = outcome.key.text
        with self._transaction() as db:
            _require_same_context(db, f"scene {outcome.key.scene}", outcome.scene_context)
            _require_same_context(db, f"policy {outcome.key.policy}", outcome.policy_context)
            attempt = 1 + _errors_of(db, key)
            if outcome.status == "error":
                db.execute("INSERT INTO errors VALUES (?, ?, ?)", (key, attempt, outcome.traceback))
                if attempt <= RETRIES:
                    return False
            db.execute(f"INSERT INTO results VALUES ({', '.join('?' * 13)})", _values(outcome, attempt))
        return True

    def settled(self) -> set[EpisodeKey]:
        """Keys that have their final row."""
        with _told_of(self.path):
            return {EpisodeKey.parse(text) for (text,) in self._db.execute("SELECT key FROM results")}

    def rows(self) -> list[Row]:
        """All final rows, sorted by key."""
        with _told_of(self.path):
            return _rows(self._db)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _told_of(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


def read_rows(path: Path) -> list[Row]:
    """The final rows of a journal, sorted by key; also while a run is writing it."""
    if not path.is_file():
        raise JournalError(f"journal {path} does not exist")
    with _told_of(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return _rows(db)


def read_errors(path: Path) -> list[tuple[EpisodeKey, int, str]]:
    """Every attempt that ended in an error: key, number of the attempt, traceback."""
    with _told_of(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        found = db.execute("SELECT key, attempt, traceback FROM errors ORDER BY key, attempt").fetchall()
    return [(EpisodeKey.parse(key), attempt, text) for key, attempt, text in found]


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"journal {path}: {error}; rows written before are intact") from error


def _open(path: Path) -> sqlite3.Connection:
    with _told_of(path):
        db = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            elif version != SCHEMA_VERSION:
                raise JournalError(f"journal {path} must be of version {SCHEMA_VERSION}; got {version}")
        except BaseException:
            db.close()
            raise
        return db


def _errors_of(db: sqlite3.Connection, key: str) -> int:
    (count,) = db.execute("SELECT count(*) FROM errors WHERE key = ?", (key,)).fetchone()
    return int(count)


def _require_same_context(db: sqlite3.Connection, scope: str, context: dict[str, str]) -> None:
    """Rows of different simulators, assets, weights or settings never meet in one journal."""
    if not context:  # an episode that failed before its world or policy stood
        return
    known = db.execute("SELECT context FROM contexts WHERE scope = ?", (scope,)).fetchone()
    if known is None:
        db.execute("INSERT INTO contexts VALUES (?, ?)", (scope, _json(context)))
        return
    recorded, context = (with_wording(scope.removeprefix("scene "), c) for c in (json.loads(known[0]), context))
    changes = [f"{name}: journal has {old!r}, this run has {new!r}" for name, old, new in moved(recorded, context)]
    if changes:
        raise JournalError(f"{scope} is not what the journal was begun with: {'; '.join(changes)}; use another folder")


def with_wording(scene: str, context: Mapping[str, str]) -> dict[str, str]:
    """The context of a row or a scene; where a LIBERO world says nothing of its wording, the one it had is added."""
    unmarked = scene.startswith("libero_") and "mujoco" in context and WORDING not in context
    return {**context, WORDING: BDDL} if unmarked else dict(context)


def _values(outcome: Outcome, attempt: int) -> tuple[Any, ...]:
    return (
        outcome.key.text,
        outcome.status,
        attempt,
        outcome.steps,
        outcome.simulated_seconds,
        outcome.wall_seconds,
        _json(outcome.first_action),
        outcome.contacts,
        _json(outcome.final_state),
        _json(outcome.scene_context | outcome.policy_context),
        _json(outcome.hashes),
        outcome.traceback,
        outcome.side_error,
    )


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)


def _vector(text: str | None) -> tuple[float, ...] | None:
    return None if text is None else tuple(json.loads(text))


def _rows(db: sqlite3.Connection) -> list[Row]:
    return sorted(map(_row, db.execute("SELECT * FROM results")), key=lambda row: row.key)


def _row(values: tuple[Any, ...]) -> Row:
    key, status, attempts, steps, simulated, wall, first, contacts, final, versions, hashes, traceback, side = values
    episode = EpisodeKey.parse(key)
    return Row(
        key=episode,
        status=status,
        attempts=attempts,
        steps=steps,
        simulated_seconds=simulated,
        wall_seconds=wall,
        first_action=_vector(first),
        contacts=contacts,
        final_state=_vector(final),
        versions=with_wording(episode.scene, json.loads(versions)),
        hashes=json.loads(hashes),
        traceback=traceback,
        side_error=side,
    )
