"""A study's rows, from journals of its own or from journals that it shares with other studies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL, read_folders
from lerobot_policy_quantile.studies.plans.commands import Episodes, StudyCommand


def study_rows(steps: Sequence[StudyCommand]) -> tuple[list[Row], Facts]:
    """The rows that the study's evaluations and trials have so far, under its variants' names."""
    judged = [step for step in steps if step.kind in ("eval", "robot") and (Path(step.folder) / JOURNAL).is_file()]
    own = [step for step in judged if step.episodes is None]
    rows, facts = read_folders(dict.fromkeys(Path(step.folder) for step in own))
    for step in judged:
        if step.episodes is not None:
            found, known = read_folders([Path(step.folder)])
            rows += relabelled(found, step.labels, step.episodes)
            facts += _about(known, step.episodes.scenes)
    return rows, facts


def relabelled(rows: Iterable[Row], labels: Iterable[tuple[str, str]], episodes: Episodes) -> list[Row]:
    """Those of a shared journal's rows that belong to a study, with the study's names for its policies."""
    names: dict[str, list[str]] = {}
    for label, policy in labels:
        names.setdefault(policy, []).append(label)
    return [
        replace(row, key=replace(row.key, policy=label))
        for row in rows
        if row.key.scene in episodes.scenes and (episodes.indices is None or row.key.index in episodes.indices)
        for label in names.get(row.key.policy, ())
    ]


def _about(facts: Facts, scenes: Sequence[str]) -> Facts:
    def kept[T](of: Mapping[str, T]) -> dict[str, T]:
        return {scene: value for scene, value in of.items() if scene in scenes}

    return Facts(kept(facts.population), kept(facts.categories), kept(facts.unavailable))
