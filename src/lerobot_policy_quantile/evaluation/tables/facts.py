"""`benchmark.json` beside a journal: what its rows alone do not say about the benchmark they belong to.

How large the whole benchmark is, which category a task belongs to, and what could not be run and why. `qhead eval
--suite` writes it, `qhead table` reads it: a folder that was copied elsewhere still gives the same table.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lerobot_policy_quantile.util.files import write_atomically

FILE = "benchmark.json"
_FORMAT = 1


@dataclass(frozen=True)
class Facts:
    """Of one or several benchmarks; scenes are named as in episode keys."""

    population: Mapping[str, int] = field(default_factory=dict)
    """Scene -> episodes of the whole benchmark, unavailable ones included."""
    categories: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Scene -> task -> category, where a benchmark has them."""
    unavailable: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Scene -> task -> why it cannot be run here."""

    def __add__(self, other: "Facts") -> "Facts":
        """What either says; the second wins where both speak of a scene."""
        return Facts(
            {**self.population, **other.population},
            {**self.categories, **other.categories},
            {**self.unavailable, **other.unavailable},
        )

    def reasons(self, scenes: Iterable[str]) -> dict[str, int]:
        """Reason -> how many tasks of these scenes cannot be run for it, most frequent first."""
        counts: dict[str, int] = {}
        for scene in scenes:
            for reason in self.unavailable.get(scene, {}).values():
                counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def write(self, folder: Path) -> None:
        """Put it beside the journal; what an earlier run wrote about other scenes stays."""
        both = read_facts(folder) + self
        record = {
            "format": _FORMAT,
            "population": dict(both.population),
            "categories": {scene: _grouped(tasks) for scene, tasks in both.categories.items()},
            "unavailable": {scene: _grouped(tasks) for scene, tasks in both.unavailable.items()},
        }
        write_atomically(folder / FILE, (json.dumps(record, sort_keys=True) + "\n").encode())


def read_facts(folder: Path) -> Facts:
    """What is written beside a journal; nothing if the run was not one of a benchmark."""
    path = folder / FILE
    if not path.is_file():
        return Facts()
    record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("format") != _FORMAT:
        raise ValueError(f"format of {path} must be {_FORMAT}; got {record.get('format')!r}")
    categories, unavailable = (
        {scene: {task: name for name, tasks in groups.items() for task in tasks} for scene, groups in table.items()}
        for table in (record["categories"], record["unavailable"])
    )
    return Facts(record["population"], categories, unavailable)


def _grouped(tasks: Mapping[int, str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for task, name in sorted(tasks.items()):
        groups.setdefault(name, []).append(task)
    return groups
