"""All settings of the three studies, fixed before the initial states they are judged on were touched.

Initial states of every task: policies are trained on demonstrations from 20 to 31; bounds and alarms are fitted, and
settings chosen, on 32 to 44; alarms and reactions are judged on 0 to 19. States 45 to 49 are used by nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan

SUITES = ("libero_spatial", "libero_goal")
"""Scenes of demonstrations, bounds and alarms; each has an alarm of its own."""
ACTING_SUITE = "libero_spatial"
TASKS = tuple(range(10))
CAMERA_SIZE = VARIANTS["tiny"].image_size
BASE = "base_suites"
DECODER = "median"
DRIVER = "driver"
"""Name in journals of the policy that acts."""

TRAINED_ON, FITTED_ON = tuple(range(20, 32)), tuple(range(32, 45))
TRAINING_SEEDS = (0, 1, 2)
"""The first of them drives."""
FLOW_SAMPLES = 8
WATCHED_REPLAN = "fixed:5"
"""Half of a chunk of ten, so that surprise and instability have a plan to compare with."""
SUCCESS_RANGE = (0.2, 0.8)
"""Share of successes on the fitting states outside which the alarm study is refused before the others are touched."""
PATIENCE = 6000.0
"""Seconds of wall time for one episode; the machine may be busy."""


@dataclass(frozen=True)
class DoubtSize:
    """How much is run."""

    tasks: tuple[int, ...]
    demonstrations: int
    """Per task, for training."""
    updates: int
    """Of every training; 0: no policy is trained, the shipped base stands for all of them."""
    held_out: int
    """Demonstrations per task, half for fitting bounds and half for judging them."""
    masses: tuple[float, ...]
    fitting: tuple[int, ...]
    """Initial states of the episodes that alarms are fitted on."""
    judging: tuple[int, ...]
    acting: tuple[int, ...]
    alphas: tuple[float, ...]
    """The first is that of detection and lead, the last that of acting."""
    any_success_rate: bool = False
    """Whether the alarm study goes on outside `SUCCESS_RANGE`."""


FULL = DoubtSize(
    tasks=TASKS,
    demonstrations=4,
    updates=1500,
    held_out=12,
    masses=(0.5, 0.8, 0.95),
    fitting=FITTED_ON,
    judging=tuple(range(16)),
    acting=tuple(range(20)),
    alphas=(0.05, 0.1),
)
SMALL = DoubtSize(
    tasks=(2,),
    demonstrations=2,
    updates=0,
    held_out=4,
    masses=(0.5,),
    fitting=(32, 33, 34, 35, 36, 37),
    judging=(20,),
    acting=(20,),
    alphas=(0.6, 0.7),
    any_success_rate=True,
)
"""A few episodes to see that everything runs; it stays away from the states that studies are judged on."""


@dataclass(frozen=True)
class DoubtStudy:
    """Where things are, and how much is run."""

    out: Path
    pages: Path
    workers: int
    size: DoubtSize
    notes: Console

    def plan(self, suites: tuple[str, ...], states: tuple[int, ...]) -> Plan:
        """The driver's episodes from these initial states; those of one task follow each other."""
        return Plan(
            tuple(
                EpisodeKey(suite, task, state, 0, DRIVER, DECODER)
                for suite in suites
                for task in self.size.tasks
                for state in states
            )
        )
