"""Train, kill, resume, evaluate with LeRobot's own commands: offline, on the CPU, on a dataset made here."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lerobot_policy_quantile.policy.normalisation import exact_statistics
from tests.support.command_line import BIN, ENVIRONMENT, PATIENCE, run, start, train_arguments, wait_for_file
from tests.support.datasets import make_dataset

pytestmark = pytest.mark.slow

STEPS, SAVE = 24, 12
# 30 batches of 4: the run ends within its first epoch. LeRobot 0.6.1 continues the data order of a later
# epoch with that of the first (its pull request 4692); the paper trains for one epoch.
FRAMES = 40
SETTINGS = (
    "--policy.scheduler_warmup_steps=4",
    "--policy.optimizer_lr=1e-3",
    f"--steps={STEPS}",
    f"--save_freq={SAVE}",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two runs of the same command: `whole` goes to its end, `cut` is killed after its first checkpoint."""
    root = tmp_path_factory.mktemp("runs")
    make_dataset(root / "data", frames=FRAMES)
    whole, cut = (
        start(BIN / "lerobot-train", *train_arguments(root / "data", root / name, *SETTINGS), log=root / f"{name}.log")
        for name in ("whole", "cut")
    )
    wait_for_file(root / "cut" / "checkpoints" / "last", cut, root / "cut.log")
    os.kill(cut.pid, signal.SIGKILL)
    cut.wait()
    assert whole.wait(PATIENCE) == 0, (root / "whole.log").read_text()[-3000:]
    return root


@pytest.fixture(scope="module")
def resumed(runs) -> Path:
    """The killed run, continued in place."""
    assert not checkpoint(runs / "cut", STEPS).exists()
    config = checkpoint(runs / "cut", SAVE) / "pretrained_model" / "train_config.json"
    run(BIN / "lerobot-train", f"--config_path={config}", "--resume=true", log=runs / "resumed.log")
    return runs / "cut"


def checkpoint(run_folder: Path, step: int) -> Path:
    return run_folder / "checkpoints" / f"{step:06d}"


def test_a_killed_run_resumes_to_the_same_bits(runs, resumed):
    """Weights, optimiser moments and the key of the label masks equal the uninterrupted run's."""
    for part in ("pretrained_model/model.safetensors", "training_state/optimizer_state.safetensors"):
        ours, theirs = (load_file(checkpoint(folder, STEPS) / part) for folder in (resumed, runs / "whole"))
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_training_moved_the_expert_and_froze_the_vlm(runs):
    early, late = (
        load_file(checkpoint(runs / "whole", step) / "pretrained_model" / "model.safetensors") for step in (SAVE, STEPS)
    )
    same = {name for name in early if torch.equal(early[name], late[name])}
    assert {name for name in same if "paligemma.model" in name} == {n for n in early if "paligemma.model" in n}
    assert "backbone.prompts" not in same
    assert "head.gap_projection.weight" not in same
    assert early["noise_key"].tolist()[1] == SAVE
    assert late["noise_key"].tolist() == [early["noise_key"].tolist()[0], STEPS]


def test_the_checkpoints_processors_hold_exact_quantiles(runs):
    """Of all frames, not LeRobot's of its episodes."""
    exact = exact_statistics(runs / "data")
    saved = sorted((checkpoint(runs / "whole", STEPS) / "pretrained_model").glob("*normalizer_processor.safetensors"))
    assert len(saved) == 2
    for file in saved:
        stored = load_file(file)
        for name in ("q01", "q99"):
            assert torch.equal(stored[f"action.{name}"], torch.as_tensor(exact["action"][name]))


def test_the_log_shows_coverage_and_width(runs):
    last = [line for line in (runs / "whole.log").read_text().splitlines() if f"step:{STEPS} " in line][-1]
    for name in ("loss:", "grdn:", "coverage_50:", "coverage_80:", "coverage_95:", "width_80:"):
        assert name in last


def test_the_fast_path_and_the_prefix_cache_train_the_same(runs):
    """Up to rounding, which AdamW's division can make larger: the difference is held against what training did."""
    folder = runs / "prefixes"
    fast = (*SETTINGS, "--policy.fast_training=true", f"--policy.prefix_cache={folder}")
    run(BIN / "lerobot-train", *train_arguments(runs / "data", runs / "fast", *fast), log=runs / "fast.log")
    assert any(folder.iterdir())
    early, late, ours = (
        flat_weights(checkpoint(runs / name, step))
        for name, step in (("whole", SAVE), ("whole", STEPS), ("fast", STEPS))
    )
    assert (ours - late).norm() < 1e-2 * (late - early).norm()


def flat_weights(place: Path) -> torch.Tensor:
    weights = load_file(place / "pretrained_model" / "model.safetensors")
    return torch.cat(
        [weights[name].double().flatten() for name in sorted(weights) if weights[name].is_floating_point()]
    )


def test_lerobots_own_evaluation_runs_the_copied_checkpoint(resumed, tmp_path):
    """Three episodes in batches of two, ranks drawn per episode; the run's folders are out of reach."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(checkpoint(resumed, STEPS) / "pretrained_model", folder)
    run(
        BIN / "lerobot-eval",
        f"--policy.path={folder}",
        "--policy.device=cpu",
        "--policy.decoder=shared(l=0.2, rho=0.9)",
        *ENVIRONMENT,
        *("--eval.n_episodes=3", "--eval.batch_size=2", "--eval.use_async_envs=false"),
        f"--output_dir={tmp_path / 'eval'}",
        log=tmp_path / "eval.log",
    )
    info = json.loads((tmp_path / "eval" / "eval_info.json").read_text())
    assert info["overall"]["n_episodes"] == 3
    assert 0 <= info["overall"]["pc_success"] <= 100


def test_nan_in_the_dataset_stops_training_before_the_first_step(tmp_path):
    make_dataset(tmp_path / "data", poison="action")
    log = tmp_path / "log"
    command = train_arguments(tmp_path / "data", tmp_path / "out", "--steps=2")
    assert start(BIN / "lerobot-train", *command, log=log).wait(PATIENCE) != 0
    text = log.read_text()
    assert "action must be finite; episode 1, frame 4, dimension 1" in text
    assert "step:1 " not in text
