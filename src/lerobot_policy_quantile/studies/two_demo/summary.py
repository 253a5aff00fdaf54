"""A study's journals in short: one small file per arm and training seed, which a repository can keep.

Studies that ran in parts (other days, other machines) meet here: `keep_summaries` writes what one folder holds beside
what others left, and refuses to let numbers of different settings, weights or simulators stand in one table.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.evaluation.contexts import with_wording
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.studies.two_demo.paper import paper_rate
from lerobot_policy_quantile.studies.two_demo.records import (
    JOURNAL,
    Arm,
    Check,
    Cost,
    RolloutRecord,
    Study,
    policy_name,
)
from lerobot_policy_quantile.studies.two_demo.result import Result
from lerobot_policy_quantile.util.files import write_json

LETTERS = {"left": "l", "right": "r", None: "n"}
"""An episode's side (n: it never passed the plane); a capital is a success, `e` an error."""
PARTS = ("scenes", "obstacle", "arms", "seeds", "first_seed", "episodes", "decoders", "obstacle_decoders")
"""Settings in which parts of one study differ."""


@dataclass(frozen=True)
class Outcomes:
    """The episodes of one head and decoder, in the order of their numbers."""

    head: str
    decoder: str
    letters: str
    steps: float  # mean actions per episode
    contacts: int  # episodes in which anything touched the obstacle

    @property
    def success(self) -> int:
        """How many succeeded."""
        return sum(letter.isupper() for letter in self.letters)

    @property
    def episodes(self) -> int:
        """How many were judged."""
        return len(self.letters) - self.letters.count("e")


@dataclass(frozen=True)
class ArmSummary:
    """One arm and one training seed."""

    arm: str
    training_seed: int
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    episodes_asked: int  # per stochastic decoder
    demonstrations: tuple[int, ...]  # actions of each
    checks_passed: int
    checks: int
    costs: tuple[Cost, ...]
    outcomes: tuple[Outcomes, ...]

    @property
    def obstacle(self) -> bool:
        """Whether the obstacle stands there."""
        return self.arm != self.scene

    @property
    def scene(self) -> str:
        """Where it is."""
        return self.arm.removesuffix("+obstacle")

    @property
    def file_name(self) -> str:
        """Where it is kept."""
        return f"{self.arm}-seed{self.training_seed}.json"

    @property
    def episodes(self) -> int:
        """All that have a result."""
        return sum(len(outcome.letters) for outcome in self.outcomes)


def summaries(study: Study) -> list[ArmSummary]:
    """What a study's folder holds, arm by arm and seed by seed; a seed without episodes is left out."""
    return [
        _summary(study, arm, seed)
        for arm in study.arms
        for seed in sorted({rollout.training_seed for rollout in arm.rollouts})
    ]


def _summary(study: Study, arm: Arm, seed: int) -> ArmSummary:
    groups: dict[tuple[str, str], list[RolloutRecord]] = {}
    for rollout in arm.rollouts:
        if rollout.training_seed == seed:
            groups.setdefault((rollout.head, rollout.decoder), []).append(rollout)
    return ArmSummary(
        arm=arm.name,
        training_seed=seed,
        settings={name: value for name, value in study.settings.items() if name not in PARTS},
        versions=_versions(arm, seed),
        episodes_asked=study.settings["episodes"],
        demonstrations=tuple(len(demonstration.actions) for demonstration in arm.demonstrations),
        checks_passed=sum(check.passed for check in _checks(arm, seed)),
        checks=len(_checks(arm, seed)),
        costs=arm.costs.get(seed, ()),
        outcomes=tuple(_outcomes(*pair, members) for pair, members in groups.items()),
    )


def _checks(arm: Arm, seed: int) -> list[Check]:
    """The arm's own and this training seed's: names of the others say which seed they belong to."""
    said = re.compile(r"^\w+-(\d+):|\(seed (\d+)\)$")
    found = [(check, said.search(check.name)) for check in arm.checks]
    return [check for check, match in found if match is None or int(match[1] or match[2]) == seed]


def _outcomes(head: str, decoder: str, members: list[RolloutRecord]) -> Outcomes:
    letters = "".join(_letter(rollout) for rollout in members)
    steps = sum(rollout.steps for rollout in members) / len(members)
    return Outcomes(head, decoder, letters, round(steps, 1), sum(rollout.contacts > 0 for rollout in members))


