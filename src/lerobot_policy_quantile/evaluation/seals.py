"""Seals: a checksum of every row of a journal, so that damage is noticed and what is whole is known.

A row and its seal are written in one transaction and live in different tables. A row that changed does not match its
seal, a row that is gone leaves its seal behind, and a seal that is gone leaves a row without one. Rows of journals from
before there were seals carry none; how many they were is kept (and sealed) when such a journal is first written again.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lerobot_policy_quantile.util.digests import plain_digest

SEALED = ("results", "errors", "contexts", "side_files", "earlier")
"""Tables whose rows are sealed."""

SEALS_SCHEMA = """
CREATE TABLE seals (
    number INTEGER PRIMARY KEY,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL
) STRICT;
CREATE TABLE earlier (place TEXT PRIMARY KEY, unsealed INTEGER NOT NULL) STRICT;
"""

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the latter where SQLite's own message quotes damaged text."""

_LEAST_ROW_BYTES = 32
"""A row takes more: no table has more rows than its file has room for."""

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Inspection:
    """What a journal holds and what of it is whole."""

    rows: Mapping[str, Sequence[Values]]
    """Table -> rows that match their seals, then rows that never had one."""
    unsealed: Mapping[str, int]
    """Table -> rows that never had a seal: whether they changed cannot be told."""
    altered: Sequence[str]
    """Rows that do not match their seals."""
    lost: Sequence[str]
    """Rows of which only the seal is left."""
    faults: Sequence[str]
    """What else is wrong with the file."""

    @property
    def sound(self) -> bool:
        """Nothing is known to be wrong."""
        return not (self.altered or self.lost or self.faults)

    def report(self) -> str:
        """What is damaged and what is whole, in one sentence."""
        faults = list(dict.fromkeys(self.faults))
        parts = faults[:2] + ([f"{len(faults) - 2} more faults"] if len(faults) > 2 else [])
        parts += [_listed(names, what) for names, what in ((self.altered, "altered"), (self.lost, "lost")) if names]
        return "; ".join([*parts, self.whole()])

    def whole(self) -> str:
        """How many results match their checksums and how many carry none."""
        without = self.unsealed.get("results", 0)
        counts = [(len(self.rows["results"]) - without, "results match their checksums"), (without, "carry none")]
        return " and ".join(f"{count} {what}" for count, what in counts if count or what != "carry none")


def insert(db: sqlite3.Connection, place: str, values: Values) -> None:
    """Insert a row without a seal."""
    db.execute(f"INSERT INTO {place} VALUES ({', '.join('?' * len(values))})", values)


def insert_sealed(db: sqlite3.Connection, place: str, values: Values) -> None:
    """Insert a row together with its seal, in one transaction of the caller's."""
    insert(db, place, values)
    line = (place, _name(place, values), _digest(place, values))
    db.execute("INSERT INTO seals (place, name, digest) VALUES (?, ?, ?)", line)


def note_earlier(db: sqlite3.Connection) -> None:
    """Remember how many rows of a journal without seals there are."""
    for place in ("results", "errors", "contexts"):
        (count,) = db.execute(f"SELECT count(*) FROM {place}").fetchone()
        insert_sealed(db, "earlier", (place, count))


def take_rows(db: sqlite3.Connection, found: Inspection) -> None:
    """Insert the rows of another journal; what was not sealed there is not sealed here.

    Side files are left out where their result is: it will be run again and bring its own.
    """
    settled = {key for key, *_ in found.rows["results"]}
    copied = [place for place in SEALED if place != "earlier"]
    sealed = {place: len(found.rows[place]) - found.unsealed.get(place, 0) for place in copied}
    for place in copied:
        for row in found.rows[place][sealed[place] :]:
            insert(db, place, row)
    if any(found.unsealed.values()):
        note_earlier(db)
    for place in copied:
        for row in found.rows[place][: sealed[place]]:
            if place != "side_files" or row[0] in settled:
                insert_sealed(db, place, row)


