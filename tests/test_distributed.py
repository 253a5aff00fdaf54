"""Two processes through `lerobot-train` (accelerate, gloo, CPU) do what one process does, and never hang."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.command_line import BIN, PATIENCE, run, start, train_arguments, wait_for_file
from tests.support.datasets import make_dataset
from tests.support.ddp_edge_cases import CASES

pytestmark = pytest.mark.slow
STEPS, SAVE = 24, 8
# 240 frames: neither run leaves the first epoch, and no batch is short.
FRAMES = 80
SETTINGS = (
    *("--policy.scheduler_warmup_steps=4", "--policy.optimizer_lr=3e-4", "--policy.drop_ratio=0.3"),
    *(f"--steps={STEPS}", f"--save_freq={SAVE}"),
)
PRECISE = "--policy.discover_packages_path=tests.support.precise_log"
LAUNCH = (BIN / "torchrun", "--standalone", "--nproc_per_node=2")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Where all runs live, with the dataset of all."""
    root = tmp_path_factory.mktemp("distributed")
    make_dataset(root / "data", frames=FRAMES)
    return root


@pytest.fixture(scope="module")
def one(root) -> subprocess.Popen[bytes]:
    """One process with batches of 8; it goes on beside the others."""
    arguments = train_arguments(root / "data", root / "one", *SETTINGS, PRECISE, "--batch_size=8")
    return start(BIN / "lerobot-train", *arguments, log=root / "one.log")


@pytest.fixture(scope="module")
def broken(root, one) -> int:
    """Two processes with batches of 4, one of them killed after a checkpoint: how the run ended."""
    arguments = train_arguments(root / "data", root / "two", *SETTINGS, PRECISE)
    two = start(*LAUNCH, BIN / "lerobot-train", *arguments, log=root / "two.log")
    wait_for_file(root / "two" / "checkpoints" / "last", two, root / "two.log")
    os.kill(workers(two.pid)[1], signal.SIGKILL)
    return two.wait(PATIENCE)


@pytest.fixture(scope="module")
def resumed(root, one, broken) -> Path:
    """The broken run, continued by two processes, which then go through the cases that could hang."""
    config = root / "two" / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
    arguments = (f"--config_path={config.resolve()}", "--resume=true", PRECISE)
    run(*LAUNCH, "-m", "tests.support.ddp_edge_cases", *arguments, log=root / "resumed.log")
    assert one.wait(PATIENCE) == 0, (root / "one.log").read_text()[-3000:]
    return root


def workers(launcher: int) -> list[int]:
    """The processes a launcher started, by rank."""
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True, check=True)
    return sorted(int(pid) for pid in listing.stdout.split())


def losses(log: Path) -> dict[int, float]:
    return {int(s): float(v) for s, v in re.findall(r"step:(\d+) .*?loss:(\S+)", log.read_text(errors="replace"))}


def test_two_processes_have_the_loss_curve_of_one(resumed):
    """Label masks included: they belong to the sample, not to the process that holds it."""
    one = losses(resumed / "one.log")
    two = losses(resumed / "two.log") | losses(resumed / "resumed.log")
    assert sorted(one) == sorted(two) == list(range(1, STEPS + 1))
    assert len(set(one.values())) == STEPS
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


def test_two_processes_end_with_the_weights_of_one(resumed):
    one, two = (
        load_file(resumed / name / "checkpoints" / f"{STEPS:06d}" / "pretrained_model" / "model.safetensors")
        for name in ("one", "two")
    )
    assert one["noise_key"].tolist() == two["noise_key"].tolist()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-4, msg=name)


def test_a_killed_rank_ends_the_other(broken):
    """Without help it would wait half an hour for its lost partner, which is longer than our patience."""
    assert broken != 0


def test_nothing_hangs_where_there_is_nothing_to_learn(resumed):
    text = (resumed / "resumed.log").read_text(errors="replace")
    found = dict(re.findall(r"case: (.+): loss (\S+)", text))
    assert list(found) == list(CASES)
    assert float(found["drop everything"]) == 0.0
    assert float(found["padding on both ranks"]) == 0.0
    assert float(found["median only"]) > 0.0
