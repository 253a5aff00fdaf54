"""The outcomes of a study in one small file, which a repository can keep: one letter per episode.

Parts of a study (other seeds, days or machines) meet in the file; parts of other settings or simulators are refused.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.outcome import Status
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.aggregate import benchmark_of
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL, read_folders
from lerobot_policy_quantile.studies.miniature.claims import SPREAD, Claim, Paired, found_in
from lerobot_policy_quantile.studies.miniature.costs import StudyCosts, as_record, costs_of, from_record
from lerobot_policy_quantile.studies.miniature.spread import Spreads, compared_spread, spreads_in
from lerobot_policy_quantile.studies.plan_rows import study_rows
from lerobot_policy_quantile.studies.plan_training import Gradients, read_gradients
from lerobot_policy_quantile.studies.plans import StudyPlan
from lerobot_policy_quantile.studies.plans.commands import StudyCommand
from lerobot_policy_quantile.studies.plans.size import Size
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.stamps import moved

FORMAT = 1
LETTERS: dict[str, Status] = {"S": "success", "f": "failure", "e": "error"}
NONE = "-"
"""An episode that this policy has not run."""
WEIGHTS = "policy"
"""In the versions of a row: digest of its policy."""
_OF_ONE_POLICY = (WEIGHTS, "limit")


@dataclass(frozen=True)
class Summary:
    """A study's outcomes and what they were made with."""

    study: str
    size: str
    settings: Mapping[str, Any]
    versions: Mapping[str, Mapping[str, str]]
    """Benchmark -> what its rows were made with."""
    categories: Mapping[str, Mapping[int, str]]
    """Of LIBERO-Plus: scene -> task -> category."""
    gradients: Mapping[str, Gradients]
    """Training -> its gradient norms."""
    rows: tuple[Row, ...]
    spreads: Spreads = field(default_factory=dict)
    """Of studies that record predictions."""
    costs: StudyCosts = StudyCosts()

    @property
    def facts(self) -> Facts:
        """What a table needs besides the rows."""
        return Facts(categories=self.categories)


def keep_summary(
    study: StudyPlan, steps: Sequence[StudyCommand], size: Size, folder: Path, dataset: str | None = None
) -> Summary | None:
    """Add what the study's folders hold to its file, which is written anew; None if no episode has ever been run.

    `dataset`: the folder that was trained on, for what its demonstrations cost.
    """
    rows, facts = study_rows(steps)
    path = path_of(folder, study)
    if not rows:
        return read_summary(path) if path.is_file() else None
    trained = {
        label: read_gradients(Path(step.folder)) for step in steps if step.kind == "train" for label, _ in step.labels
    }
    run = {row.key.scene: {other.key.task for other in rows if other.key.scene == row.key.scene} for row in rows}
    fresh = Summary(
        study=study.name,
        size=size.name,
        settings=json.loads(json.dumps(size.record(study))),
        versions=_versions(rows),
        categories={
            scene: {task: name for task, name in tasks.items() if task in run[scene]}
            for scene, tasks in facts.categories.items()
            if scene in run
        },
        gradients={name: found for name, found in trained.items() if found is not None},
        rows=tuple(rows),
        spreads=_spreads(steps),
        costs=costs_of(steps, rows, dataset),
    )
    whole = joined(read_summary(path), fresh, path) if path.is_file() else fresh
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, _text(whole))
    return read_summary(path)


def path_of(folder: Path, study: StudyPlan) -> Path:
    """Where a study's file is."""
    return folder / f"{study.name}.json"


def joined(before: Summary, fresh: Summary, path: Path) -> Summary:
    """Both parts of one study; where both have an episode, the fresh one counts.

    A policy that was trained again, on another machine say, has other weights: of a benchmark where both parts have it,
    only the fresh episodes stay.
    """
    shared = before.versions.keys() & fresh.versions.keys()
    require_same(before.settings, fresh.settings, path)
    for name in sorted(shared):
        require_same(before.versions[name], fresh.versions[name], path)
    weights = {_policy_in_benchmark(row): row.versions.get(WEIGHTS) for row in fresh.rows}
    old = [
        row for row in before.rows if weights.get(_policy_in_benchmark(row), own := row.versions.get(WEIGHTS)) == own
    ]
    rows = {row.key: row for row in (*old, *fresh.rows)}
    return Summary(
        fresh.study,
        fresh.size,
        fresh.settings,
        {**before.versions, **fresh.versions},
        {name: {**before.categories.get(name, {}), **fresh.categories.get(name, {})}
         for name in {**before.categories, **fresh.categories}},
        {**before.gradients, **fresh.gradients},
        tuple(rows.values()),
        {**before.spreads, **fresh.spreads},
        before.costs + fresh.costs,
    )  # fmt: skip


