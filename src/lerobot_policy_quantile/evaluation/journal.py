"""The journal: one final row per episode key, on disk before the next episode starts.

SQLite in write-ahead mode with full synchronisation: a row is there in whole or not at all, whatever is killed or
runs full in between, and it can be read while a run writes. The schema itself refuses a second final row for a key,
a change and a deletion. Errors are kept attempt by attempt; only the last allowed one becomes a final row. Every row is
sealed with a checksum (`seals.py`) that is verified when it is read: a damaged journal is neither read nor written.
"""

import json
import logging
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lerobot_policy_quantile.evaluation.contexts import changes, policy_scope, scene_scope, with_wording
from lerobot_policy_quantile.evaluation.outcome import STATUSES, Outcome, Status
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.reading import open_to_read
from lerobot_policy_quantile.evaluation.seals import (
    SEALED,
    SEALS_SCHEMA,
    UNREADABLE,
    Inspection,
    Values,
    insert_sealed,
    inspect,
    note_earlier,
    take_rows,
)
from lerobot_policy_quantile.util.locks import acquire

RETRIES = 3
"""How often an episode that ended in an error is run again."""

SCHEMA_VERSION = 2
"""1 had no seals and did not say which side files a row has."""

_BEFORE_SEALS = 1
_RESULTS = f"""
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
"""
_WITH_SEALS = f"""
CREATE TABLE side_files (key TEXT PRIMARY KEY, files TEXT NOT NULL) STRICT;
{SEALS_SCHEMA}
{
    "".join(
        f"CREATE TRIGGER IF NOT EXISTS {table}_keep_{event.lower()} BEFORE {event} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;\n"
        for table in (*SEALED, "seals")
        for event in ("UPDATE", "DELETE")
    )
}
PRAGMA user_version = {SCHEMA_VERSION};
"""
_INTACT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)
"""Errors of a write that leave what was committed before as it was."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_said: set[Path] = set()
"""Journals of which it was said that they have rows without checksums."""


class JournalError(RuntimeError):
    """The journal cannot be written or read. Nothing was done to it."""


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
    side_files: dict[str, str] = field(default_factory=dict)
    """Suffix -> digest of the content; empty where none were wanted or a journal of version 1 does not say."""


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
            acquire(self._lock)
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
            _require_same_context(db, scene_scope(outcome.key.scene), outcome.scene_context)
            _require_same_context(db, policy_scope(outcome.key.policy), outcome.policy_context)
            attempt = 1 + _errors_of(db, key)
            if outcome.status == "error":
                insert_sealed(db, "errors", (key, attempt, outcome.traceback))
                if attempt <= RETRIES:
                    return False
            insert_sealed(db, "results", _values(outcome, attempt))
            if outcome.side_files:
                insert_sealed(db, "side_files", (key, _json(outcome.side_files)))
        return True

    def take_over(self, found: Inspection) -> None:
        """Write down the whole rows of another journal in one transaction; those without a checksum stay without."""
        with self._transaction() as db:
            take_rows(db, found)

    def settled(self) -> set[EpisodeKey]:
        """Keys that have their final row."""
        with _told_of(self.path):
            return {EpisodeKey.parse(text) for (text,) in self._db.execute("SELECT key FROM results")}

    def contexts(self) -> dict[str, dict[str, str]]:
        """Scope -> what its rows were made with."""
        with _told_of(self.path):
            return {scope: json.loads(text) for scope, text in self._db.execute("SELECT * FROM contexts")}

    def rows(self) -> list[Row]:
        """All final rows, sorted by key."""
        with _told_of(self.path):
            return _rows(self.path, inspect(self._db))

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
    """The final rows of a journal, sorted by key; also while a run is writing it, and where nothing can be written."""
    return _rows(path, inspect_journal(path))


def read_what_is_whole(path: Path) -> tuple[list[Row], list[str]]:
    """The final rows that can be read, sorted by key, and in words what cannot; raises for no damage."""
    try:
        found = inspect_journal(path)
        files: dict[str, str] = dict(found.rows["side_files"])
    except Exception as error:  # a journal that a stranger made may hold anything in any schema
        return [], [str(error) if isinstance(error, JournalError) else f"journal {path} cannot be read: {error}"]
    rows, problems = [], [] if found.sound else [f"journal {path.name} is damaged: {found.report()}"]
    for values in found.rows["results"]:
        try:
            rows.append(_plain(_row(values, json.loads(files.get(values[0], "{}")))))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"row {str(values[0])[:80]!r} cannot be read: {error}")
    return sorted(rows, key=lambda row: row.key), problems


def _plain(row: Row) -> Row:
    """Refuse a row that the schema would have refused."""
    counts = {"attempts": row.attempts, "steps": row.steps, "contacts": row.contacts}
    for field_name, value in counts.items():
        if type(value) is not int or not 0 <= value < 2**53:
            raise ValueError(f"{field_name} must be a count; got {value!r}")
    if row.status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}; got {row.status!r}")
    if not isinstance(row.simulated_seconds, float) or not math.isfinite(row.simulated_seconds):
        raise ValueError(f"simulated_seconds must be a finite number; got {row.simulated_seconds!r}")
    texts = (row.traceback, row.side_error, *row.side_files, *row.side_files.values())
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError("traceback, side_error and side_files must be texts")
    return row


def read_errors(path: Path) -> list[tuple[EpisodeKey, int, str]]:
    """Every attempt that ended in an error: key, number of the attempt, traceback."""
    found = sorted(_require_sound(path, inspect_journal(path)).rows["errors"])
    return [(EpisodeKey.parse(key), attempt, text) for key, attempt, text in found]


def inspect_journal(path: Path) -> Inspection:
    """Everything that a journal holds and what of it is whole; damage is reported, not raised."""
    if not path.is_file():
        raise JournalError(f"journal {path} does not exist")
    if not path.stat().st_size:
        raise JournalError(f"journal {path} is empty: no row was ever written, or all were lost")
    with _told_of(path), open_to_read(path) as db:
        return inspect(db)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        known = "; rows written before are intact" if code in _INTACT else ""
        if code in _DAMAGED:
            known = f"; it is damaged: `qhead doctor {path.parent}` lists what is whole"
        raise JournalError(f"journal {path}: {error}{known}") from error


def _open(path: Path) -> sqlite3.Connection:
    with _told_of(path):
        db = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            _prepare(path, db)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(path: Path, db: sqlite3.Connection) -> None:
    """A new journal gets its tables, one of version 1 those it lacks, and a damaged one is refused."""
    (version,) = db.execute("PRAGMA user_version").fetchone() or (None,)
    if version not in (0, _BEFORE_SEALS, SCHEMA_VERSION):
        raise JournalError(f"journal {path} must be of version {SCHEMA_VERSION}; got {version}")
    if version:
        _say_what_is_unsealed(path, _require_sound(path, inspect(db)))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if version == 0:
        db.executescript(f"BEGIN IMMEDIATE; {_RESULTS} {_WITH_SEALS} COMMIT;")
    elif version == _BEFORE_SEALS:
        db.executescript(f"BEGIN IMMEDIATE; {_WITH_SEALS}")
        note_earlier(db)
        db.execute("COMMIT")


def _require_sound(path: Path, found: Inspection) -> Inspection:
    if not found.sound:
        raise JournalError(f"journal {path} is damaged: {found.report()} (`qhead doctor {path.parent}` lists them)")
    return found


def _say_what_is_unsealed(path: Path, found: Inspection) -> None:
    count = found.unsealed.get("results", 0)
    if count and path.absolute() not in _said:
        _said.add(path.absolute())
        logging.getLogger(__name__).warning(
            "journal %s: %d results were written before rows had checksums and carry none", path, count
        )


def _errors_of(db: sqlite3.Connection, key: str) -> int:
    (count,) = db.execute("SELECT count(*) FROM errors WHERE key = ?", (key,)).fetchone()
    return int(count)


def _require_same_context(db: sqlite3.Connection, scope: str, context: dict[str, str]) -> None:
    """Rows of different simulators, assets, weights or settings never meet in one journal."""
    if not context:  # an episode that failed before its world or policy stood
        return
    known = db.execute("SELECT context FROM contexts WHERE scope = ?", (scope,)).fetchone()
    if known is None:
        insert_sealed(db, "contexts", (scope, _json(context)))
    else:
        require_same(scope, json.loads(known[0]), context)


def require_same(scope: str, recorded: dict[str, str], context: dict[str, str]) -> None:
    """Refuse what is not as the journal's rows of the same scope were made, naming both values."""
    if found := changes(scope, recorded, context):
        raise JournalError(
            f"{scope} is not what the journal was begun with: {'; '.join(found)}; use another folder"
            " (`qhead table` prints what this one holds)"
        )


def _values(outcome: Outcome, attempt: int) -> Values:
    return (
        outcome.key.text,
        outcome.status,
        attempt,
        outcome.steps,
        float(outcome.simulated_seconds),
        float(outcome.wall_seconds),
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


def _rows(path: Path, found: Inspection) -> list[Row]:
    _say_what_is_unsealed(path, _require_sound(path, found))
    files = {key: json.loads(text) for key, text in found.rows["side_files"]}
    try:
        rows = [_row(values, files.get(values[0], {})) for values in found.rows["results"]]
    except (ValueError, TypeError, AttributeError) as error:  # of rows without checksums
        raise JournalError(f"journal {path} is damaged: a row without a checksum cannot be read: {error}") from error
    return sorted(rows, key=lambda row: row.key)


def _row(values: Values, side_files: dict[str, str]) -> Row:
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
        side_files=side_files,
    )
