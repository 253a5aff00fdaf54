"""A journal opened to be read only, also where nothing can be written: a read-only mount, an archive, another's folder.

SQLite wants to create files beside a database in write-ahead mode, even to read it. Where it cannot, a journal whose
write-ahead file is gone or empty is whole in itself and read as it is; one that was killed with rows still in that file
is copied first.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads a journal."""
    try:
        db = _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _CANNOT_WRITE:
            raise
        with _without_writing(path) as db:
            yield db
        return
    with closing(db):
        yield db


@contextmanager
def _without_writing(path: Path) -> Iterator[sqlite3.Connection]:
    ahead = path.with_name(f"{path.name}-wal")
    if not ahead.is_file() or not ahead.stat().st_size:
        with closing(_connect(path, "immutable=1")) as db:
            yield db
        return
    with TemporaryDirectory(prefix="qhead-journal-") as folder:
        copy = Path(folder) / path.name
        for source in (path, ahead):
            shutil.copyfile(source, copy.with_name(source.name))
        with closing(_connect(copy, "mode=rw")) as db:
            yield db


def _connect(path: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
    try:
        db.execute("PRAGMA schema_version")  # the first look at the file
    except BaseException:
        db.close()
        raise
    return db
