"""A study as a sequence of commands: LeRobot's trainer, `qhead eval`, robot trials and `qhead table`.

`small` keeps every variant but reduces seeds, steps and episodes to a few minutes on a laptop.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan

BATCH = 128
"""Global batch size of the paper, for any number of processes."""

SMALL = {"seeds": 1, "batch": 8, "steps": 8, "warmup": 2, "episodes": 1, "sample": 4, "limit": 20, "trials": 2}
"""Values that `small` uses instead of those of the study and the protocol."""

SMALL_DATASET = "qhead/demonstrations"
CHECKPOINTS = 4
"""Checkpoints per training; an interrupted training loses at most the steps since the last one."""

GRIPPERS = "--policy.grippers=[6]"
"""Gripper dimension of LIBERO's actions, which not all public datasets name; robot datasets name theirs."""

Kind = Literal["collect", "train", "eval", "robot", "table"]


@dataclass(frozen=True)
class Fit:
    """Training settings that determine memory use."""

    dtype: str = "float32"
    gradient_checkpointing: bool = False
    micro_batch: int | None = None
    """Rows per forward and backward pass; None: the process's whole batch."""


@dataclass(frozen=True)
class Where:
    """Dataset, output, weights and resources on the machine that runs a study."""

    frames: int
    """Number of frames in the dataset, which is one epoch."""
    out: str
    root: str | None = None
    """Folder of the LeRobotDataset; None: from the hub."""
    weights: str = "lerobot/pi05_base"
    device: str = "cpu"
    processes: int = 1
    workers: int | None = None
    """Worker processes of `qhead eval`; None: its default."""
    fits: Mapping[str, Fit] = field(default_factory=dict)
    """Variant -> training settings; the policy's defaults for other variants."""

    def __post_init__(self) -> None:
        if self.processes < 1 or BATCH % self.processes:
            raise ValueError(f"processes must divide the global batch of {BATCH}; got {self.processes}")


@dataclass(frozen=True)
class StudyCommand:
    """One command of a study."""

    kind: Kind
    name: str
    words: tuple[str, ...]
    folder: str
    """Folder that it writes."""
    updates: int = 0
    """Of a training: number of updates."""
    batch: int = 0
    """Of a training: global batch size."""

    @property
    def text(self) -> str:
        """The command as typed into a shell."""
        return shlex.join(self.words)


def expand(study: StudyPlan, where: Where, *, small: bool = False) -> list[StudyCommand]:
    """The study's commands in order: trainings, evaluations, table."""
    seeds = range(SMALL["seeds"] if small else study.seeds)
    trained = [(variant, seed) for variant in study.variants for seed in seeds]
    steps = [_collecting(study, where)] if where.root is None and small else []
    steps += [_training(study, where, variant, seed, small) for variant, seed in trained]
    judged = [_evaluation(study, where, evaluation, trained, small) for evaluation in study.evaluations]
    judged += _trials(study, where, trained, small)
    folders = tuple(dict.fromkeys(step.folder for step in judged))
    table = StudyCommand("table", "table", ("qhead", "table", *folders), home(study, where))
    return [*steps, *judged, table]


def home(study: StudyPlan, where: Where) -> str:
    """Folder of a study's output."""
    return f"{where.out}/{study.name}"


def _folder(study: StudyPlan, where: Where, variant: PlanVariant, seed: int) -> str:
    return f"{home(study, where)}/train/{variant.name}-{seed}"


def _checkpoint(study: StudyPlan, where: Where, variant: PlanVariant, seed: int) -> str:
    return f"{_folder(study, where, variant, seed)}/checkpoints/last/pretrained_model"


def _collecting(study: StudyPlan, where: Where) -> StudyCommand:
    folder = f"{home(study, where)}/data"
    words = ("qhead", "collect", "--scene", "embedded", "--camera-size", "64", "--repo-id", SMALL_DATASET)
    return StudyCommand("collect", "data", (*words, "--out", folder), folder)


