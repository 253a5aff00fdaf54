"""A study in one of its sizes as commands: LeRobot's trainer, `qhead eval`, robot trials and `qhead table`."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lerobot_policy_quantile.adapters.suites import parse_suites
from lerobot_policy_quantile.evaluation.tables.aggregate import benchmark_of
from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan
from lerobot_policy_quantile.studies.plans.size import BATCH, PAPER, Size
from lerobot_policy_quantile.studies.plans.trainings import Training, own_training, row_label, shared_training
from lerobot_policy_quantile.util.names import require_choice

DEMONSTRATIONS = "qhead/demonstrations"
"""Name of the dataset that a study records for itself."""
EPISODES = "episodes"
"""Folder of shared journals in OUT, one per benchmark."""
LEAN = "lerobot_policy_quantile.studies.lean_train"
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
    lean: bool = False
    """Train with `studies/lean_train.py`, which reads samples faster."""
    content: str = ""
    """Digests of dataset and weights, where trainings are shared between studies."""

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
    labels: tuple[tuple[str, str], ...] = ()
    """Of a training or an evaluation: names in the study (`l1-0`, `l1#0`) and the names that folder or journal use."""
    episodes: "Episodes | None" = None
    """Of an evaluation: which rows of its journal are the study's; None: all."""
    recorded: bool = False
    """Of an evaluation: whether its predictions are kept for the study."""

    @property
    def text(self) -> str:
        """The command as typed into a shell."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class Episodes:
    """Some episodes of a journal that studies share."""

    scenes: tuple[str, ...]
    indices: tuple[int, ...] | None
    """Initial states; None: all."""


Kept = Mapping[str, Collection[str]]
"""Suite -> policies (`l1#0`) whose episodes of it are known from elsewhere."""
Trained = Sequence[tuple[PlanVariant, int]]
"""Variants with their training seeds."""


def expand(
    study: StudyPlan,
    where: Where,
    size: Size = PAPER,
    seeds: Sequence[int] | None = None,
    variants: Sequence[str] | None = None,
    kept: Kept | None = None,
) -> list[StudyCommand]:
    """The study's commands in order: trainings, evaluations, table. `seeds`, `variants`: only these of them.

    What is kept is not run again: a policy is left out of its suite, and its training if nothing else needs it.
    """
    study = size.applied(study)
    chosen = range(study.seeds) if seeds is None else seeds
    if not chosen or not set(chosen) <= set(range(study.seeds)):
        raise ValueError(f"seeds must lie in 0..{study.seeds - 1}; got {', '.join(map(str, chosen)) or 'none'}")
    names = [variant.name for variant in study.variants]
    for name in variants or ():
        require_choice(f"variants of study {study.name!r}", name, names)
    wanted = [variant for variant in study.variants if variants is None or variant.name in variants]
    trained = [(variant, seed) for seed in chosen for variant in wanted]
    asked = {each.suite: [own for own in trained if not _is_kept(own, each.suite, kept)] for each in study.evaluations}
    needed = [own for own in trained if not asked or any(own in mine for mine in asked.values())]
    steps = [_collecting(study, where, size)] if _collects(where, size) else []
    steps += _merged(_training(study, where, size, variant, seed) for variant, seed in needed)
    judged = [
        _evaluation(study, where, size, each, asked[each.suite]) for each in study.evaluations if asked[each.suite]
    ]
    judged += _trials(study, where, size, trained)
    if size.shared:  # journals hold other studies' rows, too: the study's own command prints its table
        return [*steps, *judged]
    folders = tuple(dict.fromkeys(step.folder for step in judged))
    table = StudyCommand("table", "table", ("qhead", "table", *folders), home(study, where))
    return [*steps, *judged, table]


def _is_kept(own: tuple[PlanVariant, int], suite: str, kept: Kept | None) -> bool:
    variant, seed = own
    return row_label(variant.name, seed) in (kept or {}).get(suite, ())


def home(study: StudyPlan, where: Where) -> str:
    """Folder of a study's output."""
    return f"{where.out}/{study.name}"


def _merged(steps: Iterable[StudyCommand]) -> list[StudyCommand]:
    """Variants of a study that are the same training become one command with all of their names."""
    found: dict[str, StudyCommand] = {}
    for step in steps:
        labels = (*found[step.folder].labels, *step.labels) if step.folder in found else step.labels
        found[step.folder] = replace(step, labels=labels)
    return list(found.values())


def training_of(study: StudyPlan, where: Where, size: Size, variant: PlanVariant, seed: int) -> Training:
    """The training of a variant with a seed."""
    if not size.shared:
        return own_training(home(study, where), variant.name, seed)
    schedule = {
        "updates": size.updates_of(study, where.frames),
        "batch": size.batch,
        "warmup": study.warmup,
        "content": where.content,
    }
    return shared_training(where.out, variant.name, variant.policy, _policy(where, size, variant), schedule, seed)


def _collects(where: Where, size: Size) -> bool:
    """Whether the study records its own demonstrations."""
    return size.collect and where.root is None


def _collecting(study: StudyPlan, where: Where, size: Size) -> StudyCommand:
    folder = f"{home(study, where)}/data"
    words = ("qhead", "collect", "--scene", "embedded", *_camera_size(size), "--repo-id", DEMONSTRATIONS)
    return StudyCommand("collect", "data", (*words, "--out", folder), folder)


def _camera_size(size: Size) -> list[str]:
    return [] if size.camera_size is None else ["--camera-size", str(size.camera_size)]


