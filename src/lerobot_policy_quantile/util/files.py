"""Files that are written in whole or not at all."""

import json
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

TEMPORARY = ".part"
"""Ends the name of a file that is still being written."""


def write_atomically(path: Path, content: bytes) -> None:
    """Give `path` this content, in whole or not at all, even across a power cut."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require_writable(field: str, folder: Path) -> None:
    """Refuse a folder in which no file can be made. Nothing is left behind, and a missing folder is not made."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ValueError(f"{field} must be a folder that can be written; got {folder} ({error})") from None


def write_text(path: Path, text: str) -> None:
    """Give a file this text, in whole or not at all."""
    write_atomically(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """The same for JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")