def _training(study: StudyPlan, where: Where, variant: PlanVariant, seed: int, small: bool) -> StudyCommand:
    fit = where.fits.get(variant.name, Fit())
    batch = SMALL["batch"] if small else BATCH
    updates = SMALL["steps"] if small else study.steps or -(-where.frames // batch)
    backbone = ["--policy.backbone=tiny"] if small else [f"--policy.backbone_weights={where.weights}"]
    own = {name: value for name, value in vars(fit).items() if value not in (None, False)}
    root = f"{home(study, where)}/data/dataset" if small and where.root is None else where.root
    words = [
        *_trainer(where),
        "--policy.type=quantile",
        *backbone,
        *([GRIPPERS] if study.evaluations else []),
        *(f"--policy.{name}={_spell(value)}" for name, value in {**own, **variant.policy}.items()),
        f"--policy.scheduler_warmup_steps={SMALL['warmup'] if small else study.warmup}",
        f"--policy.device={where.device}",
        "--policy.push_to_hub=false",
        f"--dataset.repo_id={SMALL_DATASET if small and where.root is None else study.dataset}",
        *([] if root is None else [f"--dataset.root={root}"]),
        f"--batch_size={batch // where.processes}",
        f"--steps={updates}",
        f"--save_freq={-(-updates // CHECKPOINTS)}",
        *(["--num_workers=0"] if small else []),
        f"--seed={seed}",
    ]
    folder = _folder(study, where, variant, seed)
    return StudyCommand("train", f"{variant.name}-{seed}", (*words, f"--output_dir={folder}"), folder, updates, batch)


def resumed(step: StudyCommand, where: Where) -> StudyCommand:
    """The command that continues a training from its last checkpoint, with its original settings."""
    config = f"{step.folder}/checkpoints/last/pretrained_model/train_config.json"
    words = (
        *_trainer(where),
        f"--config_path={config}",
        "--resume=true",
        f"--batch_size={step.batch // where.processes}",
    )
    return replace(step, words=words)


def _trainer(where: Where) -> list[str]:
    """LeRobot's trainer; with several processes, torchrun starts them and accelerate splits the batch.

    Not `accelerate launch`, which depends on the user's configuration file and silently starts one process without a
    GPU.
    """
    if where.processes == 1:
        return ["lerobot-train"]
    return ["torchrun", "--standalone", f"--nproc_per_node={where.processes}", "-m", "lerobot.scripts.lerobot_train"]


def _evaluation(
    study: StudyPlan, where: Where, evaluation: Evaluation, trained: list[tuple[PlanVariant, int]], small: bool
) -> StudyCommand:
    words = ["qhead", "eval", "--suite", evaluation.suite, "--device", where.device]
    for variant, seed in trained:
        words += ["--policy", f"{variant.name}#{seed}={_checkpoint(study, where, variant, seed)}"]
    for decoder in evaluation.decoders:
        words += ["--decoder", decoder]
    if not (small and where.root is None):  # demonstrations of qhead collect use LIBERO's names
        for camera, feature in study.cameras.items():
            words += ["--camera", f"{camera}={feature}"]
    if where.workers is not None:
        words += ["--workers", str(where.workers)]
    if small:
        words += [word for name in ("episodes", "sample", "limit") for word in (f"--{name}", str(SMALL[name]))]
        words += ["--camera-size", "64", "--no-side-files"]
    folder = f"{home(study, where)}/{evaluation.suite}"
    return StudyCommand("eval", evaluation.suite, (*words, "--out", folder), folder)


def _trials(study: StudyPlan, where: Where, trained: list[tuple[PlanVariant, int]], small: bool) -> list[StudyCommand]:
    """For each method its server, then the trials of each task, which a person supervises."""
    if study.robot is None:
        return []
    folder, steps = f"{home(study, where)}/robot", []
    for variant, seed in trained:
        serve = ("qhead", "serve", "--policy", _checkpoint(study, where, variant, seed), "--device", where.device)
        steps.append(StudyCommand("robot", f"serve {variant.name}-{seed}", serve, folder))
        for task in study.robot.tasks:
            trials = str(SMALL["trials"] if small else study.robot.trials)
            words = ("python", "examples/piper.py", "ws://127.0.0.1:8000", "--task", task, "--trials", trials)
            name = ("--name", f"{variant.name}#{seed}", "--out", folder)
            steps.append(StudyCommand("robot", f"{variant.name}-{seed}, {task}", (*words, *name), folder))
    return steps


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
