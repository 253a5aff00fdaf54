"""The base checkpoint in closed loop, from initial states that pretraining never saw: how often, and what else it took.

Tasks 1 to 4 of the embedded scene (100 mixed layouts) and task 0 (its 50 layouts). Their random keys are not those of
pretraining data.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.adapters.lerobot_folder import fingerprint, load_lerobot_policy
from lerobot_policy_quantile.contract import Policy
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from lerobot_policy_quantile.evaluation.worker import end_with_parent
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import NAMES, TARGETS, EmbeddedScene

LIFTED = 0.03  # metres above where it stood: picked up
MIXED_TASKS, MIXED_INDICES, PLAIN_INDICES = (1, 2, 3, 4), range(25, 50), range(50)
"""Indices 0 to 24 of the mixed tasks were looked at while `n_action_steps` was chosen, so they prove nothing."""


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

    def taken(self) -> list[str]:
        """Things that were lifted, the named one among them or not."""
        return [name for name, height in self.highest.items() if height > LIFTED]


@dataclass(frozen=True)
class Episode:
    """How one episode ended."""

    task: int
    index: int
    named: str
    success: bool
    steps: int
    taken: list[str]
    hand_to_thing_mm: float

    @property
    def wrong(self) -> bool:
        """Whether another thing than the named one was picked up."""
        return any(name != self.named for name in self.taken)


@cache
def _policy(folder: Path) -> Policy:
    import lerobot_policy_quantile

    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    return load_lerobot_policy(folder)


@cache
def _scene(camera_size: int) -> WatchedScene:
    return WatchedScene(camera_size)


def run_key(folder: Path, camera_size: int, task: int, index: int) -> Episode:
    """One episode with median decoding; a process keeps its simulator and its policy."""
    scene = _scene(camera_size)
    rollout = run_episode(scene, _policy(folder), EpisodeKey("embedded", task, index, 0, "base", "median"))
    if rollout.outcome.status == "error":
        raise RuntimeError(f"task {task}, index {index}: {rollout.outcome.traceback}")
    apart = np.linalg.norm(scene.world.position(TARGETS[task]) - scene.state()[:3])
    solved = rollout.outcome.status == "success"
    return Episode(task, index, TARGETS[task], solved, rollout.outcome.steps, scene.taken(), round(1000 * apart))


def require_same_policy(out: Path, policy: str) -> None:
    """Episodes of two checkpoints must not be counted together."""
    mark = out.with_suffix(".policy")
    if out.exists() and (not mark.exists() or mark.read_text() != policy):
        raise ValueError(f"{out} holds episodes of another checkpoint than {policy}; give a new file")
    out.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(policy)


def prove(folder: Path, camera_size: int, keys: list[tuple[int, int]], out: Path, workers: int) -> Iterator[Episode]:
    """Run what `out` (one JSON line per episode) does not hold yet; yields every episode, stored ones first."""
    require_same_policy(out, fingerprint(folder))
    done = [Episode(**json.loads(line)) for line in out.read_text().splitlines()] if out.exists() else []
    stored = {(episode.task, episode.index): episode for episode in done}
    yield from (stored[key] for key in keys if key in stored)
    missing = [key for key in keys if key not in stored]
    if not missing:
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        run = partial(run_key, folder, camera_size)
        for episode in pool.map(run, *zip(*missing, strict=True)):
            with out.open("a") as file:
                file.write(json.dumps(asdict(episode)) + "\n")
            yield episode


def _begin() -> None:
    import torch

    torch.set_num_threads(1)
    end_with_parent()


def all_keys() -> list[tuple[int, int]]:
    """100 mixed states, then the 50 of task 0."""
    mixed = [(task, index) for index in MIXED_INDICES for task in MIXED_TASKS]
    return mixed + [(0, index) for index in PLAIN_INDICES]


def summary(episodes: list[Episode]) -> list[dict[str, Any]]:
    """One row for the mixed states together, one per named thing in them, one for task 0."""
    mixed = [episode for episode in episodes if episode.task]
    groups = {"mixed, all": mixed}
    groups |= {f"mixed, {NAMES[name]}": [e for e in mixed if e.named == name] for name in NAMES}
    groups["task 0"] = [episode for episode in episodes if episode.task == 0]
    rows = []
    for name, members in groups.items():
        hits = sum(episode.success for episode in members)
        interval = wilson(hits / len(members), len(members)) if members else None
        rows.append(
            {
                "states": name,
                "episodes": len(members),
                "in the basket": hits,
                "rate": f"{hits / len(members):.0%}" if members else "-",
                "95 %": f"{interval.low:.0%} to {interval.high:.0%}" if interval else "-",
                "wrong thing picked": sum(episode.wrong for episode in members),
            }
        )
    return rows
