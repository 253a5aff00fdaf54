"""The paper's studies as declarative files: what is trained, with which seeds, and on which benchmarks it is judged.

A file says what differs from the method's defaults and nothing else. `expand` turns it into the commands of LeRobot's
trainer and of `qhead eval`; `small` keeps every variant and cuts seeds, steps and episodes to what a laptop can do.
"""

import shlex
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

BATCH = 128
"""Global batch of the paper (M21)."""

SMALL = {"seeds": 1, "batch": 8, "steps": 20, "warmup": 4, "episodes": 1, "sample": 8}
"""What `small` puts in place of a file's and the protocol's figures."""

_FIELDS = {
    "": {"title", "paper", "seeds", "training", "variant", "evaluation"},
    "training": {"dataset", "warmup"},
    "variant": {"name", "policy"},
    "evaluation": {"suite", "decoders"},
}


@dataclass(frozen=True)
class Variant:
    """One setting of the policy: what differs from `--policy.type=quantile` as it comes."""

    name: str
    policy: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """A benchmark and the decoders it is run with."""

    suite: str
    decoders: tuple[str, ...] = ("median",)


@dataclass(frozen=True)
class Study:
    """One file."""

    name: str
    title: str
    paper: str
    seeds: int
    dataset: str
    warmup: int
    variants: tuple[Variant, ...]
    evaluations: tuple[Evaluation, ...]


@dataclass(frozen=True)
class Where:
    """Where things are on the machine that runs a study."""

    root: str
    """The LeRobotDataset's folder."""
    frames: int
    """Its length: one epoch is that many frames."""
    out: str
    weights: str = "lerobot/pi05_base"


def study_names() -> tuple[str, ...]:
    """Every study that comes with the package."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in files(__package__).iterdir() if _is_plan(entry)))


def _is_plan(entry: Any) -> bool:
    return str(entry.name).endswith(".toml")


def load_study(name: str) -> Study:
    """A study by name."""
    if name not in study_names():
        raise ValueError(f"study must be one of {', '.join(study_names())}; got {name!r}")
    return parse_study(name, files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def parse_study(name: str, text: str) -> Study:
    """A study from its text; unknown fields are refused by name."""
    content = tomllib.loads(text)
    _require_known(name, "", content)
    _require_known(name, "training", content["training"])
    for kind in ("variant", "evaluation"):
        for entry in content.get(kind, ()):
            _require_known(name, kind, entry)
    variants = tuple(Variant(entry["name"], entry.get("policy", {})) for entry in content.get("variant", ()))
    names = [variant.name for variant in variants]
    if not variants or len(set(names)) < len(names):
        raise ValueError(f"variants of study {name!r} must be named, each once; got {names}")
    evaluations = tuple(
        Evaluation(entry["suite"], tuple(entry.get("decoders", ("median",)))) for entry in content["evaluation"]
    )
    training = content["training"]
    return Study(
        name,
        content["title"],
        content["paper"],
        content["seeds"],
        training["dataset"],
        training["warmup"],
        variants,
        evaluations,
    )


def _require_known(study: str, kind: str, entry: dict[str, Any]) -> None:
    for name in entry:
        if name not in _FIELDS[kind]:
            allowed = ", ".join(sorted(_FIELDS[kind]))
            raise ValueError(f"fields of {kind or 'study'} in {study!r} must be among {allowed}; got {name!r}")


def expand(study: Study, where: Where, *, small: bool = False) -> list[str]:
    """The study's commands, trainings before the evaluations that need them."""
    seeds = range(SMALL["seeds"] if small else study.seeds)
    trained = [(variant, seed) for variant in study.variants for seed in seeds]
    commands = [_training(study, where, variant, seed, small) for variant, seed in trained]
    return commands + [_evaluation(study, where, evaluation, trained, small) for evaluation in study.evaluations]


def _folder(study: Study, where: Where, variant: Variant, seed: int) -> str:
    return f"{where.out}/{study.name}/train/{variant.name}-{seed}"


def _training(study: Study, where: Where, variant: Variant, seed: int, small: bool) -> str:
    batch = SMALL["batch"] if small else BATCH
    steps = SMALL["steps"] if small else -(-where.frames // batch)
    backbone = ["--policy.backbone=tiny"] if small else [f"--policy.backbone_weights={where.weights}"]
    words = [
        "lerobot-train",
        "--policy.type=quantile",
        *backbone,
        *(f"--policy.{name}={_spell(value)}" for name, value in variant.policy.items()),
        f"--policy.scheduler_warmup_steps={SMALL['warmup'] if small else study.warmup}",
        "--policy.push_to_hub=false",
        f"--dataset.repo_id={study.dataset}",
        f"--dataset.root={where.root}",
        f"--batch_size={batch}",
        f"--steps={steps}",
        f"--seed={seed}",
        f"--output_dir={_folder(study, where, variant, seed)}",
    ]
    return shlex.join(words)


def _evaluation(
    study: Study, where: Where, evaluation: Evaluation, trained: list[tuple[Variant, int]], small: bool
) -> str:
    words = ["qhead", "eval", "--suite", evaluation.suite]
    for variant, seed in trained:
        checkpoint = f"{_folder(study, where, variant, seed)}/checkpoints/last/pretrained_model"
        words += ["--policy", f"{variant.name}#{seed}={checkpoint}"]
    for decoder in evaluation.decoders:
        words += ["--decoder", decoder]
    if small:
        words += ["--episodes", str(SMALL["episodes"]), "--sample", str(SMALL["sample"])]
    return shlex.join([*words, "--out", f"{where.out}/{study.name}/{evaluation.suite}"])


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