def _training(study: StudyPlan, where: Where, size: Size, variant: PlanVariant, seed: int) -> StudyCommand:
    updates = size.updates_of(study, where.frames)
    own = _collects(where, size)
    root = f"{home(study, where)}/data/dataset" if own else where.root
    words = [
        *_trainer(where),
        "--policy.type=quantile",
        *([GRIPPERS] if study.evaluations else []),
        *(f"--policy.{name}={_spell(value)}" for name, value in _policy(where, size, variant).items()),
        f"--policy.scheduler_warmup_steps={study.warmup}",
        f"--policy.device={where.device}",
        "--policy.push_to_hub=false",
        f"--dataset.repo_id={DEMONSTRATIONS if own else study.dataset}",
        *([] if root is None else [f"--dataset.root={root}"]),
        f"--batch_size={size.batch // where.processes}",
        f"--steps={updates}",
        f"--save_freq={-(-updates // CHECKPOINTS)}",
        *([] if size.loader_workers is None else [f"--num_workers={size.loader_workers}"]),
        *([] if size.log_every is None else [f"--log_freq={size.log_every}"]),
        f"--seed={seed}",
    ]
    mine = training_of(study, where, size, variant, seed)
    words.append(f"--output_dir={mine.folder}")
    labels = ((mine.label, mine.name),)
    return StudyCommand("train", mine.name, tuple(words), mine.folder, updates, size.batch, labels)


def _policy(where: Where, size: Size, variant: PlanVariant) -> dict[str, Any]:
    """Settings of a variant's policy: backbone, the size's, what fits the machine, and the variant's own."""
    weights = size.weights if size.backbone is not None else where.weights
    fit = where.fits.get(variant.name, Fit())
    frozen = variant.policy.get("freeze_vlm", True)
    chosen = {
        "backbone": size.backbone,
        "backbone_weights": weights,
        "prefix_cache": f"{where.out}/prefixes" if size.prefix_cache and frozen else None,
        **size.policy,
        **{name: value for name, value in vars(fit).items() if value is not False},
        **variant.policy,
    }
    return {name: value for name, value in chosen.items() if value is not None}


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
    module = LEAN if where.lean else "lerobot.scripts.lerobot_train"
    if where.processes == 1:
        return ["python", "-m", LEAN] if where.lean else ["lerobot-train"]
    return ["torchrun", "--standalone", f"--nproc_per_node={where.processes}", "-m", module]


def _evaluation(study: StudyPlan, where: Where, size: Size, evaluation: Evaluation, trained: Trained) -> StudyCommand:
    words = ["qhead", "eval", "--suite", evaluation.suite, "--device", where.device]
    trainings = [training_of(study, where, size, variant, seed) for variant, seed in trained]
    shared = size.shared and not evaluation.record
    labels = tuple((each.row_label, each.policy if shared else each.row_label) for each in trainings)
    named = zip((name for _, name in labels), trainings, strict=True)
    for policy in dict.fromkeys(f"{name}={training.checkpoint}" for name, training in named):
        words += ["--policy", policy]
    for decoder in evaluation.decoders:
        words += ["--decoder", decoder]
    if not _collects(where, size) and size.dataset is None:  # demonstrations of qhead collect use LIBERO's names
        for camera, feature in study.cameras.items():
            words += ["--camera", f"{camera}={feature}"]
    if where.workers is not None:
        words += ["--workers", str(where.workers)]
    words += [
        word for name, value in size.options_of(study.name, evaluation).items() for word in (f"--{name}", str(value))
    ]
    words += _camera_size(size)
    words += [] if size.side_files else ["--no-video"] if evaluation.record else ["--no-side-files"]
    words += [] if size.models == 1 else ["--models", str(size.models)]
    if not shared:
        folder = f"{home(study, where)}/{evaluation.suite}"
        words += ["--out", folder]
        return StudyCommand("eval", evaluation.suite, tuple(words), folder, labels=labels, recorded=evaluation.record)
    scenes = tuple(parse_suites(evaluation.suite))
    folder = f"{where.out}/{EPISODES}/{_benchmark(scenes)}"
    return StudyCommand(
        "eval",
        f"{study.name}-{evaluation.suite}",
        (*words, "--out", folder),
        folder,
        labels=labels,
        episodes=Episodes(scenes, size.indices_of(study.name, evaluation)),
    )


def _benchmark(scenes: Sequence[str]) -> str:
    """The benchmark whose journal all of an evaluation's rows are in."""
    names = sorted({str(benchmark_of(scene)) for scene in scenes})
    if len(names) > 1:
        raise ValueError(f"suites of one evaluation must belong to one benchmark; got {', '.join(names)}")
    return names[0]


def _trials(study: StudyPlan, where: Where, size: Size, trained: Trained) -> list[StudyCommand]:
    """For each method its server, then the trials of each task, which a person supervises."""
    if study.robot is None:
        return []
    folder, steps = f"{home(study, where)}/robot", []
    for variant, seed in trained:
        checkpoint = training_of(study, where, size, variant, seed).checkpoint
        serve = ("qhead", "serve", "--policy", checkpoint, "--device", where.device)
        steps.append(StudyCommand("robot", f"serve {variant.name}-{seed}", serve, folder))
        for task in study.robot.tasks:
            trials = str(size.trials or study.robot.trials)
            words = ("python", "examples/piper.py", "ws://127.0.0.1:8000", "--task", task, "--trials", trials)
            name = ("--name", f"{variant.name}#{seed}", "--out", folder)
            steps.append(StudyCommand("robot", f"{variant.name}-{seed}, {task}", (*words, *name), folder))
    return steps


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
