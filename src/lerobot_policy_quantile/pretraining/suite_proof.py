"""A base in closed loop in LIBERO's suites, without fine-tuning: one policy per head, from the base's projections.

States 20 to 29 by default: pretraining draws its layouts, and evaluations use other stored states. L1 and L2 heads take
over the direct projection and answer as the median does, so the row of the quantile head is theirs too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from lerobot_policy_quantile.evaluation.whole_run import run_whole
from lerobot_policy_quantile.policy.base_checkpoint import policy_from_base, processors_from_base
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.pretraining.suite_samples import SUITES
from lerobot_policy_quantile.util.names import require_choice

QUANTILE = "quantile"
HEADS = (QUANTILE, "l1", "l2", "flow", "one_step_flow")
DEFAULT_HEADS = (QUANTILE, "flow", "one_step_flow")
TASKS = 10


@dataclass(frozen=True)
class ProofChoice:
    """Which episodes are run."""

    suites: Sequence[str] = SUITES
    heads: Sequence[str] = DEFAULT_HEADS
    states: Sequence[int] = range(20, 30)
    tasks: Sequence[int] = range(TASKS)

    def __post_init__(self) -> None:
        for suite in self.suites:
            require_choice("suites", suite, SUITES)
        for head in self.heads:
            require_choice("heads", head, HEADS)

    def plan(self) -> Plan:
        """Heads on the same key follow each other: later resets to it cost next to nothing."""
        cases = product(self.suites, self.tasks, self.states, self.heads)
        return Plan(tuple(EpisodeKey(suite, task, state, 0, head, "median") for suite, task, state, head in cases))


def head_folders(base: Path, out: Path, heads: Sequence[str]) -> dict[str, str]:
    """Head -> a policy folder: the base itself for the quantile head, a new one in `out` for another."""
    folders = {}
    for head in heads:
        folder = base if head == QUANTILE else out / "heads" / head
        if not (folder / "config.json").is_file():
            with torch.random.fork_rng(devices=()):  # the same file every time: a digest names the policy
                torch.manual_seed(0)
                policy: Any = policy_from_base(head, folder=base)
            policy.save_pretrained(folder)
            for pipeline in processors_from_base(policy.config, folder=base):
                pipeline.save_pretrained(folder)
        folders[head] = str(folder)
    return folders


def prove_suites(base: Path, out: Path, choice: ProofChoice, workers: int, console: Console) -> list[dict[str, Any]]:
    """Run what the journal in `out` does not hold yet; success per suite and head."""
    factory = SceneFactory(head_folders(base, out, choice.heads), CAMERA_SIZE)
    rows = run_whole(choice.plan(), out, factory, workers=workers, console=console, models=len(choice.heads))
    return suite_summary(rows)


def suite_summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per suite and head, in the order of first appearance."""
    table = []
    for suite, head in dict.fromkeys((row.key.scene, row.key.policy) for row in rows):
        members = [row for row in rows if (row.key.scene, row.key.policy) == (suite, head)]
        hits = sum(row.status == "success" for row in members)
        interval = wilson(hits / len(members), len(members))
        table.append(
            {
                "suite": suite,
                "head": head,
                "episodes": len(members),
                "solved": hits,
                "rate": f"{hits / len(members):.0%}",
                "95 %": f"{interval.low:.0%} to {interval.high:.0%}",
            }
        )
    return table
