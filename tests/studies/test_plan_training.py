"""Trainings side by side: how many at once, what a failure or a kill leaves, and gradients from the log."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from lerobot_policy_quantile.studies.plan_run import StepFailedError, run_steps
from lerobot_policy_quantile.studies.plan_training import (
    gradients_in,
    keep_figures,
    read_gradients,
    read_times,
    side_by_side,
)
from lerobot_policy_quantile.studies.plans.commands import StudyCommand
from tests.studies.test_plan_run import INPUTS, WHERE, training

TWO_AT_ONCE = """
import os, sys, time
here, other = sys.argv[3], sys.argv[4]
assert os.environ["OMP_NUM_THREADS"] == sys.argv[5], os.environ["OMP_NUM_THREADS"]
open(here, "w").close()
until = time.monotonic() + 60
while not os.path.exists(other):
    assert time.monotonic() < until, "the other training never ran beside this one"
    time.sleep(0.01)
"""


def test_two_trainings_run_at_once_with_their_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    steps = []
    for name, other in (("a", "b"), ("b", "a")):
        step = training(tmp_path, f"{name}-0")
        script = TWO_AT_ONCE + step.words[2]
        words = (*step.words[:2], script, *step.words[3:], str(tmp_path / name), str(tmp_path / other), "1")
        steps.append(StudyCommand("train", step.name, words, step.folder, 20, 128))
    assert run_steps(steps, WHERE, tmp_path, INPUTS, print, parallel=2)
    assert (tmp_path / "calls").read_text() == "20 20 "


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_never_more_than_asked_for_and_each_once(parallel):
    running, most, done, lock = 0, 0, [], threading.Lock()

    def train(step):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
            done.append(step)

    side_by_side(range(7), train, parallel)
    assert sorted(done) == list(range(7))
    assert most == parallel


@pytest.mark.bad_input
def test_after_a_failure_nothing_new_begins_and_what_runs_comes_to_its_end():
    begun, ended, beside = [], [], threading.Event()

    def train(step):
        begun.append(step)
        if step == 0:
            beside.wait(10)
            raise StepFailedError("no")
        beside.set()
        time.sleep(0.3)
        ended.append(step)

    with pytest.raises(StepFailedError, match="no"):
        side_by_side(range(6), train, 2)
    assert begun == [0, 1]
    assert ended == [1]


SLOW = """
import time
time.sleep(float(__import__("sys").argv[3]))
"""


def test_killed_with_two_trainings_running_it_goes_on_with_what_is_missing(tmp_path):
    """The first is done, two are running when the run is killed; the next run ends them and repeats no work."""
    driver = f"""
import sys
from pathlib import Path
from lerobot_policy_quantile.studies.plan_run import run_steps
from tests.studies.test_plan_training import slow_steps
run_steps(slow_steps(Path({str(tmp_path)!r}), [0, 600, 600]), {WHERE!r}, Path({str(tmp_path)!r}), {INPUTS!r}, print,
          parallel=2)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", "from lerobot_policy_quantile.studies.plans.commands import *\n" + driver]
    )
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "logs" / "train-s2.log").exists():
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "calls").read_text() == "20 "
    said = []
    assert run_steps(slow_steps(tmp_path, [0, 0, 0]), WHERE, tmp_path, INPUTS, said.append, parallel=2)
    assert (tmp_path / "calls").read_text() == "20 20 20 "
    assert sum("done before" in line for line in said) == 1


def slow_steps(folder, seconds):
    steps = []
    for number, pause in enumerate(seconds):
        step = training(folder, f"s{number}")
        words = (*step.words[:2], SLOW + step.words[2], *step.words[3:], str(pause))
        steps.append(StudyCommand("train", step.name, words, step.folder, 20, 128))
    return steps


LOG = """INFO step:1 smpl:32 ep:0 epch:0.01 loss:0.231 grdn:3.000 lr:1.0e-05 updt_s:0.100 data_s:0.025
INFO step:2 smpl:64 ep:0 epch:0.01 loss:0.231 grdn:0.500 lr:1.0e-05 updt_s:0.100 data_s:0.025
INFO step:3 smpl:96 ep:0 epch:0.01 loss:0.231 grdn:1.000 lr:1.0e-05 updt_s:0.100 data_s:0.025
"""


def test_the_logs_gradient_norms_become_a_small_file_once(tmp_path):
    assert gradients_in("nothing") is None
    log = tmp_path / "log"
    keep_figures(tmp_path, log)
    assert read_gradients(tmp_path) is None
    log.write_text(LOG)
    keep_figures(tmp_path, log)
    found = read_gradients(tmp_path)
    assert (found.logged, found.mean, found.median) == (3, 1.5, 1.0)
    assert (read_times(tmp_path).updates, read_times(tmp_path).ms) == (3, 125.0)
    assert read_times(tmp_path).seconds == pytest.approx(0.375)
    assert found.clipped == pytest.approx(1 / 3), "a norm of 1 is not clipped"
    log.write_text("")
    keep_figures(tmp_path, log)
    assert json.loads((tmp_path / "gradients.json").read_text())["logged"] == 3
