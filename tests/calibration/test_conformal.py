"""Bounds beside a checkpoint: fitted, judged on other episodes, served, and refused when weights or data changed."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters.lerobot_folder import fingerprint, load_lerobot_policy
from lerobot_policy_quantile.adapters.policy_decoders import require_decoders
from lerobot_policy_quantile.adapters.served_policy import load_served_policy
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.contract import Observation
from lerobot_policy_quantile.policy.bounds_file import BOUNDS_FILE, ConformalBounds, read_bounds, write_bounds
from lerobot_policy_quantile.serving.guard import Guard
from tests.support.datasets import CAMERA


def calibrate(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "200"})


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of its own: bounds are written into it."""
    return shutil.copytree(saved["quantile"], tmp_path / "policy")


@pytest.fixture
def fitted(folder, toy_set):
    before = fingerprint(folder)
    result = calibrate("--policy", folder, "--dataset", toy_set, "--episodes", "0-2", "--conformal", "0.5,0.7")
    assert result.exit_code == 0, result.output
    assert "bounds.safetensors" in result.stderr
    assert fingerprint(folder) == before, "bounds do not make it another policy"
    return folder


def test_bounds_are_judged_on_other_episodes_before_and_after(fitted, toy_set, tmp_path):
    result = calibrate("--policy", fitted, "--dataset", toy_set, "--episodes", "3", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "calibration.json").read_text())
    judged = record["laws"][0]["conformal"]
    assert [each["mass"] for each in judged] == [0.5, 0.7]
    for each in judged:
        interval = next((i for i in record["laws"][0]["intervals"] if i["mass"] == each["mass"]), None)
        if interval is not None:
            assert each["coverage_before"]["value"] == pytest.approx(interval["coverage"]["value"])
        assert 0 <= each["coverage"]["value"] <= 1
    assert "conformal bounds" in result.stdout
    assert "Conformal bounds" in (tmp_path / "out" / "calibration.html").read_text()
    assert not any("fitted on" in note for note in record["notes"])


def test_a_note_says_if_bounds_are_judged_where_they_were_fitted(fitted, toy_set):
    result = calibrate("--policy", fitted, "--dataset", toy_set, "--episodes", "2-3")
    assert "were fitted on 1 of the 2 episodes: the share inside them says nothing about new ones" in result.stdout


def test_too_few_episodes_are_refused_with_the_number_needed(folder, toy_set):
    result = calibrate("--policy", folder, "--dataset", toy_set, "--conformal", "0.9")
    assert result.exit_code == 1
    assert "--conformal 0.9 needs at least 9 episodes, so that ceil((n + 1) 0.9) <= n; got 4" in result.stderr
    assert not (folder / BOUNDS_FILE).exists()


@pytest.mark.parametrize("text", ["2", "0", "a", "0.9,"])
def test_a_mass_that_is_none_is_refused(folder, toy_set, text):
    result = calibrate("--policy", folder, "--dataset", toy_set, "--conformal", text)
    assert result.exit_code == 2
    assert "--conformal must be masses between 0 and 1" in result.stderr


def test_a_policy_without_quantiles_has_no_bounds(saved, toy_set):
    result = calibrate("--policy", saved["l1"], "--dataset", toy_set, "--conformal", "0.5")
    assert result.exit_code == 1
    assert "has the head l1 and predicts none: leave it out" in result.stderr


def test_bounds_of_other_weights_are_refused(fitted, toy_set):
    (fitted / "README.md").write_text("changed")
    for why in (
        calibrate("--policy", fitted, "--dataset", toy_set).stderr,
        _message(lambda: load_served_policy(fitted)),
        _message(lambda: load_lerobot_policy(fitted).begin(0, None, "median inside 0.5")),
    ):
        assert "was fitted for a policy folder with the digest" in why
        assert "fit them again: qhead calibrate" in why


def test_bounds_of_other_data_are_refused(fitted, toy_set):
    bounds = read_bounds(fitted)
    write_bounds(fitted, ConformalBounds(**{**vars(bounds), "data": "0" * 16}))
    result = calibrate("--policy", fitted, "--dataset", toy_set, "--episodes", "3")
    assert result.exit_code == 1
    assert "with the digest 0000000000000000; these episodes now have" in result.stderr
    assert "fit them again" in result.stderr


def test_every_served_chunk_comes_with_bounds_and_the_guard_can_use_them(fitted):
    model = load_served_policy(fitted)
    assert model.spec.bounds == 0.7
    picture = np.zeros((32, 32, 3), np.uint8)
    seen = Observation({model.spec.cameras[0]: picture}, np.zeros(2), "push")
    (chunk,) = model.predict([seen], [model.begin(0, None)])
    assert chunk.bounds.shape == (*chunk.actions.shape, 2)
    assert (chunk.bounds[..., 0] <= chunk.bounds[..., 1]).all()
    wild = chunk.actions + 100
    assert (Guard().check(wild, None, chunk.bounds).actions == wild).all()
    guarded = Guard(use_bounds=True).check(wild, None, chunk.bounds)
    assert guarded.actions == pytest.approx(chunk.bounds[..., 1])
    limited = Guard((-0.01,), (0.01,), use_bounds=True).check(wild, None, chunk.bounds).actions
    assert np.abs(limited).max() <= 0.01, "bounds never widen the robot's limits"


def test_a_decoder_stays_inside_the_bounds_that_are_served(folder):
    margins = torch.full((1, 4, 3), -100.0)  # nothing but the middle of the interval is left
    write_bounds(folder, ConformalBounds((0.5,), margins, fingerprint(folder), "data", "set", (0,)))
    policy = load_lerobot_policy(folder, cameras={"front": CAMERA}, bounds=0.5)
    seen = Observation({"front": np.zeros((32, 32, 3), np.uint8)}, np.zeros(2), "push")
    decoders = ["independent", "independent inside 0.5"]
    chunks = policy.predict([seen] * 2, [policy.begin(3, None, decoder) for decoder in decoders])
    assert np.abs(chunks[0].actions - chunks[0].bounds[..., 0])[:, :2].min() > 1e-4
    assert chunks[1].actions == pytest.approx(chunks[1].bounds[..., 0], abs=1e-4)


def test_a_decoder_that_needs_bounds_is_refused_before_a_model_is_loaded(folder, fitted):
    require_decoders({"a": str(fitted)}, {"a": ["median inside 0.5"]})
    with pytest.raises(ValueError, match=r"mass must be one that bounds were fitted for, 0\.5, 0\.7; got 0\.9"):
        require_decoders({"a": str(fitted)}, {"a": ["median inside 0.9"]})
    (folder / BOUNDS_FILE).unlink()
    with pytest.raises(ValueError, match=r"bounds\.safetensors does not exist; fit it: qhead calibrate"):
        require_decoders({"a": str(folder)}, {"a": ["median inside 0.5"]})


def test_steps_that_few_episodes_reach_have_no_bounds(folder):
    margins = torch.zeros(1, 4, 3)
    margins[0, 3] = torch.inf
    write_bounds(folder, ConformalBounds((0.9,), margins, fingerprint(folder), "data", "set", (0,)))
    model = load_served_policy(folder)
    seen = Observation({model.spec.cameras[0]: np.zeros((32, 32, 3), np.uint8)}, np.zeros(2), "push")
    (chunk,) = model.predict([seen], [model.begin(0, None)])
    assert np.isinf(chunk.bounds[3]).all()
    assert np.isfinite(chunk.bounds[:3]).all()


def _message(call):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    return str(caught.value)
