"""The studies' policies: three training seeds of the quantile head and one flow head, of the same demonstrations.

All start from the shipped base with its VLM frozen and are trained as the miniature studies are, for fewer updates on
fewer demonstrations. The seeds share pretraining: they differ in new prompts, new gaps and the order of batches.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.suite_proof import head_folders
from lerobot_policy_quantile.scenes.demonstration_folder import DATASET
from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe
from lerobot_policy_quantile.scenes.suite_folder import collect_suite
from lerobot_policy_quantile.studies.doubt.settings import (
    BASE,
    CAMERA_SIZE,
    SUITES,
    TRAINED_ON,
    TRAINING_SEEDS,
    DoubtStudy,
)
from lerobot_policy_quantile.studies.plan_machine import INFO, inputs_of
from lerobot_policy_quantile.studies.plan_run import run_steps
from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where, expand, home, training_of
from lerobot_policy_quantile.studies.plans.size import Size, load_size
from lerobot_policy_quantile.util.progress import LoggedProgress

REPO = "qhead/doubt"
QUANTILE, FLOW = PlanVariant("quantile"), PlanVariant("flow", {"head": "flow"})
PLAN = StudyPlan(
    name="policies",
    title="Policies of the studies of doubt",
    paper="not in the paper",
    seeds=len(TRAINING_SEEDS),
    dataset=REPO,
    warmup=100,
    variants=(QUANTILE, FLOW),
    evaluations=tuple(map(Evaluation, SUITES)),
)


@dataclass(frozen=True)
class DoubtPolicies:
    """Folders of saved policies."""

    quantile: tuple[str, ...]
    """One per training seed; the first drives."""
    flow: str


def policies_of(study: DoubtStudy) -> DoubtPolicies:
    """The policies, trained where they are not there yet."""
    if not study.size.updates:
        shipped = head_folders(base_checkpoint(BASE), study.out, ("quantile", "flow"))
        return DoubtPolicies((shipped["quantile"],) * len(TRAINING_SEEDS), shipped["flow"])
    data = demonstrations(study, "trained_on", TRAINED_ON, study.size.demonstrations, seed=20)
    return trained(study, data, study.size.updates)


def trained(study: DoubtStudy, data: Path, updates: int, *, first: int | None = None) -> DoubtPolicies:
    """One training per seed of the quantile head, one of the flow head; a killed one goes on from its checkpoint.

    `first`: only so many of them, for a pilot.
    """
    size = _size(updates)
    frames = int(json.loads((data / INFO).read_text(encoding="utf-8"))["total_frames"])
    where = Where(frames, str(study.out), str(data), lean=size.lean)
    steps = training_steps(where, size)[:first]
    folder, say = Path(home(PLAN, where)), lambda text: study.notes.print(text, markup=False)
    run_steps(steps, where, folder, inputs_of(PLAN, where, size), say, parallel=study.workers)
    return DoubtPolicies(
        tuple(training_of(PLAN, where, size, QUANTILE, seed).checkpoint for seed in TRAINING_SEEDS),
        training_of(PLAN, where, size, FLOW, TRAINING_SEEDS[0]).checkpoint,
    )


def training_steps(where: Where, size: Size) -> list[StudyCommand]:
    """All seeds of the quantile head and the first of the flow head."""
    unused = {f"{FLOW.name}-{seed}" for seed in TRAINING_SEEDS[1:]}
    return [step for step in expand(PLAN, where, size) if step.kind == "train" and step.name not in unused]


def _size(updates: int) -> Size:
    """The miniature studies' settings, for trainings of this study alone."""
    return replace(load_size("miniature"), updates=updates, warmup=PLAN.warmup, dataset=REPO, shared=False, study={})


def demonstrations(study: DoubtStudy, name: str, states: tuple[int, ...], each: int, *, seed: int) -> Path:
    """A dataset of the scripted expert, `each` demonstrations of every task; what is there is not made again."""
    recipe = CollectionRecipe(
        tasks=tuple((suite, task) for suite in SUITES for task in study.size.tasks),
        episodes=each,
        seed=seed,
        states=states,
        camera_size=CAMERA_SIZE,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with LoggedProgress(*columns, console=study.notes) as bar:
        line = bar.add_task(name, total=None)
        rows = collect_suite(
            study.out / name,
            recipe,
            workers=study.workers,
            repo_id=REPO,
            told=lambda what, done, total, _: bar.update(
                line, description=f"{name}, {what}", completed=done, total=total
            ),
        )
    if missing := sum(row["file"] is None for row in rows):
        study.notes.print(f"{name}: {missing} of {len(rows)} demonstrations failed and are left out", markup=False)
    return study.out / name / DATASET