def inspect(db: sqlite3.Connection) -> Inspection:
    """Read everything, at one moment, and hold it against the seals."""
    db.text_factory = _text
    db.execute("BEGIN")
    try:
        return _inspect(db)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _inspect(db: sqlite3.Connection) -> Inspection:
    faults = _structure(db)
    tables = _tables(db, faults)
    sealed = "seals" in tables
    faults += [f"table {place} is gone" for place in SEALED[: None if sealed else 3] if place not in tables]
    found = {place: _scan(db, place, faults) if place in tables else [] for place in SEALED}
    if not sealed:
        return Inspection(found, {place: len(rows) for place, rows in found.items()}, (), (), faults)
    seals = _scan(db, "seals", faults)
    if sorted(number for number, *_ in seals) != list(range(1, len(seals) + 1)):
        faults.append("checksums are missing or stand twice")
    return _compare(found, seals, faults)


def _compare(found: Mapping[str, Sequence[Values]], seals: Sequence[Values], faults: list[str]) -> Inspection:
    whole: dict[str, list[Values]] = {}
    strangers: dict[str, list[Values]] = {}
    open_seals = {(place, digest): name for _, place, name, digest in seals}
    for place, rows in found.items():
        whole[place], strangers[place] = [], []
        for row in dict.fromkeys(rows):  # a page that stands in for another shows its rows twice
            matched = open_seals.pop((place, _digest(place, row)), None) is not None
            (whole if matched else strangers)[place].append(row)
    lost = Counter((place, name) for (place, _), name in open_seals.items())
    altered: list[str] = []
    unsealed: dict[str, int] = {}
    earlier: dict[str, int] = dict(whole["earlier"])
    for place, rows in strangers.items():
        broken = [row for row in rows if lost[place, _name(place, row)]]
        rest = [row for row in rows if row not in broken]
        for row in broken:
            lost[place, _name(place, row)] -= 1
        if len(rest) > earlier.get(place, 0):  # which of them had a seal cannot be told
            broken += rest
        elif len(rest) < earlier.get(place, 0):
            faults.append(f"{earlier[place] - len(rest)} of {earlier[place]} earlier {place} are gone")
        altered += [f"{place} {_name(place, row)}" for row in broken]
        kept = [row for row in rest if row not in broken]
        unsealed[place] = len(kept)
        whole[place] += kept
    return Inspection(whole, unsealed, altered, [f"{place} {name}" for place, name in lost.elements()], faults)


def _structure(db: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong: pages, indexes, types and constraints."""
    try:
        lines = [str(line) for (line,) in db.execute("PRAGMA integrity_check")]
    except UNREADABLE as error:
        return [str(error)]
    return [line for text in lines for line in text.splitlines() if line not in ("ok", "") and "***" not in line]


def _tables(db: sqlite3.Connection, faults: list[str]) -> set[str]:
    try:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except UNREADABLE as error:
        faults.append(str(error))
        return set()


def _scan(db: sqlite3.Connection, place: str, faults: list[str]) -> list[Values]:
    """All rows of a table; where pages cannot be read, those of the other pages."""
    rows: list[Values] = []
    try:
        rows.extend(db.execute(f"SELECT * FROM {place}"))
    except UNREADABLE as error:
        faults.append(f"{place}: {error}")
        return list(_one_by_one(db, place))
    return rows


def _one_by_one(db: sqlite3.Connection, place: str) -> Iterator[Values]:
    for number in range(1, _last(db, place) + 1):
        try:
            yield from db.execute(f"SELECT * FROM {place} WHERE rowid = ?", (number,)).fetchall()
        except UNREADABLE:
            continue


def _last(db: sqlite3.Connection, place: str) -> int:
    """No row of a table has a larger number; it may be too large where the table's end cannot be read."""
    try:
        pages, size = (int(db.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "page_size"))
    except UNREADABLE:
        return 0
    room = pages * size // _LEAST_ROW_BYTES
    try:
        (last,) = db.execute(f"SELECT max(rowid) FROM {place}").fetchone()
    except UNREADABLE:
        return room
    return min(last or 0, room)


def _digest(place: str, values: Values) -> str:
    return plain_digest(json.dumps([place, *values], default=repr))


def _name(place: str, values: Values) -> str:
    return f"{values[0]} attempt {values[1]}" if place == "errors" else str(values[0])


def _text(raw: bytes) -> str:
    """Text that is not UTF-8 any more is read as it is: its seal tells."""
    return raw.decode(errors="surrogateescape")


def _listed(names: Sequence[str], what: str) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{what}: {shown}"
