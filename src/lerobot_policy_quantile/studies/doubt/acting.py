"""`make acting-study`: success and expert passes when the alarm makes the loop look again, on the same episodes.

The alarm and the adaptive threshold come from episodes with ten steps per look from the fitting states: the threshold
is the spread at which their chunks would have been followed for five steps per look, as the fixed five are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lerobot_policy_quantile.adapters.alarmed import REPLAN, STOP, AlarmRule
from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.calibration.alarm_fit import RecordedEpisode, fit_alarm, read_episodes
from lerobot_policy_quantile.calibration.spread import motion_units
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import Interval, compare, wilson
from lerobot_policy_quantile.evaluation.whole_run import SIDE, run_whole
from lerobot_policy_quantile.serving.spread import motion_spread, spread
from lerobot_policy_quantile.studies.adaptive_threshold import matching_threshold
from lerobot_policy_quantile.studies.doubt.figures import acting_figure
from lerobot_policy_quantile.studies.doubt.page import MISSING, write_page
from lerobot_policy_quantile.studies.doubt.policies import policies_of
from lerobot_policy_quantile.studies.doubt.settings import (
    ACTING_SUITE,
    CAMERA_SIZE,
    DRIVER,
    PATIENCE,
    DoubtStudy,
)
from lerobot_policy_quantile.util.tables import markdown

TEN, FIVE = "fixed:10", "fixed:5"
LEAST = 2
"""Steps that the adaptive arm executes at least."""
STEPS_PER_LOOK = 5
COSTS = ("expert passes per episode", "steps per pass")


@dataclass(frozen=True)
class ReplanArm:
    """One way to execute chunks."""

    name: str
    replan: str
    alarm: AlarmRule | None = None


@dataclass(frozen=True)
class Acted:
    """One arm's episodes, by task and initial state, and how often the policy was asked in each."""

    rows: Mapping[tuple[int, int], Row]
    looks: Mapping[tuple[int, int], int]

    @property
    def won(self) -> dict[tuple[int, int], bool]:
        """Whether each episode succeeded."""
        return {at: row.status == "success" for at, row in self.rows.items()}

    @property
    def rate(self) -> Interval:
        """Of success."""
        return wilson(sum(self.won.values()) / len(self.rows), len(self.rows))

    @property
    def passes(self) -> float:
        """Of the expert, per episode."""
        return sum(self.looks.values()) / len(self.rows)


def run_acting(study: DoubtStudy) -> None:
    """Run what is missing and write the page."""
    policy = policies_of(study).quantile[0]
    known_run, known_rows = run_arm(study, policy, ReplanArm("known", TEN), "known", study.size.fitting)
    known = read_episodes(known_run, known_rows)
    file = study.out / "acting" / "alarm.json"
    fit_alarm(known, alpha=study.size.alphas[-1]).write(file)
    acted = {}
    for number, arm in enumerate(arms(file, adaptive_threshold(known))):
        run, rows = run_arm(study, policy, arm, f"arm_{number}", study.size.acting)
        acted[arm.name] = acted_in(run, rows)
    figure = acting_figure((name, own.passes, asdict(own.rate)) for name, own in acted.items())
    write_page(study, "acting", "Acting on the alarm", opening(study, acted), figure, [arm_table(acted), NOTES])


def arms(alarm: Path, threshold: float) -> tuple[ReplanArm, ...]:
    """All that are compared."""
    return (
        ReplanArm("fixed ten", TEN),
        ReplanArm("fixed five", FIVE),
        ReplanArm("ten, one on alarm", TEN, AlarmRule(str(alarm), REPLAN)),
        ReplanArm("adaptive", f"adaptive:{threshold:.4f},least={LEAST}"),
        ReplanArm("ten, stop on alarm", TEN, AlarmRule(str(alarm), STOP)),
    )


def run_arm(
    study: DoubtStudy, policy: str, arm: ReplanArm, name: str, states: tuple[int, ...]
) -> tuple[Path, list[Row]]:
    """The folder of an arm's run and its rows, those that are missing run first."""
    folder = study.out / "acting" / name
    factory = SceneFactory({DRIVER: policy}, CAMERA_SIZE, replan=arm.replan, alarm=arm.alarm)
    plan = study.plan((ACTING_SUITE,), states)
    rows = run_whole(plan, folder, factory, workers=study.workers, console=study.notes, timeout=PATIENCE)
    return folder, rows


def adaptive_threshold(known: Sequence[RecordedEpisode]) -> float:
    """The spread, in the robot's action units, at which the adaptive arm stops following a chunk."""
    quantiles = np.concatenate([episode.quantiles for episode in known])
    levels = [float(level) for level in quantile_levels(quantiles.shape[-1])]
    motion = motion_units(None, quantiles.shape[2], []).motion
    grippers = [d for d in range(quantiles.shape[2]) if d not in motion]
    spreads = np.stack([motion_spread(spread(chunk, levels), grippers) for chunk in quantiles])
    return matching_threshold(spreads, STEPS_PER_LOOK, LEAST)


def acted_in(run: Path, rows: Sequence[Row]) -> Acted:
    """An arm's episodes as the table needs them; a look is an expert pass."""
    files = SideFiles(run / SIDE)
    by_place = {(row.key.task, row.key.index): row for row in rows}
    return Acted(by_place, {at: len(files.read(row.key)["query_steps"]) for at, row in by_place.items()})


def opening(study: DoubtStudy, acted: Mapping[str, Acted]) -> str:
    """What the page is about."""
    return (
        "After this page you can tell whether it pays to look again when the alarm is on. A miniature policy in"
        f" LIBERO-Spatial, the same {len(acted['fixed ten'].rows)} episodes in every arm, from other initial states"
        f" than those of the alarm (alpha = {study.size.alphas[-1]:g}) and of the adaptive threshold."
    )


NOTES = """\
- Differences are paired: episodes that only this arm solves / only the other, with McNemar's p-value.
- A stopped episode is a failure before its limit. `stopped failures` are those that fixed ten fails too, `stopped
  successes` those that it solves: the price of stopping.
- Chunks have ten steps: with ten executed no plan is left over, and the alarm goes by widths alone.
- Adaptive follows a chunk while its spread stays below a threshold that was chosen for five steps per look."""


def arm_table(acted: Mapping[str, Acted]) -> str:
    """One line per arm."""
    ten, lines = acted["fixed ten"], []
    for name, own in acted.items():
        won, rate = own.won, own.rate
        early = [at for at, row in own.rows.items() if not won[at] and row.steps < int(row.versions["limit"])]
        spared = sum(ten.rows[at].status != "success" for at in early)
        stopped = (str(spared), str(len(early) - spared)) if "stop" in name else (MISSING, MISSING)
        against = [MISSING if other == name else paired(own, acted[other]) for other in ("fixed ten", "fixed five")]
        steps = sum(row.steps for row in own.rows.values())
        success = (f"{sum(won.values())} of {len(won)}", f"{rate.low:.0%} to {rate.high:.0%}")
        lines.append([name, *success, *against, *stopped, f"{own.passes:.1f}", f"{steps / own.passes / len(won):.1f}"])
    stops = ("stopped failures", "stopped successes")
    return markdown(("arm", "success", "95 %", "against fixed ten", "against fixed five", *stops, *COSTS), lines)


def paired(own: Acted, other: Acted) -> str:
    """Episodes that only one of two arms solves."""
    found = compare([(own.won[at], other.won[at]) for at in own.rows])
    return f"{found.only_a} / {found.only_b} (p = {found.p_value:.2g})"
