"""The studies' policies: three training seeds of the quantile head and one flow head, of the same demonstrations.

The seeds share pretraining: they differ in new prompts, new gaps and the order of batches.
"""

from dataclasses import dataclass
from pathlib import Path

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.suite_proof import head_folders
from lerobot_policy_quantile.studies import demonstrated
from lerobot_policy_quantile.studies.demonstrated import TrainingName, Workplace
from lerobot_policy_quantile.studies.doubt.settings import BASE, SUITES, TRAINED_ON, TRAINING_SEEDS, DoubtStudy
from lerobot_policy_quantile.studies.plans import Evaluation, PlanVariant, StudyPlan

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
TRAININGS: tuple[TrainingName, ...] = (
    *((QUANTILE.name, seed) for seed in TRAINING_SEEDS),
    (FLOW.name, TRAINING_SEEDS[0]),
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
    *quantile, flow = trained(study, data, study.size.updates)
    return DoubtPolicies(tuple(quantile), flow)


def trained(study: DoubtStudy, data: Path, updates: int, *, first: int | None = None) -> list[str]:
    """Checkpoints of `TRAININGS`; `first`: only so many of them, for a pilot."""
    found = demonstrated.train(_place(study), PLAN, TRAININGS[:first], data, updates)
    return [found[each] for each in TRAININGS[:first]]


def demonstrations(study: DoubtStudy, name: str, states: tuple[int, ...], each: int, *, seed: int) -> Path:
    """A dataset of the scripted expert, `each` demonstrations of every task; what is there is not made again."""
    tasks = [(suite, task) for suite in SUITES for task in study.size.tasks]
    return demonstrated.demonstrations(_place(study), name, tasks, states, each, seed=seed, repo=REPO)


def _place(study: DoubtStudy) -> Workplace:
    return Workplace(study.out, study.workers, study.notes)
