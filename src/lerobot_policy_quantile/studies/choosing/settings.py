"""All settings of the study, fixed before the episodes it is judged on were run.

LIBERO: the task is searched on initial states 20 to 27, decoders are chosen on 28 to 44, the choice is confirmed on 0
to 19. Two demonstrations: all episodes begin a centimetre or so from the demonstrations' start, those that confirm
from other such starts.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.studies.two_demo.settings import StudySettings, load_settings

BASE = "base_suites"
"""Acts in LIBERO without fine-tuning."""
DECODERS = ("median", "shared", "density", "choice", "tracking")
SUITES = ("libero_spatial", "libero_goal")
"""Where a task is searched: the shipped base solves about two thirds of them."""
FIRST_CONFIRMING_START, CONFIRMING_SEEDS = 101, (0, 1)


@dataclass(frozen=True)
class ChoosingSize:
    """How much is run."""

    demonstrations: StudySettings
    """Of the policies that learn from two demonstrations."""
    budget: int
    """Episodes of all decoders together, in every scene."""
    starts: int
    """Near the demonstrations', to choose on."""
    confirming: int
    """Starts near the demonstrations', to compare the chosen decoder with its rival."""
    tasks: tuple[int, ...]
    searched: tuple[int, ...]
    """Initial states."""
    chosen_on: tuple[int, ...]
    seeds: tuple[int, ...]
    """Every initial state that is chosen on is run once per seed: there are fewer of them than the budget wants."""
    confirmed_on: tuple[int, ...]


FULL = ChoosingSize(
    demonstrations=replace(load_settings("demo"), scenes=("embedded", "libero")),
    budget=150,
    starts=50,
    confirming=40,
    tasks=tuple(range(10)),
    searched=tuple(range(20, 28)),
    chosen_on=tuple(range(28, 45)),
    seeds=(0, 1, 2),
    confirmed_on=tuple(range(20)),
)
SMALL = ChoosingSize(
    demonstrations=replace(load_settings("demo"), obstacle=(True,), updates=20),
    budget=8,
    starts=3,
    confirming=2,
    tasks=(2,),
    searched=(20,),
    chosen_on=(30, 31, 32),
    seeds=(0,),
    confirmed_on=(21,),
)
"""A few episodes, to see that everything runs; in LIBERO from none of the states that confirm."""


@dataclass(frozen=True)
class ChoosingStudy:
    """Where things are, and how much is run."""

    out: Path
    page: Path
    workers: int
    size: ChoosingSize
    notes: Console
