"""Policies that a study trains for itself on demonstrations that it makes itself: miniatures, for fewer updates.

All start from a shipped base with its VLM frozen and are trained as the miniature studies are. What is there is not
made again; a killed training goes on from its checkpoint.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.scenes.demonstration_folder import DATASET
from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe
from lerobot_policy_quantile.scenes.suite_folder import collect_suite
from lerobot_policy_quantile.studies.plan_machine import INFO, inputs_of
from lerobot_policy_quantile.studies.plan_run import run_steps
from lerobot_policy_quantile.studies.plans import StudyPlan
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where, expand, home, training_of
from lerobot_policy_quantile.studies.plans.size import Size, load_size
from lerobot_policy_quantile.util.progress import LoggedProgress


@dataclass(frozen=True)
class Workplace:
    """Where a study keeps its demonstrations and trainings."""

    out: Path
    workers: int
    notes: Console


TrainingName = tuple[str, int]
"""A variant's name and a training seed."""


def demonstrations(
    place: Workplace,
    name: str,
    tasks: Sequence[tuple[str, int]],
    states: tuple[int, ...],
    each: int,
    *,
    seed: int,
    repo: str,
) -> Path:
    """A dataset of the scripted expert, `each` demonstrations of every task; what is there is not made again."""
    recipe = CollectionRecipe(
        tasks=tuple(tasks), episodes=each, seed=seed, states=states, camera_size=VARIANTS["tiny"].image_size
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with LoggedProgress(*columns, console=place.notes) as bar:
        line = bar.add_task(name, total=None)
        rows = collect_suite(
            place.out / name,
            recipe,
            workers=place.workers,
            repo_id=repo,
            told=lambda what, done, total, _: bar.update(
                line, description=f"{name}, {what}", completed=done, total=total
            ),
        )
    if missing := sum(row["file"] is None for row in rows):
        place.notes.print(f"{name}: {missing} of {len(rows)} demonstrations failed and are left out", markup=False)
    return place.out / name / DATASET


def train(
    place: Workplace, plan: StudyPlan, wanted: Sequence[TrainingName], data: Path, updates: int
) -> dict[TrainingName, str]:
    """The checkpoints of these trainings of a plan."""
    size = size_of(plan, updates)
    frames = int(json.loads((data / INFO).read_text(encoding="utf-8"))["total_frames"])
    where = Where(frames, str(place.out), str(data), lean=size.lean)
    run_steps(
        training_steps(plan, wanted, where, size),
        where,
        Path(home(plan, where)),
        inputs_of(plan, where, size),
        lambda text: place.notes.print(text, markup=False),
        parallel=place.workers,
    )
    variants = {variant.name: variant for variant in plan.variants}
    return {(name, seed): training_of(plan, where, size, variants[name], seed).checkpoint for name, seed in wanted}


def training_steps(plan: StudyPlan, wanted: Sequence[TrainingName], where: Where, size: Size) -> list[StudyCommand]:
    """The commands of these trainings, in the order of seeds."""
    names = {f"{name}-{seed}" for name, seed in wanted}
    return [step for step in expand(plan, where, size) if step.kind == "train" and step.name in names]


def size_of(plan: StudyPlan, updates: int) -> Size:
    """The miniature studies' settings, for trainings of one study alone."""
    return replace(
        load_size("miniature"), updates=updates, warmup=plan.warmup, dataset=plan.dataset, shared=False, study={}
    )
