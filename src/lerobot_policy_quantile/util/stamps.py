"""Stages that are done once: a stamp says what a stage was made from, and the same inputs are not worked on twice."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.util.files import write_json


def moved(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, old and new value of everything that is not the same, by name; None where a side lacks it."""
    pairs = ((name, before.get(name), now.get(name)) for name in sorted({*before, *now}))
    return [(name, old, new) for name, old, new in pairs if old != new]


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
        changes = [f"{name} was {old!r}, now {new!r}" for name, old, new in moved(before, self.inputs)]
        if changes:
            raise ValueError(
                f"{self.path.parent} holds the stage {self.name} of another study ({'; '.join(changes)});"
                " use another --out or remove that folder"
            )
        return True

    def write(self) -> None:
        """Vouch for the stage's output."""
        write_json(self.path, self.inputs)
