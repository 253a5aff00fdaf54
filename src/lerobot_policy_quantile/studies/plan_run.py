"""Runs the steps of a plan, trainings side by side if asked to; killed at any moment, the same command goes on.

A step is done when what it leaves says so: a dataset's summary, a training's last checkpoint, a journal without missing
episodes. Processes carry a mark in their environment, so that what a killed run left working is found and ended.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lerobot_policy_quantile.studies.plan_training import (
    keep_figures,
    keep_last_checkpoint,
    side_by_side,
    trained_steps,
)
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where, resumed
from lerobot_policy_quantile.util.exit_codes import STOPPED, WITH_ERRORS
from lerobot_policy_quantile.util.locks import alone
from lerobot_policy_quantile.util.stamps import Stamp

MARK = "QHEAD_STUDY_RUN"
"""Environment variable of every process that a run starts: the study's folder."""

LAST_LINES = 15

Say = Callable[[str], None]


class StepFailedError(RuntimeError):
    """A command ended with an error."""


def run_steps(
    steps: Sequence[StudyCommand],
    where: Where,
    home: Path,
    inputs: Mapping[str, Any],
    say: Say,
    *,
    parallel: int = 1,
    root: Path | None = None,
) -> bool:
    """Run every step that is not done; whether all episodes have a result. Trials of a robot are left to people.

    Up to `parallel` trainings run at once and share the cores. `root` is the folder of studies that share trainings:
    one of them runs at a time, and logs are there.
    """
    home.mkdir(parents=True, exist_ok=True)
    root = home if root is None else root
    mine = [step for step in steps if step.kind in ("collect", "train", "eval")]
    place = {step: f"[{number}/{len(mine)}] {step.kind} {step.name}" for number, step in enumerate(mine, start=1)}
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // parallel))} if parallel > 1 else {}

    def run(step: StudyCommand) -> int:
        pending = next_command(step, where)
        if pending is None:
            say(f"{place[step]}: done before")
            return 0
        say(f"{place[step]}: {pending.text}")
        began = time.monotonic()
        code = _execute(pending, root, threads if step.kind == "train" else {})
        say(f"{place[step]}: {time.monotonic() - began:.0f} s")
        return code

    def train(step: StudyCommand) -> None:
        run(step)
        _require_complete(step)
        keep_last_checkpoint(Path(step.folder))
        keep_figures(Path(step.folder), log_of(step, root))

    with _alone(root):
        stamp = Stamp(home, "study", inputs)
        if not stamp.done():
            stamp.write()
        for step in mine:
            if step.kind == "collect":
                run(step)
        side_by_side([step for step in mine if step.kind == "train"], train, parallel)
        codes = [run(step) for step in mine if step.kind == "eval"]
        return not any(codes)


def next_command(step: StudyCommand, where: Where) -> StudyCommand | None:
    """What must be run for a step: itself, a training from its last checkpoint, or nothing.

    An evaluation is always asked: it knows its journal, and says in a second that nothing is missing.
    """
    folder = Path(step.folder)
    if step.kind == "collect":
        if (folder / "summary.json").is_file():
            return None
        shutil.rmtree(folder, ignore_errors=True)  # half a dataset
    if step.kind == "train":
        done = trained_steps(step)
        if done is not None:
            return None if done >= step.updates else resumed(step, where)
        shutil.rmtree(folder, ignore_errors=True)  # no checkpoint yet: LeRobot begins only in a new folder
    return step


def _require_complete(step: StudyCommand) -> None:
    done = trained_steps(step)
    if done is None or done < step.updates:
        raise StepFailedError(f"training {step.name} must end after {step.updates} updates; its checkpoint has {done}")


def log_of(step: StudyCommand, home: Path) -> Path:
    """Where a command's output goes."""
    return home / "logs" / f"{step.kind}-{step.name}.log"


def _execute(step: StudyCommand, home: Path, further: Mapping[str, str]) -> int:
    """Run a command, its output in a log; returns the exit code of one that came to its end."""
    log = log_of(step, home)
    log.parent.mkdir(exist_ok=True)
    environment = {**os.environ, **further, MARK: str(home.resolve())}
    with log.open("ab") as output:
        process = subprocess.Popen(_found(step.words), stdout=output, stderr=output, env=environment)
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the terminal told the child as well
            process.wait()
            raise
    if code == STOPPED:
        raise KeyboardInterrupt
    if code not in (0, WITH_ERRORS if step.kind == "eval" else 0):
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
        raise StepFailedError(f"{step.kind} {step.name} ended with exit code {code}; the end of {log}:\n{tail}")
    return code


def _found(words: Sequence[str]) -> list[str]:
    """The command with its program from this Python's environment, if it is there."""
    program, *rest = words
    if program == "python":
        return [sys.executable, *rest]
    beside = Path(sys.executable).parent / program
    return [str(beside) if beside.is_file() else program, *rest]


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One run per folder; what an earlier, killed one left working is ended first."""
    with alone(home, "run of a study"):
        end_leftovers(home)
        yield


def end_leftovers(home: Path) -> list[int]:
    """End processes that carry the mark of this folder; nobody else has them in hand while we hold its lock."""
    left = [process for process in psutil.process_iter() if _mark_of(process) == str(home.resolve())]
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10)
    return [process.pid for process in left]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        found: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):  # it has ended, or is none of our business
        return None
    return found if process.pid != os.getpid() else None
