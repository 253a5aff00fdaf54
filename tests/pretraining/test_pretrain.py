"""`qhead pretrain` end to end within seconds: data, training, gate, checkpoint; stopped and resumed."""

import json
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.pretraining.batches import jitter_colours
from lerobot_policy_quantile.pretraining.budgets import BUDGETS, budget_named
from lerobot_policy_quantile.pretraining.ordered_numbers import number_embeddings
from lerobot_policy_quantile.pretraining.train import LOG, Trainer
from lerobot_policy_quantile.util.locks import alone

SMALL = BUDGETS["small"]
COMMAND = ["pretrain", "--budget", "small", "--workers", "1", "--seed", "3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of the small budget."""
    out = tmp_path_factory.mktemp("pretrain") / "run"
    result = CliRunner().invoke(app, [*COMMAND, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_one_command_writes_data_log_figures_card_and_a_policy_that_acts(run):
    assert len(list((run / "data").glob("*.npz"))) == len(SMALL.data.shards())
    log = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    assert [line["update"] for line in log] == [2, 4, 6]
    assert {"action", "spot", "named", "distance", "total"} <= set(log[0])
    assert json.loads((run / "gate.json").read_text())["labels"] > 0
    card = (run / "policy" / "README.md").read_text()
    assert "privileged positions" in card
    assert re.search(r"\| moments of play.*\| [1-9]", card)
    policy = SceneFactory({"ours": str(run / "policy")}, 96).policy("ours")
    assert policy.n_action_steps == 3


def test_a_finished_run_costs_nothing_again_and_other_settings_are_refused(run):
    before = {path: path.stat().st_mtime_ns for path in run.glob("data/*")}
    assert CliRunner().invoke(app, [*COMMAND, "--out", str(run)]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in run.glob("data/*")} == before
    result = CliRunner().invoke(app, ["pretrain", "--budget", "small", "--seed", "4", "--out", str(run)])
    assert result.exit_code == 1
    assert "belongs to a run with" in result.output


@pytest.mark.bad_input
def test_two_runs_in_one_folder_are_refused(run):
    with alone(run, "pretraining"):
        result = CliRunner().invoke(app, [*COMMAND, "--out", str(run)])
    assert result.exit_code == 1
    assert "is in use by another pretraining" in result.output


def test_missing_libero_assets_are_told_before_anything_is_written(tmp_path, monkeypatch):
    def nowhere():
        raise ValueError("LIBERO assets must be in one of these places")

    monkeypatch.setattr("lerobot_policy_quantile.scenes.libero.assets.find_assets", nowhere)
    result = CliRunner().invoke(app, ["pretrain", "--out", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert "leave LIBERO's scenes out with --no-libero" in result.output
    assert not (tmp_path / "run").exists()


def test_jittered_colours_are_never_brighter_and_white_stays_apart_from_white():
    pictures = torch.rand(64, 3, 4, 4)
    pictures[:, :, 0, 0], pictures[:, :, 0, 1] = 1.0, 0.97
    found = jitter_colours(pictures, np.random.default_rng(0))
    assert found.max() <= 1
    assert found.mean() < pictures.mean()
    assert (found[:, :, 0, 0] > found[:, :, 0, 1]).all()


def test_a_resumed_training_equals_an_uninterrupted_one(run, tmp_path):
    class StoppedError(Exception):
        pass

    def stop(update, losses):
        if update == 4:  # what was saved is update 3
            raise StoppedError

    with pytest.raises(StoppedError):
        Trainer(run / "data", tmp_path, SMALL.training, 3).run(stop)
    resumed = Trainer(run / "data", tmp_path, SMALL.training, 3)
    assert resumed.update == 3
    resumed.run()
    whole = Trainer(run / "data", run, SMALL.training, 3)
    assert whole.update == resumed.update == SMALL.training.updates
    for one, two in zip(whole.average, resumed.average, strict=True):
        assert torch.equal(one, two)
    for name, tensor in whole.student.state_dict().items():
        assert torch.equal(tensor, resumed.student.state_dict()[name]), name


def test_an_unknown_budget_lists_the_known_ones():
    known = "full, small, suites, suites_more, suites_again, suites_driven, suites_placed, suites_small"
    with pytest.raises(ValueError, match=f"--budget must be one of {known}; got 'big'"):
        budget_named("big")


def test_near_numbers_start_near_each_other():
    rows = number_embeddings(128)
    near, far = (torch.nn.functional.cosine_similarity(rows[128], rows[128 + step], dim=0) for step in (1, 60))
    assert near > 0.8
    assert near > far + 0.3
