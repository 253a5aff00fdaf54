"""The base checkpoint in closed loop, from initial states that pretraining never saw: how often, and what else it took.

Tasks 1 to 4 of the embedded scene (100 mixed layouts) and task 0 (its 50 layouts). Their random keys are not those of
pretraining data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import Policy, World
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from lerobot_policy_quantile.evaluation.whole_run import SIDE, run_whole
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import NAMES, TARGETS, EmbeddedScene

LIFTED = 0.03  # metres above where it stood: picked up
MIXED_TASKS, MIXED_INDICES, PLAIN_INDICES = (1, 2, 3, 4), range(25, 50), range(50)
"""Indices 0 to 24 of the mixed tasks were looked at while `n_action_steps` was chosen, so they prove nothing."""
HEIGHTS = "highest"
"""In side files: how far above its start each of `NAMES` got, in metres."""


class WatchedScene(EmbeddedScene):
    """The embedded scene, remembering what else was picked up."""

    def __init__(self, camera_size: int) -> None:
        super().__init__("embedded", obstacle=False, camera_size=camera_size)
        self.highest: dict[str, float] = {}
        self._rest: dict[str, float] = {}

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin an episode; heights count from here."""
        super().reset(task, index, seed)
        self._rest = {name: float(self.world.position(name)[2]) for name in NAMES}
        self.highest = dict.fromkeys(NAMES, 0.0)

    def step(self, action: Array, *, observe: bool = False) -> None:
        """One control step."""
        super().step(action, observe=observe)
        for name in self.highest:
            self.highest[name] = max(self.highest[name], float(self.world.position(name)[2]) - self._rest[name])

    def notes(self) -> Mapping[str, Array]:
        """Heights, for the episode's side file."""
        return {HEIGHTS: np.array([self.highest[name] for name in NAMES])}


@dataclass(frozen=True)
class ProofFactory:
    """The watched scene and the checkpoint under proof; sent to worker processes."""

    checkpoint: str
    camera_size: int

    def world(self, scene: str) -> World:
        """The embedded scene."""
        return WatchedScene(self.camera_size)

    def policy(self, policy: str) -> Policy:
        """The checkpoint."""
        return SceneFactory({policy: self.checkpoint}).policy(policy)

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """The checkpoint's."""
        return SceneFactory({policy: self.checkpoint}).policy_context(policy)


def proof_plan() -> Plan:
    """100 mixed states, then the 50 of task 0, with median decoding."""
    mixed = [(task, index) for index in MIXED_INDICES for task in MIXED_TASKS]
    keys = mixed + [(0, index) for index in PLAIN_INDICES]
    return Plan(tuple(EpisodeKey("embedded", task, index, 0, "base", "median") for task, index in keys))


def prove(factory: ProofFactory, plan: Plan, out: Path, workers: int, console: Console) -> list[dict[str, Any]]:
    """Run what the journal in `out` does not hold yet; the rows of the table over all of it."""
    rows, files = run_whole(plan, out, factory, workers=workers, console=console), SideFiles(out / SIDE)
    return summary(rows, {row.key for row in rows if took_another(row.key, files.read(row.key)[HEIGHTS])})


def took_another(key: EpisodeKey, heights: Array) -> bool:
    """Whether another thing than the named one was picked up."""
    return any(height > LIFTED and name != TARGETS[key.task] for name, height in zip(NAMES, heights, strict=True))


def summary(rows: Sequence[Row], wrong: set[EpisodeKey]) -> list[dict[str, Any]]:
    """One row for the mixed states together, one per named thing in them, one for task 0."""
    mixed = [row for row in rows if row.key.task]
    groups = {"mixed, all": mixed}
    groups |= {f"mixed, {NAMES[name]}": [r for r in mixed if TARGETS[r.key.task] == name] for name in NAMES}
    groups["task 0"] = [row for row in rows if row.key.task == 0]
    table = []
    for name, members in groups.items():
        hits = sum(row.status == "success" for row in members)
        interval = wilson(hits / len(members), len(members)) if members else None
        table.append(
            {
                "states": name,
                "episodes": len(members),
                "in the basket": hits,
                "rate": f"{hits / len(members):.0%}" if members else "-",
                "95 %": f"{interval.low:.0%} to {interval.high:.0%}" if interval else "-",
                "wrong thing picked": sum(row.key in wrong for row in members),
            }
        )
    return table
