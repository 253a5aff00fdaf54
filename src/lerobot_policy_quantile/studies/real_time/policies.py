"""The study's policies: heads straight from the shipped bases, heads fine-tuned in LIBERO, one trained at the obstacle.

Straight from a base an L1 head answers as the median does, so pausing, swapping and ensembling of the median are its
rows, too. `base` is the better one in the embedded scene, `base_suites` the only one that prepares a flow head.
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.suite_proof import head_folders
from lerobot_policy_quantile.studies.demonstrated import Workplace, demonstrations, train
from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan
from lerobot_policy_quantile.studies.two_demo.base_folder import SHIPPED, base_folder
from lerobot_policy_quantile.studies.two_demo.run import train_study
from lerobot_policy_quantile.studies.two_demo.settings import load_settings
from lerobot_policy_quantile.studies.two_demo.training import TrainingJob
from lerobot_policy_quantile.util.progress import Narrator

SUITE = "libero_object"
SUITES_BASE = "base_suites"
TRAINED_ON = tuple(range(30, 45))
"""Initial states of the demonstrations; episodes of the study begin from others."""
DEMONSTRATIONS, UPDATES = 5, 1500
"""Demonstrations per task; updates of every head."""
PLAN = StudyPlan(
    name="policies",
    title="Policies of the real-time study",
    paper="not in the paper",
    seeds=1,
    dataset="qhead/real-time",
    warmup=100,
    variants=(PlanVariant("quantile"), PlanVariant("l1", {"head": "l1"}), PlanVariant("flow", {"head": "flow"})),
    evaluations=(Evaluation(SUITE),),
)


def base_policies(out: Path) -> dict[str, dict[str, str]]:
    """Scene -> name -> folder."""
    heads = head_folders(base_checkpoint(SUITES_BASE), out, ("quantile", "flow"))
    embedded = {"quantile": str(base_checkpoint()), "flow": heads["flow"]}
    return {"embedded": embedded, SUITE: heads}


def fine_tuned_policies(out: Path, workers: int, notes: Console) -> dict[str, str]:
    """Head -> folder: heads trained from `base_suites` on demonstrations of the suite, with its VLM frozen."""
    place = Workplace(out, workers, notes)
    tasks = [(SUITE, task) for task in range(10)]
    data = demonstrations(place, "trained_on", tasks, TRAINED_ON, DEMONSTRATIONS, seed=30, repo=PLAN.dataset)
    found = train(place, PLAN, [(variant.name, 0) for variant in PLAN.variants], data, UPDATES)
    return {name: folder for (name, _), folder in found.items()}


def obstacle_policy(out: Path, workers: int, narrator: Narrator) -> str:
    """A quantile head of two demonstrations that pass the obstacle on opposite sides, trained as in `make demo`."""
    settings, base = replace(load_settings("demo"), obstacle=(True,)), base_folder(SHIPPED)
    train_study(out, settings, base, workers=workers, narrator=narrator, heads=("quantile",))
    (arm,), (seed,) = settings.arms, settings.training_seeds
    return str(TrainingJob(out / arm, settings, base, "quantile", seed).policy)