def _letter(rollout: RolloutRecord) -> str:
    if rollout.status == "error":
        return "e"
    letter = LETTERS[rollout.side]
    return letter.upper() if rollout.success else letter


def _versions(arm: Arm, seed: int) -> dict[str, str]:
    """What the rows were made with; the policies' fingerprints belong to the seed and are left out."""
    found: dict[str, str] = {}
    for row in read_rows(arm.folder / JOURNAL):
        if row.key.policy == policy_name("quantile", seed):
            found |= row.versions
    return {name: value for name, value in sorted(found.items()) if name != "policy"}


def keep_summaries(study: Study, folder: Path) -> list[ArmSummary]:
    """Write a study's summaries into a folder beside what is there; returns all that it holds then.

    Nothing is written if a file of the same arm and seed knows more episodes, or if anything there was made otherwise.
    """
    fresh = summaries(study)
    if not fresh:
        raise ValueError(f"study {study.out} has no episode yet: there is nothing to summarise")
    held = {summary.file_name: summary for summary in read_summaries(folder)}
    for summary in fresh:
        before = held.get(summary.file_name)
        if before is not None and before.episodes > summary.episodes:
            raise ValueError(
                f"{folder / summary.file_name} holds {before.episodes} episodes, {study.out} only {summary.episodes};"
                " remove the file if it shall be replaced"
            )
        held[summary.file_name] = summary
    require_alike(held.values())
    folder.mkdir(parents=True, exist_ok=True)
    for summary in fresh:
        write_json(folder / summary.file_name, asdict(summary))
    return sorted(held.values(), key=_place)


def read_summaries(folder: Path) -> list[ArmSummary]:
    """Every summary in a folder, by arm and seed."""
    return sorted((_read(path) for path in folder.glob("*-seed*.json")), key=_place)


def _place(summary: ArmSummary) -> tuple[str, int]:
    return summary.arm, summary.training_seed


def _read(path: Path) -> ArmSummary:
    try:
        found = json.loads(path.read_text())
        return ArmSummary(
            **found
            | {
                "versions": with_wording(found["arm"], found["versions"]),
                "demonstrations": tuple(found["demonstrations"]),
                "costs": tuple(Cost(**cost) for cost in found["costs"]),
                "outcomes": tuple(Outcomes(**outcome) for outcome in found["outcomes"]),
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a summary that `qhead study summarise` wrote; {error}") from error


def require_alike(found: Iterable[ArmSummary]) -> None:
    """Refuse summaries that differ in what decides the numbers, naming what."""
    first: dict[str, tuple[str, Any]] = {}
    for summary in found:
        facts = {f"settings {name}": value for name, value in summary.settings.items()}
        for name, value in summary.versions.items():
            facts[f"{summary.arm if name == 'limit' else summary.scene} {name}"] = value
        for name, value in json.loads(json.dumps(facts)).items():
            file, known = first.setdefault(name, (summary.file_name, value))
            if known != value:
                where = f"{known!r} in {file} and {value!r} in {summary.file_name}"
                raise ValueError(f"summaries must be of one study; {name} is {where}")


def pooled(parts: Iterable[ArmSummary]) -> list[Result]:
    """One line per head and decoder over all training seeds of an arm."""
    groups: dict[tuple[str, str], list[Outcomes]] = {}
    obstacle = False
    for summary in parts:
        obstacle = summary.obstacle
        for outcome in summary.outcomes:
            groups.setdefault((outcome.head, outcome.decoder), []).append(outcome)
    return [_pooled(head, decoder, members, obstacle) for (head, decoder), members in groups.items()]


def _pooled(head: str, decoder: str, members: list[Outcomes], obstacle: bool) -> Result:
    letters = "".join(outcome.letters for outcome in members)
    return Result(
        head=head,
        decoder=decoder,
        by_seed=tuple((outcome.success, outcome.episodes) for outcome in members if outcome.episodes),
        errors=letters.count("e"),
        left=letters.count("L"),
        right=letters.count("R"),
        paper=paper_rate(obstacle, head, decoder),
    )
