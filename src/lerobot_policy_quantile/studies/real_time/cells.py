"""Cells of the study: the episodes of one policy, decoder, handover and delay in one scene, and their file.

The file holds what the page needs of every episode. Cells that ran on another day or machine are read from it and not
run again, as long as their policy and their episodes are the same.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.motion import MEASURES, EpisodeMotion, motion_of
from lerobot_policy_quantile.util.files import write_text

DIGITS = 5
"""Significant digits of what is kept."""

Start = tuple[int, int, int]
"""Task, index, seed."""


@dataclass(frozen=True, order=True)
class CellName:
    """What the episodes of a cell have in common."""

    policy: str
    decoder: str
    handover: str
    delay: int

    @property
    def arm(self) -> str:
        """The policy's name in journals."""
        return f"{self.policy}/{self.handover}-{self.delay}"


@dataclass(frozen=True)
class Cell:
    """The episodes of one cell."""

    name: CellName
    weights: str
    """Digest of the policy."""
    starts: tuple[Start, ...]
    successes: tuple[bool, ...]
    motions: tuple[EpisodeMotion, ...]
    fade: str = ""
    """Weights of rank handover, as journals have them; empty for other handovers."""

    def values(self, measure: str) -> list[float]:
        """One number per episode."""
        return [MEASURES[measure](motion) for motion in self.motions]

    def won(self) -> dict[Start, bool]:
        """Start -> whether the episode succeeded."""
        return dict(zip(self.starts, self.successes, strict=True))


def cells_of(rows: Iterable[Row], files: SideFiles) -> list[Cell]:
    """The cells of finished episodes, in the order of their names."""
    groups: dict[tuple[CellName, str, str], list[tuple[Start, bool, EpisodeMotion]]] = {}
    for row in rows:
        if (motion := motion_of(row, files)) is not None:
            versions = row.versions
            policy = row.key.policy.rpartition("/")[0]
            name = CellName(policy, row.key.decoder, versions["handover"], int(versions["delay"]))
            start = (row.key.task, row.key.index, row.key.seed)
            kind = name, versions["policy"], versions.get("fade", "")
            groups.setdefault(kind, []).append((start, row.status == "success", motion))
    found = []
    for (name, weights, fade), members in sorted(groups.items()):
        starts, successes, motions = zip(*sorted(members, key=lambda member: member[0]), strict=True)
        found.append(Cell(name, weights, starts, successes, motions, fade))
    return found


class CellFile:
    """The cells of one scene as JSON, an episode a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Cell]:
        """What has been kept; nothing without a file."""
        if not self.path.is_file():
            return []
        return [_cell(record) for record in json.loads(self.path.read_text(encoding="utf-8"))["cells"]]

    def have(self, name: CellName, weights: str, fade: str, starts: Sequence[Start]) -> bool:
        """Whether a cell's episodes are there, of this policy and under this fade."""
        wanted = (name, weights, fade, tuple(sorted(starts)))
        return any((cell.name, cell.weights, cell.fade, cell.starts) == wanted for cell in self.read())

    def add(self, cells: Iterable[Cell]) -> None:
        """Keep cells, in place of earlier ones of their names."""
        known = {cell.name: cell for cell in [*self.read(), *cells]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, _text([known[name] for name in sorted(known)]))


def _text(cells: Sequence[Cell]) -> str:
    columns = ["task", "index", "seed", "success", *(field.name for field in fields(EpisodeMotion))]
    blocks = []
    for cell in cells:
        fade = {"fade": cell.fade} if cell.fade else {}
        head = json.dumps({**_named(cell.name), "weights": cell.weights, **fade})[:-1]
        episodes = zip(cell.starts, cell.successes, cell.motions, strict=True)
        lines = (json.dumps([*s, int(won), *map(_short, astuple(motion))]) for s, won, motion in episodes)
        blocks.append(f'{head}, "episodes": [\n' + ",\n".join(lines) + "\n]}")
    return f'{{"columns": {json.dumps(columns)}, "cells": [\n' + ",\n".join(blocks) + "\n]}\n"


def _named(name: CellName) -> dict[str, Any]:
    return {field.name: getattr(name, field.name) for field in fields(CellName)}


def _cell(record: dict[str, Any]) -> Cell:
    episodes = record["episodes"]
    motions = (EpisodeMotion(*(math.nan if value is None else value for value in row[4:])) for row in episodes)
    return Cell(
        CellName(*(record[field.name] for field in fields(CellName))),
        record["weights"],
        tuple((row[0], row[1], row[2]) for row in episodes),
        tuple(bool(row[3]) for row in episodes),
        tuple(motions),
        record.get("fade", ""),
    )


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