def require_same(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuse to add to a file what was made with other settings or versions."""
    now = json.loads(json.dumps(now))
    if changes := moved(before, now):
        told = "; ".join(f"{name} was {old!r}, now {new!r}" for name, old, new in changes)
        raise ValueError(f"{path} holds outcomes that were made otherwise ({told}); remove it or use another folder")


def _weights(row: Row) -> str:
    return row.versions.get(WEIGHTS, "")


def _policy_in_benchmark(row: Row) -> tuple[str, str]:
    return benchmark_of(row.key.scene) or row.key.scene, row.key.policy


def read_summary(path: Path) -> Summary:
    """A study's file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(f"format of {path} must be {FORMAT}; got {content.get('format')!r}")
    return Summary(
        content["study"],
        content["size"],
        content["settings"],
        content["versions"],
        {scene: {int(task): name for task, name in tasks.items()} for scene, tasks in content["categories"].items()},
        {name: Gradients(**found) for name, found in content["gradients"].items()},
        tuple(_rows(content["scenes"])),
        {name: [(one, other) for one, other in pairs] for name, pairs in content.get("spreads", {}).items()},
        from_record(content.get("costs", {})),
    )


def _text(summary: Summary) -> str:
    record = {
        "format": FORMAT,
        **{name: getattr(summary, name) for name in ("study", "size", "settings", "versions", "categories")},
        "gradients": {name: asdict(found) for name, found in sorted(summary.gradients.items())},
        "spreads": summary.spreads,
        "costs": as_record(summary.costs),
        "scenes": _scenes(summary.rows),
    }
    return json.dumps({name: value for name, value in record.items() if value or name != "spreads"}, indent=1) + "\n"


def _spreads(steps: Sequence[StudyCommand]) -> dict[str, list[tuple[float, float]]]:
    """Of evaluations that recorded predictions."""
    found: dict[str, list[tuple[float, float]]] = {}
    for step in steps:
        if step.recorded and (Path(step.folder) / JOURNAL).is_file():
            found |= spreads_in(read_folders([Path(step.folder)])[0], Path(step.folder))
    return found


def measured(claim: Claim, summary: Summary) -> Paired | None:
    """What a study's outcomes say about one of its claims; None if it has not been run."""
    if claim.measure == SPREAD:
        return compared_spread(claim, summary.spreads)
    return found_in(replace(claim, suite=suites_run(claim, summary)), summary.rows)


def suites_run(claim: Claim, summary: Summary) -> str:
    """The suites that stand for the claim's in a study whose size leaves some out."""
    return str(summary.settings.get("suites", {}).get(claim.suite, claim.suite))


def _scenes(rows: Iterable[Row]) -> dict[str, Any]:
    """Scene -> its episodes as `task/index/seed`, and for every policy and decoder a letter for each of them."""
    scenes: dict[str, Any] = {}
    for scene in sorted({row.key.scene for row in rows}):
        mine = [row for row in rows if row.key.scene == scene]
        episodes = sorted({(row.key.task, row.key.index, row.key.seed) for row in mine})
        place = {episode: i for i, episode in enumerate(episodes)}
        lines: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(mine, key=lambda row: row.key):
            lines.setdefault((row.key.policy, row.key.decoder), []).append(row)
        outcomes = []
        for (policy, decoder), members in lines.items():
            letters = [NONE] * len(episodes)
            for row in members:
                letters[place[row.key.task, row.key.index, row.key.seed]] = _letter(row.status)
            seconds = round(sum(row.simulated_seconds for row in members) / len(members), 2)
            line = {"policy": policy, "decoder": decoder, "letters": "".join(letters), "seconds": seconds}
            outcomes.append(line | {"weights": _weights(members[0])})
        scenes[scene] = {"episodes": " ".join("/".join(map(str, each)) for each in episodes), "outcomes": outcomes}
    return scenes


def _rows(scenes: Mapping[str, Any]) -> Iterable[Row]:
    """Rows with what a table reads of them; every episode of a line has the line's mean time."""
    for scene, content in scenes.items():
        episodes = [tuple(map(int, text.split("/"))) for text in content["episodes"].split()]
        for line in content["outcomes"]:
            for (task, index, seed), letter in zip(episodes, line["letters"], strict=True):
                if letter != NONE:
                    key = EpisodeKey(scene, task, index, seed, line["policy"], line["decoder"])
                    seconds = line["seconds"]
                    own = {WEIGHTS: line["weights"]}
                    yield Row(key, LETTERS[letter], 1, 0, seconds, 0.0, None, 0, None, own, {}, None, None)


def _letter(status: Status) -> str:
    return next(letter for letter, meaning in LETTERS.items() if meaning == status)


def _versions(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """Of every benchmark; names with several values (one per scene, say) have all of them."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        mine = found.setdefault(benchmark_of(row.key.scene) or row.key.scene, {})
        for name, value in row.versions.items():
            if name not in _OF_ONE_POLICY:
                mine.setdefault(name, set()).add(value)
    return {
        benchmark: {name: ", ".join(sorted(values)) for name, values in sorted(mine.items())}
        for benchmark, mine in found.items()
    }
