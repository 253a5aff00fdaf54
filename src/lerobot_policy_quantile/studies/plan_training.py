"""Trainings of a plan: how far they are, several side by side, and what their logs say about gradients."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from threading import Event

from lerobot_policy_quantile.studies.plans.commands import StudyCommand
from lerobot_policy_quantile.util.files import write_json

GRADIENTS = "gradients.json"
"""Beside the checkpoints of a training: `Gradients`."""

CLIP_NORM = 1.0
"""LeRobot clips gradients to the policy's `optimizer_grad_clip_norm`, which no plan changes."""

TIMES = "times.json"
"""Beside it: `UpdateTimes`."""

_TIMES = re.compile(r"\bupdt_s:([0-9.]+)\s+data_s:([0-9.]+)")
_NORM = re.compile(r"\bgrdn:([0-9.]+|nan|inf)")


@dataclass(frozen=True)
class Gradients:
    """Norms before clipping, as LeRobot logs them; means over several updates where it does not log each."""

    logged: int
    mean: float
    median: float
    clipped: float
    """Share of norms above `CLIP_NORM`."""


@dataclass(frozen=True)
class UpdateTimes:
    """Wall time of a training's updates, as LeRobot logs it; those repeated after a kill count each time."""

    updates: int
    ms: float
    """Mean of one update, its samples included."""

    @property
    def seconds(self) -> float:
        """Of all updates."""
        return self.updates * self.ms / 1000


def side_by_side(steps: Iterable[StudyCommand], train: Callable[[StudyCommand], None], parallel: int) -> None:
    """Train up to `parallel` at once. After a failure or Ctrl-C no other begins; those that run are waited for."""
    ending = Event()

    def one(step: StudyCommand) -> None:
        if not ending.is_set():
            try:
                train(step)
            except BaseException:
                ending.set()
                raise

    with ThreadPoolExecutor(parallel) as pool:
        try:
            for future in as_completed([pool.submit(one, step) for step in steps]):
                future.result()
        finally:
            ending.set()


def trained_steps(step: StudyCommand) -> int | None:
    """Updates in a training's last checkpoint; None without one. `last` is moved after a checkpoint is whole.

    Updates of another global batch are another training.
    """
    path = Path(step.folder) / "checkpoints" / "last" / "training_state" / "training_step.json"
    if not path.is_file():
        return None
    state = json.loads(path.read_text(encoding="utf-8"))
    batch = state["batch_size"] * state["num_processes"]
    if batch != step.batch:
        raise ValueError(f"global batch of {step.folder} must be {step.batch}; its checkpoint was made with {batch}")
    return int(state["step"])


def keep_last_checkpoint(folder: Path) -> None:
    """Remove the checkpoints that a finished training left on its way."""
    last = (folder / "checkpoints" / "last").resolve()
    for path in (folder / "checkpoints").iterdir():
        if not path.is_symlink() and path.resolve() != last:
            shutil.rmtree(path)


def keep_figures(folder: Path, log: Path) -> None:
    """Write what a finished training's log says about gradients and times beside its checkpoints, once."""
    if (folder / GRADIENTS).is_file() or not log.is_file():
        return
    text = log.read_text(encoding="utf-8", errors="replace")
    gradients, times = gradients_in(text), times_in(text)
    if times is not None:
        write_json(folder / TIMES, asdict(times))
    if gradients is not None:
        write_json(folder / GRADIENTS, asdict(gradients))


def gradients_in(log: str) -> Gradients | None:
    """Of a training's log; updates that were repeated after a kill count each time. None where it has no norms."""
    norms = [float(norm) for norm in _NORM.findall(log)]
    if not norms:
        return None
    clipped = sum(norm > CLIP_NORM for norm in norms) / len(norms)
    return Gradients(len(norms), fmean(norms), median(norms), clipped)


def times_in(log: str) -> UpdateTimes | None:
    """Of a training's log that has a line for every update; None where it has no times."""
    each = [float(update) + float(data) for update, data in _TIMES.findall(log)]
    return UpdateTimes(len(each), round(1000 * fmean(each), 2)) if each else None


def read_times(folder: Path) -> UpdateTimes | None:
    """Of a training's folder; None where they were not logged."""
    path = folder / TIMES
    return UpdateTimes(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def read_gradients(folder: Path) -> Gradients | None:
    """Of a training's folder; None where they were not logged."""
    path = folder / GRADIENTS
    return Gradients(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
