import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from tests.support.command_line import BIN, train_arguments
from tests.support.command_line import run as run_command


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Both detours in the embedded scene, with small pictures."""
    out = tmp_path_factory.mktemp("collect") / "demos"
    result = run("collect", "--scene", "embedded", "--routes", "left,right", "--camera-size", 32, "--out", out)
    assert result.exit_code == 0, result.output
    return out, result.output


def test_both_demonstrations_succeed_over_opposite_detours(collected):
    """About 11 cm aside and 250-330 actions."""
    out, printed = collected
    summary = json.loads((out / "summary.json").read_text())
    left, right = summary["episodes"]
    assert left["success"]
    assert right["success"]
    assert 9 < left["detour_cm"] < 13
    assert -13 < right["detour_cm"] < -9
    for episode in (left, right):
        assert 250 <= episode["actions"] <= 330
        assert episode["contacts"] == 0
    assert "starts identical" in printed
    for picture in ("paths.png", "frames.png"):
        assert (out / picture).stat().st_size > 5000


def test_the_dataset_is_lerobots_and_has_exact_statistics(collected):
    from lerobot.datasets import LeRobotDataset

    from lerobot_policy_quantile.policy.normalisation import exact_statistics

    out, _ = collected
    dataset = LeRobotDataset("qhead/demonstrations", root=out / "dataset")
    assert dataset.num_episodes == 2
    exact = exact_statistics(out / "dataset")["action"]["q01"]
    np.testing.assert_allclose(dataset.meta.stats["action"]["q01"], exact, rtol=1e-6)


def test_replay_ends_where_the_demonstrations_ended(collected):
    result = run("replay", collected[0])
    assert result.exit_code == 0, result.output
    assert result.output.count("success, the same final simulator state") == 2


def test_replay_notices_another_end(collected, tmp_path):
    """The twin: a final state that is off in its last bit."""
    spoilt = tmp_path / "demos"
    shutil.copytree(collected[0], spoilt)
    states = dict(np.load(spoilt / "simulator_states.npz"))
    states["end_0"] = np.nextafter(states["end_0"], np.inf)
    np.savez(spoilt / "simulator_states.npz", **states)
    result = run("replay", spoilt, "--episode", 0)
    assert result.exit_code == 1
    assert "ANOTHER final simulator state" in result.output


def test_wrong_input_is_refused_and_nothing_is_written(collected, tmp_path):
    out = tmp_path / "new"
    sideways = run("collect", "--routes", "lfet", "--out", out)
    assert sideways.exit_code == 1
    assert "side must be one of left, straight, right; got 'lfet'" in sideways.output
    assert not out.exists()
    again = run("collect", "--out", collected[0])
    assert again.exit_code == 1
    assert "--out must be a new or empty folder" in again.output
    unknown = run("replay", tmp_path)
    assert unknown.exit_code == 1
    assert "must be one that qhead collect wrote" in unknown.output
    beyond = run("replay", collected[0], "--episode", 2)
    assert "--episode must lie in 0..1; got 2" in beyond.output


def test_lerobot_trains_on_what_was_collected(collected, tmp_path):
    """The round trip, through LeRobot's own command."""
    log = tmp_path / "log"
    arguments = train_arguments(collected[0] / "dataset", tmp_path / "out", "--steps=2", "--save_freq=2")
    text = run_command(BIN / "lerobot-train", *arguments, "--dataset.repo_id=qhead/demonstrations", log=log)
    assert "step:2 " in text
    assert (tmp_path / "out" / "checkpoints" / "000002" / "pretrained_model" / "model.safetensors").is_file()
