"""What a study will cost, from a pilot: a few demonstrations, updates and episodes with the shipped base, timed.

The pilot has a folder of its own and uses no initial state that a study is judged on. Times are of processors, so that
they say much the same on a busy machine. Updates and episodes are the difference of a shorter and a longer pilot, free
of what it takes to start processes and to load models.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lerobot_policy_quantile.calibration.held_out import read_dataset
from lerobot_policy_quantile.calibration.policy_facts import parse_policies
from lerobot_policy_quantile.calibration.run import CalibrationSettings, calibrate
from lerobot_policy_quantile.scenes.suite_folder import CARD
from lerobot_policy_quantile.studies.doubt.acting import FIVE, TEN, ReplanArm, run_arm
from lerobot_policy_quantile.studies.doubt.alarm_study import episodes
from lerobot_policy_quantile.studies.doubt.policies import TRAININGS, demonstrations, policies_of, trained
from lerobot_policy_quantile.studies.doubt.settings import (
    SMALL,
    SUITES,
    TRAINED_ON,
    DoubtSize,
    DoubtStudy,
)
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.tables import aligned

PILOT = replace(SMALL, tasks=(0, 2), demonstrations=1)
PILOT_STATES = ((20,), (20, 21, 22, 23))
PILOT_UPDATES = (2, 22)
"""Of the shorter and the longer pilot."""
ARMS_LIKE_TEN, ARMS_LIKE_FIVE = 2, 3
"""Arms of the acting study that look about as often as fixed ten and as fixed five."""


@dataclass(frozen=True)
class WorkCost:
    """Of one kind of work."""

    name: str
    units: int
    each: float
    """Seconds of one core."""

    @property
    def minutes(self) -> float:
        """Of one core, for all units."""
        return self.units * self.each / 60


@dataclass(frozen=True)
class Pilot:
    """A study of a few tasks in its own folder, its demonstrations, and seconds of a core for one of them."""

    study: DoubtStudy
    dataset: Path
    per_demonstration: float


def estimate(part: str, study: DoubtStudy) -> list[WorkCost]:
    """The costs of one study, the trainings it shares with the others included."""
    small = replace(study, out=study.out / "pilot", size=PILOT)
    dataset = demonstrations(small, "trained_on", TRAINED_ON, PILOT.demonstrations, seed=20)
    pilot, size = Pilot(small, dataset, _cpu_of_demonstrations(dataset.parent)), study.size
    shared = [
        WorkCost("demonstrations to train on", _tasks(size) * size.demonstrations, pilot.per_demonstration),
        WorkCost("updates", len(TRAININGS) * size.updates, _cpu_of_updates(pilot)),
    ]
    return shared + PARTS[part](pilot, size)


def _tasks(size: DoubtSize) -> int:
    return len(SUITES) * len(size.tasks)


def _bounds(pilot: Pilot, size: DoubtSize) -> list[WorkCost]:
    policies, count = policies_of(pilot.study), _tasks(size) * size.held_out
    data = read_dataset(str(pilot.dataset))
    found = [WorkCost("held-out demonstrations", count, pilot.per_demonstration)]
    for name, folder, judged in (("quantile", policies.quantile[0], count), ("flow", policies.flow, count // 2)):
        facts = parse_policies([f"{name}={folder}"])
        before = _spent()
        calibrate(facts, data, tuple(range(data.episodes)), CalibrationSettings())
        found.append(WorkCost(f"episodes judged, {name}", judged, (_spent() - before) / data.episodes))
    return found


def _alarm(pilot: Pilot, size: DoubtSize) -> list[WorkCost]:
    policies, count = policies_of(pilot.study), len(size.fitting) + len(size.judging)
    each = _per_episode(
        pilot.study.out / "alarm", lambda name, states: len(episodes(pilot.study, policies, name, states))
    )
    return [WorkCost("episodes, three policies asked beside", _tasks(size) * count, each)]


def _acting(pilot: Pilot, size: DoubtSize) -> list[WorkCost]:
    policy, tasks = policies_of(pilot.study).quantile[0], len(size.tasks)

    def timed(replan: str) -> float:
        folder = Path(replan.replace(":", "_"))
        arm = ReplanArm(folder.name, replan)
        return _per_episode(
            pilot.study.out / "acting" / folder,
            lambda name, states: len(run_arm(pilot.study, policy, arm, str(folder / name), states)[1]),
        )

    ten, five = timed(TEN), timed(FIVE)
    return [
        WorkCost("episodes to fit the alarm", tasks * len(size.fitting), ten),
        WorkCost("episodes of arms like fixed ten", ARMS_LIKE_TEN * tasks * len(size.acting), ten),
        WorkCost("episodes of arms like fixed five", ARMS_LIKE_FIVE * tasks * len(size.acting), five),
    ]


PARTS: dict[str, Callable[[Pilot, DoubtSize], list[WorkCost]]] = {
    "bounds": _bounds,
    "alarm": _alarm,
    "acting": _acting,
}


def cost_table(costs: list[WorkCost], workers: int) -> str:
    """For a terminal."""
    lines = [["", "units", "seconds of a core each", "minutes of a core"]]
    lines += [[cost.name, str(cost.units), f"{cost.each:.2f}", f"{cost.minutes:.0f}"] for cost in costs]
    total = sum(cost.minutes for cost in costs)
    lines.append(["all", "", "", f"{total:.0f}"])
    return f"{aligned(lines, left=1)}about {total / workers:.0f} minutes on {workers} idle cores\n"


def _cpu_of_demonstrations(folder: Path) -> float:
    tasks = json.loads((folder / CARD).read_text(encoding="utf-8"))["tasks"]
    return float(sum(task["cpu_seconds_per_demonstration"] for task in tasks) / len(tasks))


def _cpu_of_updates(pilot: Pilot) -> float:
    """Seconds of a core per update, too high for later ones: every frame is new to the cache of prefixes."""

    def train(updates: int) -> tuple[float, int]:
        study = replace(pilot.study, out=pilot.study.out / f"updates_{updates}")

        def run() -> int:
            trained(study, pilot.dataset, updates, first=1)
            return updates

        return _kept(study.out, run)

    return _difference(*map(train, PILOT_UPDATES))


def _per_episode(folder: Path, run: Callable[[str, tuple[int, ...]], int]) -> float:
    """Seconds of a core per episode; `run` is given a name and initial states, and says how many it made."""

    def timed(states: tuple[int, ...]) -> tuple[float, int]:
        name = f"timed_{len(states)}"
        return _kept(folder / name, lambda: run(name, states))

    return _difference(*map(timed, PILOT_STATES))


def _difference(few: tuple[float, int], many: tuple[float, int]) -> float:
    """Seconds per unit that the longer pilot has more."""
    return (many[0] - few[0]) / (many[1] - few[1])


def _kept(folder: Path, run: Callable[[], int]) -> tuple[float, int]:
    """Seconds of a core, and the units that `run` says it made in the folder; written there last.

    What a killed pilot left is made anew: going on would cost less than it takes.
    """
    file = folder / "seconds_of_a_core.json"
    if not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        before = _spent()
        made = run()
        write_json(file, [_spent() - before, made])
    seconds, units = json.loads(file.read_text(encoding="utf-8"))
    return float(seconds), int(units)


def _spent() -> float:
    """Processor time of this process and of those it has started and seen end."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
