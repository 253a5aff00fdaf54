"""A plan that is run: what is done is not done again, what is half done goes on, what was left working is ended."""

import os
import subprocess
import sys

import psutil
import pytest

from lerobot_policy_quantile.studies.plan_run import (
    MARK,
    StepFailedError,
    end_leftovers,
    next_command,
    run_steps,
)
from lerobot_policy_quantile.studies.plan_training import keep_last_checkpoint
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where

WHERE = Where(1280, "runs")
INPUTS = {"study": "mine"}

TRAIN = """
import json, os, sys
folder, steps = sys.argv[1], int(sys.argv[2])
state = os.path.join(folder, "checkpoints", f"{steps:06d}", "training_state")
os.makedirs(state)
json.dump({"step": steps, "num_processes": 2, "batch_size": 64}, open(os.path.join(state, "training_step.json"), "w"))
last = os.path.join(folder, "checkpoints", "last")
os.path.lexists(last) and os.remove(last)
os.symlink(f"{steps:06d}", last)
open(os.path.join(os.path.dirname(folder), "calls"), "a").write(f"{steps} ")
"""


def training(folder, name="a-0", made=20, updates=20):
    place = str(folder / name)
    return StudyCommand("train", name, ("python", "-c", TRAIN, place, str(made)), place, updates, batch=128)


def evaluation(folder, code=0):
    words = ("python", "-c", f"print('why it ended'); raise SystemExit({code})")
    return StudyCommand("eval", "libero", words, str(folder / "libero"))


def run(steps, home, said=None, inputs=INPUTS):
    return run_steps(steps, WHERE, home, inputs, (said if said is not None else []).append)


def train_once(step):
    subprocess.run([sys.executable, *step.words[1:]], check=True)


def test_a_training_begins_goes_on_or_is_done_as_its_last_checkpoint_says(tmp_path):
    step = training(tmp_path)
    assert next_command(step, WHERE) == step
    (tmp_path / "a-0" / "logs").mkdir(parents=True)
    assert next_command(step, WHERE) == step
    assert not (tmp_path / "a-0").exists(), "LeRobot begins only in a new folder"
    train_once(training(tmp_path, made=10))
    going_on = next_command(step, Where(1280, "runs", processes=4))
    assert going_on.words[0] == "torchrun"
    assert {"--resume=true", "--batch_size=32"} <= set(going_on.words)
    assert any(word.endswith("checkpoints/last/pretrained_model/train_config.json") for word in going_on.words)
    train_once(training(tmp_path, made=20))
    assert next_command(step, WHERE) is None


def test_a_finished_training_keeps_its_last_checkpoint_only(tmp_path, monkeypatch):
    for made in (10, 20):
        train_once(training(tmp_path, made=made))
    monkeypatch.chdir(tmp_path)  # relative folders too
    keep_last_checkpoint((tmp_path / "a-0").relative_to(tmp_path))
    assert sorted(path.name for path in (tmp_path / "a-0" / "checkpoints").iterdir()) == ["000020", "last"]


@pytest.mark.bad_input
def test_updates_of_another_global_batch_are_refused(tmp_path):
    step = StudyCommand("train", "a-0", (), str(tmp_path / "a-0"), 20, batch=256)
    train_once(training(tmp_path))
    with pytest.raises(ValueError, match=r"must be 256; its checkpoint was made with 128"):
        next_command(step, WHERE)


def test_a_second_run_repeats_no_training_and_asks_every_evaluation(tmp_path):
    steps = [training(tmp_path), training(tmp_path, "b-0"), evaluation(tmp_path)]
    assert run(steps, tmp_path)
    said = []
    assert run(steps, tmp_path, said)
    assert (tmp_path / "calls").read_text() == "20 20 "
    assert sum("done before" in line for line in said) == 2
    assert not run([evaluation(tmp_path, 3)], tmp_path), "episodes that ended in an error"


@pytest.mark.bad_input
def test_a_command_that_fails_ends_the_run_with_the_end_of_its_log(tmp_path):
    with pytest.raises(
        StepFailedError, match=r"(?s)ended with exit code 7; the end of .*eval-libero.log:.*why it ended"
    ):
        run([evaluation(tmp_path, 7)], tmp_path)
    with pytest.raises(StepFailedError, match="must end after 20 updates; its checkpoint has 10"):
        run([training(tmp_path, made=10)], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run([evaluation(tmp_path, 130)], tmp_path)


@pytest.mark.bad_input
def test_a_folder_belongs_to_one_study_and_one_run(tmp_path):
    run([evaluation(tmp_path)], tmp_path)
    with pytest.raises(ValueError, match="study was 'mine', now 'other'"):
        run([evaluation(tmp_path)], tmp_path, inputs={"study": "other"})
    again = f"""
from pathlib import Path
from lerobot_policy_quantile.studies.plan_run import run_steps
from lerobot_policy_quantile.studies.plans.commands import Where
run_steps([], Where(1, "runs"), Path({str(tmp_path)!r}), {INPUTS!r}, print)
"""
    inner = StudyCommand("eval", "nested", ("python", "-c", again), str(tmp_path))
    with pytest.raises(StepFailedError, match="is in use by another run of a study"):
        run([inner], tmp_path)


def test_what_a_killed_run_left_working_is_ended_and_nothing_else(tmp_path):
    def sleeper(home):
        environment = {**os.environ, MARK: str(home.resolve())}
        words = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)
        process.stdout.readline()  # it runs
        return process

    ours, another = sleeper(tmp_path), sleeper(tmp_path / "other")
    try:
        assert end_leftovers(tmp_path) == [ours.pid]
        assert ours.poll() is not None
        assert psutil.pid_exists(another.pid)
        assert another.poll() is None
    finally:
        another.kill()
        another.wait()
