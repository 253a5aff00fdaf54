"""Runs on fake worlds in processes of their own, which tests watch and kill."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from lerobot_policy_quantile.evaluation.journal import JournalError, read_rows
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]


def start(folder: Path, *options: object, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*wrapper, sys.executable, "-m", "tests.support.fake_run", str(folder), *map(str, options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)


def finish(process: subprocess.Popen[str], timeout: float = PATIENCE) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def rows_of(folder: Path):
    path = folder / "journal.sqlite"
    try:
        return read_rows(path)
    except JournalError:  # not there yet
        return []


def await_rows(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: process.poll() is not None or len(rows_of(folder)) >= count, f"row {count}")
    assert process.poll() is None, f"the run ended with {process.communicate()}"


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def await_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The workers, as soon as there are any: a run that has just begun has none."""
    wait_until(lambda: process.poll() is not None or workers_of(process), "a worker")
    assert process.poll() is None, "the run ended before it had workers"
    return workers_of(process)


def everything_but_chance(row):
    """A row without its wall time and the number of attempts it took."""
    return (row.key, row.status, row.steps, row.first_action, row.final_state, row.hashes, row.versions)
