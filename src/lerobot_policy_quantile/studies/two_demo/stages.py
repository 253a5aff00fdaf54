"""Stages that are done once: a stamp says what a stage was made from, and the same inputs are not worked on twice."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from lerobot_policy_quantile.evaluation.side_files import write_atomically

_PIECE = 2**24


def write_text(path: Path, text: str) -> None:
    """Give a file this text, in whole or not at all."""
    write_atomically(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """The same for JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def digest(*parts: bytes | str) -> str:
    """Sixteen hexadecimal digits over all parts."""
    return digest_each(parts)


def digest_each(parts: Iterable[bytes | str]) -> str:
    """The same for parts that come one by one."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def digest_files(paths: Iterable[Path]) -> str:
    """The digest of all names and contents, read piece by piece: checkpoints may be larger than memory."""
    total = hashlib.sha256()
    for path in paths:
        name = path.name.encode()
        total.update(len(name).to_bytes(8, "little") + name)
        total.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
    return total.hexdigest()[:16]


class Stamp:
    """`<name>.stamp.json`: what a stage's output was made from. It is written last, so it vouches for whole files."""

    def __init__(self, folder: Path, name: str, inputs: Mapping[str, Any]) -> None:
        self.path = folder / f"{name}.stamp.json"
        self.name, self.inputs = name, json.loads(json.dumps(dict(inputs)))

    def done(self) -> bool:
        """Whether this stage ended before with these inputs; other inputs are refused, naming what differs."""
        if not self.path.is_file():
            return False
        before = json.loads(self.path.read_text())
        moved = [
            f"{name} was {before.get(name)!r}, now {self.inputs.get(name)!r}"
            for name in sorted({*before, *self.inputs})
            if before.get(name) != self.inputs.get(name)
        ]
        if moved:
            raise ValueError(
                f"{self.path.parent} holds the stage {self.name} of another study ({'; '.join(moved)});"
                " use another --out or remove that folder"
            )
        return True

    def write(self) -> None:
        """Vouch for the stage's output."""
        write_json(self.path, self.inputs)


class Narrator:
    """Says what a stage does, and how long it took; quiet when told to be."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, markup=False)

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """A line before and the seconds after."""
        self.say(f"{text} ...")
        began = time.perf_counter()
        yield
        self.say(f"{text}: {time.perf_counter() - began:.0f} s")
