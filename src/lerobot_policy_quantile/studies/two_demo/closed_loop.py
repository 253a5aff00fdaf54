"""The closed loop of an arm through the evaluation engine: every trained policy with every decoder (App. B.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console

from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy, saved_context
from lerobot_policy_quantile.contract import Policy, World
from lerobot_policy_quantile.evaluation.engine import RunSummary
from lerobot_policy_quantile.evaluation.journal import Journal, Row, read_rows
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.whole_run import run_watched
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from lerobot_policy_quantile.scenes.contract import Scene
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.checks import identical_repeats
from lerobot_policy_quantile.studies.two_demo.demos import ENVIRONMENT_SEED, KEY, arm_scene
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings
from lerobot_policy_quantile.studies.two_demo.start import only_float32

TIMEOUT = 900.0

TURN = 10
"""Episodes of every decoder of a head before the next head's model takes its place."""


NUDGE_STEPS, NUDGE, OPEN = 3, 0.33, -1.0
"""Control steps from the shared start to a nearby one, their speed, which is the demonstrations', and the gripper's
command: the hand ends a centimetre or so away."""


class SameStart:
    """A scene whose episodes all begin in the demonstrations' start, or near it; a key's seed numbers the episode's
    noise only. Its index is 0 at the shared start and the number of a nearby one otherwise.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.versions: Mapping[str, str] = {**scene.versions, "environment_seed": str(ENVIRONMENT_SEED)}

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin at the shared start, and for a nearby one move the hand a little in a direction of its own."""
        self._scene.reset(task, KEY[1], ENVIRONMENT_SEED)
        if start := index - KEY[1]:
            way = np.random.default_rng([ENVIRONMENT_SEED, start]).normal(size=3)
            nudge = np.concatenate([NUDGE * way / np.linalg.norm(way), np.zeros(3), [OPEN]])
            for step in range(NUDGE_STEPS):
                self._scene.step(nudge, observe=step == NUDGE_STEPS - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)


@dataclass(frozen=True)
class StudyFactory:
    """Worlds and trained policies by name; sent to worker processes."""

    arm: Path
    settings: StudySettings

    def world(self, scene: str) -> World:
        """The arm's scene, always at the shared start."""
        return cast(World, SameStart(arm_scene(scene, self.settings)))

    def policy(self, policy: str) -> Policy:
        """A trained head."""
        import torch

        import lerobot_policy_quantile

        torch.set_num_threads(1)
        only_float32()
        _ = lerobot_policy_quantile.QuantileConfig  # registers the policy type
        return load_lerobot_policy(self._folder(policy), device=self.settings.device)

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """The context of a trained head; None where its weights are gone."""
        import lerobot_policy_quantile

        _ = lerobot_policy_quantile.QuantileConfig
        folder = self._folder(policy)
        return saved_context(folder, device=self.settings.device) if folder.is_dir() else None

    def _folder(self, policy: str) -> Path:
        head, _, seed = policy.rpartition("-")
        return records.seed_folder(self.arm, int(seed)) / records.POLICIES / head


def arm_plan(arm: str, settings: StudySettings) -> Plan:
    """Every (head, decoder, training seed, episode) of an arm; what is compared sees the same noise.

    Decoders take turns, episode by episode, and heads every `TURN` episodes, so that a model is loaded once per turn: a
    run that has come half-way has about half of every decoder's episodes. Nearby starts come last.
    """
    task, index, _ = KEY
    numbers = {pair: settings.arm_episodes(*pair) for pair in settings.arm_decoders(arm)}
    episodes = sorted(set().union(*numbers.values()))
    nearby = tuple(
        EpisodeKey(arm, task, index + start, settings.first_episode, records.policy_name(head, training_seed), decoder)
        for training_seed in settings.training_seeds
        for head, decoder in numbers
        for start in settings.arm_starts(head, decoder)
    )
    return Plan(
        tuple(
            EpisodeKey(arm, task, index, episode, records.policy_name(head, training_seed), decoder)
            for training_seed in settings.training_seeds
            for turn in range(0, len(episodes), TURN)
            for head in dict.fromkeys(head for head, _ in numbers)
            for episode in episodes[turn : turn + TURN]
            for (own, decoder), its in numbers.items()
            if own == head and episode in its
        )
        + nearby
    )


def run_arm(folder: Path, settings: StudySettings, *, workers: int, console: Console) -> RunSummary:
    """Run the episodes that the arm's journal does not have yet."""
    plan = arm_plan(folder.name, settings)
    job = WorkerJob(
        StudyFactory(folder, settings),
        settings.arm_limit(folder.name),
        SideFiles(folder / records.SIDE),
        folder / "workers.log",
    )
    with Journal(folder / records.JOURNAL) as journal:
        return run_watched(plan, journal, job, workers=workers, timeout=TIMEOUT, console=console)


def repeat_checks(folder: Path, settings: StudySettings) -> list[records.Check]:
    """Whether repeated median episodes are the same, for every training seed."""
    rows = read_rows(folder / records.JOURNAL)
    return [
        identical_repeats(name, _median_rows(rows, name))
        for name in (records.policy_name("quantile", seed) for seed in settings.training_seeds)
    ]


def _median_rows(rows: list[Row], policy: str) -> list[Row]:
    return [row for row in rows if (row.key.policy, row.key.decoder, row.key.index) == (policy, "median", KEY[1])]
