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


@pytest.mark.parametrize("way", [(), ("--suite", "libero_object")])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch, way):
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.scenes import suite_folder

    def work(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr(SceneFactory, "scene", work)
    monkeypatch.setattr(suite_folder, "collect_suite", work)
    (tmp_path / "file").touch()
    result = run("collect", *way, "--out", tmp_path / "file" / "demos")
    assert result.exit_code == 1, result.output
    assert "--out must be a folder that can be written" in result.output


def test_lerobot_trains_on_what_was_collected(collected, tmp_path):
    """The round trip, through LeRobot's own command."""
    log = tmp_path / "log"
    arguments = train_arguments(collected[0] / "dataset", tmp_path / "out", "--steps=2", "--save_freq=2")
    text = run_command(BIN / "lerobot-train", *arguments, "--dataset.repo_id=qhead/demonstrations", log=log)
    assert "step:2 " in text
    assert (tmp_path / "out" / "checkpoints" / "000002" / "pretrained_model" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--suite", "libero", "--routes", "left"), "--routes cannot be combined with --suite"),
        (("--suite", "libero", "--scene", "embedded", "--index", 3), "--scene, --index cannot be combined"),
        (("--episodes", 5, "--plain"), "--episodes, --plain needs --suite"),
        (("--suite", "libero_plus"), "--suite libero_plus takes --instances in place of --tasks and --states"),
        (("--suite", "libero_pro"), "--suite must name LIBERO suites (libero, libero_spatial"),
        (("--suite", "libero_objct"), "libero_object"),
        (("--suite", "libero", "--states", "15-25"), "states must lie in 20..44"),
        (("--suite", "libero", "--tasks", "x"), "--tasks must read like"),
    ],
)
def test_the_two_ways_to_collect_do_not_mix(tmp_path, arguments, message):
    result = CliRunner().invoke(
        app, ["collect", *map(str, arguments), "--out", str(tmp_path / "new")], env={"COLUMNS": "400"}
    )
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("files", "code"), [(("a.npz", "b.npz"), 0), (("a.npz", None), 3)])
def test_a_suite_is_collected_as_its_options_say(tmp_path, monkeypatch, files, code):
    from lerobot_policy_quantile.scenes import suite_folder

    asked = []

    def collect_suite(out, recipe, *, workers, repo_id, told):
        asked.append((out, recipe, workers, repo_id))
        told("episodes", 2, 2, 0)
        return [{"file": file} for file in files]

    monkeypatch.setattr(suite_folder, "collect_suite", collect_suite)
    options = ("--episodes", 3, "--workers", 1, "--plain", "--states", "30,31", "--seed", 4, "--camera-size", 96)
    result = run("collect", "--suite", "libero_10,libero_goal", "--tasks", "0,2", *options, "--out", tmp_path)
    assert result.exit_code == code, result.output
    ((out, recipe, workers, repo_id),) = asked
    assert (out, workers, repo_id) == (tmp_path, 1, "qhead/demonstrations")
    assert recipe.tasks == (("libero_10", 0), ("libero_10", 2), ("libero_goal", 0), ("libero_goal", 2))
    assert (recipe.episodes, recipe.seed, recipe.states, recipe.camera_size) == (3, 4, (30, 31), 96)
    assert recipe.plain
    assert not recipe.undisturbed
    assert ("are missing" in result.output) == (code == 3)
