"""What a study cost: demonstrations, updates, episodes and resets, from data card, training logs and journals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.studies.plan_training import UpdateTimes, read_times
from lerobot_policy_quantile.studies.plans.commands import StudyCommand
from lerobot_policy_quantile.util.tables import markdown

CARD = "card.json"
"""The data card that `qhead collect --suite` writes beside its dataset."""
HOUR = 3600.0


@dataclass(frozen=True)
class EpisodeTimes:
    """Episodes of one policy in one scene, in seconds of one process."""

    episodes: int
    seconds: float
    """Mean, from reset to end."""


@dataclass(frozen=True)
class StudyCosts:
    """Parts that ran on several days or machines add up."""

    demonstrations: int = 0
    demonstration_seconds: float | None = None
    """Per demonstration, failed attempts included."""
    trainings: Mapping[str, UpdateTimes] = field(default_factory=dict)
    """Name in the study -> times of its updates."""
    episodes: Mapping[str, Mapping[str, EpisodeTimes]] = field(default_factory=dict)
    """Policy -> scene -> times."""
    resets: Mapping[str, float] = field(default_factory=dict)
    """Scene -> seconds before the first step."""

    def __add__(self, other: "StudyCosts") -> "StudyCosts":
        """Both parts; where both know a training or a policy, the second counts."""
        known = other if other.demonstrations else self
        return StudyCosts(
            known.demonstrations,
            known.demonstration_seconds,
            {**self.trainings, **other.trainings},
            {**self.episodes, **other.episodes},
            {**self.resets, **other.resets},
        )

    def hours(self) -> tuple[float, float, float]:
        """Of demonstrations, trainings and episodes, each on one core's share of the machine."""
        made = self.demonstrations * (self.demonstration_seconds or 0.0)
        trained = sum(each.seconds for each in self.trainings.values())
        run = sum(t.episodes * t.seconds for scenes in self.episodes.values() for t in scenes.values())
        return made / HOUR, trained / HOUR, run / HOUR


def costs_of(steps: Sequence[StudyCommand], rows: Sequence[Row], dataset: str | None) -> StudyCosts:
    """What the folders and rows of a study's steps tell."""
    trained = {
        label: times
        for step in steps
        if step.kind == "train" and (times := read_times(Path(step.folder))) is not None
        for label, _ in step.labels
    }
    count, seconds = _demonstrations(dataset)
    return StudyCosts(count, seconds, trained, _episodes(rows), _resets(rows))


def _demonstrations(dataset: str | None) -> tuple[int, float | None]:
    path = None if dataset is None else Path(dataset).parent / CARD
    if path is None or not path.is_file():
        return 0, None
    tasks = json.loads(path.read_text(encoding="utf-8"))["tasks"]
    count = sum(task["demonstrations"] for task in tasks)
    total = sum(task["demonstrations"] * task["seconds_per_demonstration"] for task in tasks)
    return count, round(total / count, 2) if count else None


def _episodes(rows: Sequence[Row]) -> dict[str, dict[str, EpisodeTimes]]:
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.status != "error":
            groups.setdefault((row.key.policy, row.key.scene), []).append(row.wall_seconds)
    found: dict[str, dict[str, EpisodeTimes]] = {}
    for (policy, scene), seconds in sorted(groups.items()):
        found.setdefault(policy, {})[scene] = EpisodeTimes(len(seconds), round(fmean(seconds), 3))
    return found


def _resets(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds before the first step: a line of seconds over steps, where episodes differ in length."""
    found = {}
    for scene in sorted({row.key.scene for row in rows}):
        mine = [(row.steps, row.wall_seconds) for row in rows if row.key.scene == scene and row.status != "error"]
        if len(mine) > 2 and len({steps for steps, _ in mine}) > 1:
            steps, seconds = (fmean(values) for values in zip(*mine, strict=True))
            slope = sum((x - steps) * (y - seconds) for x, y in mine) / sum((x - steps) ** 2 for x, _ in mine)
            found[scene] = round(max(0.0, seconds - slope * steps), 3)
    return found


def as_record(costs: StudyCosts) -> dict[str, Any]:
    """For the study's file."""
    return asdict(costs)


def from_record(record: Mapping[str, Any]) -> StudyCosts:
    """What `as_record` wrote; nothing for a file without costs."""
    trainings = {name: UpdateTimes(**each) for name, each in record.get("trainings", {}).items()}
    episodes = {
        policy: {scene: EpisodeTimes(**each) for scene, each in scenes.items()}
        for policy, scenes in record.get("episodes", {}).items()
    }
    plain = {name: record[name] for name in ("demonstrations", "demonstration_seconds", "resets") if name in record}
    return StudyCosts(trainings=trainings, episodes=episodes, **plain)


def costs_table(costs: StudyCosts) -> str:
    """One line per kind of work; empty without any."""
    made, trained, run = costs.hours()
    rows = []
    if costs.demonstration_seconds is not None:
        each = f"{costs.demonstration_seconds:.1f} s"
        rows.append(("demonstrations", str(costs.demonstrations), each, f"{made:.1f}"))
    if costs.trainings:
        updates = sum(times.updates for times in costs.trainings.values())
        rows.append(("updates", f"{updates:,}", f"{1000 * HOUR * trained / updates:.0f} ms", f"{trained:.1f}"))
    for scene in sorted({scene for scenes in costs.episodes.values() for scene in scenes}):
        mine = [scenes[scene] for scenes in costs.episodes.values() if scene in scenes]
        count = sum(times.episodes for times in mine)
        seconds = sum(times.episodes * times.seconds for times in mine)
        reset = f", {costs.resets[scene]:.1f} s before the first step" if scene in costs.resets else ""
        rows.append((f"episodes, {scene}", f"{count:,}", f"{seconds / count:.1f} s{reset}", f"{seconds / HOUR:.1f}"))
    if not rows:
        return ""
    rows.append(("in all", "", "", f"{made + trained + run:.1f}"))
    return markdown(("work", "number", "each", "hours"), rows)
