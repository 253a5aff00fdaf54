"""The paper's studies as declarative files: variants to train, seeds, and benchmarks to evaluate on.

A file contains only differences from the method's defaults. `commands.py` turns it into commands of LeRobot's trainer
and of `qhead eval`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from lerobot_policy_quantile.util.names import nearest, require_choice

_FIELDS = {
    "": {"title", "paper", "seeds", "training", "variant", "evaluation", "robot"},
    "training": {"dataset", "warmup", "steps", "cameras"},
    "variant": {"name", "policy", "beyond_paper"},
    "evaluation": {"suite", "decoders", "indices", "record"},
    "robot": {"tasks", "trials"},
}


@dataclass(frozen=True)
class PlanVariant:
    """One variant of the policy: settings that differ from the defaults of `--policy.type=quantile`."""

    name: str
    policy: dict[str, Any] = field(default_factory=dict)
    beyond_paper: str = ""
    """Why it is trained though the paper does not have it; empty: the paper has it."""


@dataclass(frozen=True)
class Evaluation:
    """A benchmark and the decoders to evaluate."""

    suite: str
    decoders: tuple[str, ...] = ("median",)
    indices: str | None = None
    """Initial states of every task, such as `40-44`; None: the first ones."""
    record: bool = False
    """Keep predictions of every episode, in a journal of the study's own."""


@dataclass(frozen=True)
class RobotTrials:
    """Trials on a real robot, each set up by a person."""

    tasks: tuple[str, ...]
    trials: int


@dataclass(frozen=True)
class StudyPlan:
    """A study, as read from its file."""

    name: str
    title: str
    paper: str
    seeds: int
    dataset: str
    """Name of the LeRobotDataset on the hub."""
    warmup: int
    variants: tuple[PlanVariant, ...]
    evaluations: tuple[Evaluation, ...] = ()
    steps: int | None = None
    """Training updates; None: one epoch."""
    cameras: Mapping[str, str] = field(default_factory=dict)
    """Camera of a scene -> its feature in the dataset, if it differs from LeRobot's LIBERO datasets."""
    robot: RobotTrials | None = None


def study_names() -> tuple[str, ...]:
    """Names of all studies in the package."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in files(__package__).iterdir() if _is_plan(entry)))


def _is_plan(entry: Any) -> bool:
    return str(entry.name).endswith(".toml")


def load_study(name: str) -> StudyPlan:
    """A study by name."""
    require_choice("study", name, study_names())
    return parse_study(name, files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def parse_study(name: str, text: str) -> StudyPlan:
    """A study from the text of its file; raises ValueError that names an unknown field."""
    content = tomllib.loads(text)
    _require_known(name, "", content)
    for kind in ("training", "robot"):
        _require_known(name, kind, content.get(kind, {}))
    for kind in ("variant", "evaluation"):
        for entry in content.get(kind, ()):
            _require_known(name, kind, entry)
    variants = tuple(PlanVariant(**entry) for entry in content.get("variant", ()))
    names = [variant.name for variant in variants]
    if not variants or len(set(names)) < len(names):
        raise ValueError(f"variants of study {name!r} must be named, each once; got {names}")
    evaluations = tuple(
        Evaluation(**{**entry, "decoders": tuple(entry.get("decoders", ("median",)))})
        for entry in content.get("evaluation", ())
    )
    training, robot = content["training"], content.get("robot")
    if not evaluations and robot is None:
        raise ValueError(f"study {name!r} must have an evaluation or a robot; got neither")
    return StudyPlan(
        name=name,
        title=content["title"],
        paper=content["paper"],
        seeds=content["seeds"],
        dataset=training["dataset"],
        warmup=training["warmup"],
        variants=variants,
        evaluations=evaluations,
        steps=training.get("steps"),
        cameras=training.get("cameras", {}),
        robot=None if robot is None else RobotTrials(tuple(robot["tasks"]), robot["trials"]),
    )


def _require_known(study: str, kind: str, entry: dict[str, Any]) -> None:
    for name in entry:
        if name not in _FIELDS[kind]:
            allowed = sorted(_FIELDS[kind])
            raise ValueError(
                f"fields of {kind or 'study'} in {study!r} must be among {', '.join(allowed)};"
                f" got {name!r}{nearest(name, allowed)}"
            )
