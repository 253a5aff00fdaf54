"""`calibrate` with a bar of its frames."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lerobot_policy_quantile.calibration.held_out import DatasetFacts
from lerobot_policy_quantile.calibration.policy_facts import PolicyFacts
from lerobot_policy_quantile.calibration.run import CalibrationSettings, calibrate
from lerobot_policy_quantile.util.progress import LoggedProgress


def calibrate_with_bar(
    policies: Sequence[PolicyFacts],
    data: DatasetFacts,
    episodes: Sequence[int],
    settings: CalibrationSettings,
    console: Console,
) -> dict[str, Any]:
    """The record of a run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("frames"))
    with LoggedProgress(*columns, TimeRemainingColumn(), TextColumn("left"), console=console) as bar:
        line = bar.add_task("reading", total=None)
        return calibrate(
            policies,
            data,
            episodes,
            settings,
            lambda policy, done, total: bar.update(line, description=policy, completed=done, total=total),
        )
