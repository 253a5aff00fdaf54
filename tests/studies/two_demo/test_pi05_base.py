"""The study from a pi0.5 checkpoint that LeRobot made: the paper's start, at a fraction of its depth."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lerobot_policy_quantile.backbone.recognise import recognise
from lerobot_policy_quantile.backbone.variants import PI05, TINY
from lerobot_policy_quantile.backbone.weights import OUTPUT
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.studies.two_demo import first_draws, records, training
from lerobot_policy_quantile.studies.two_demo.demos import load_lesson
from lerobot_policy_quantile.studies.two_demo.settings import changed, load_settings
from lerobot_policy_quantile.studies.two_demo.start import fresh_policy, shared_hash
from tests.backbone.lerobot_reference import lerobot_checkpoint
from tests.studies.two_demo.samples import make_arm
from tests.support.simulated_cuda import simulated_cuda

LAYERS = {"depth": 2, "vision_depth": 1}
SETTINGS = changed(load_settings("paper"), updates=4, warmup=1, draws=8, camera_size=16, episodes=1, limit=6)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pi05")
    lerobot_checkpoint(replace(TINY, **LAYERS), folder)
    return str(folder)


@pytest.fixture(scope="module")
def arm(tmp_path_factory, base):
    folder = make_arm(tmp_path_factory.mktemp("study") / "embedded")
    assert training.prepare_cache(folder, SETTINGS, base)
    return folder


@pytest.fixture(scope="module")
def trained(arm, base):
    return {head: training.train(training.TrainingJob(arm, SETTINGS, base, head, 0)) for head in records.HEADS}


def test_the_papers_settings_are_the_papers():
    paper = load_settings("paper")
    assert (paper.updates, paper.warmup, paper.final_fraction, paper.episodes) == (6000, 200, 0.1, 100)
    assert (paper.learning_rate, paper.head_learning_rate, paper.prompt_learning_rate) == (2.5e-5, 2.5e-5, 1e-4)
    assert (paper.output_projection, paper.prompts, paper.camera_size) == ("fresh", "new", 224)
    assert paper.arms == ("libero_object", "libero_object+obstacle")
    assert paper.wording == "task.language"


def test_all_heads_start_from_pi05s_expert_a_fresh_projection_and_new_prompts(arm, base):
    stored = {name.removeprefix("model."): w for name, w in load_file(f"{base}/model.safetensors").items()}
    lesson = load_lesson(arm)
    policies = [fresh_policy(base, head, 3, SETTINGS, lesson).policy for head in records.HEADS]
    assert len({shared_hash(policy) for policy in policies}) == 1
    policy = policies[0]
    weights = policy.backbone.state_dict()
    inherited = [name for name in stored if name in weights]
    assert len(inherited) == len(weights) - 1  # all but the prompts
    assert all(torch.equal(stored[name], weights[name]) for name in inherited)
    assert not torch.equal(stored[f"{OUTPUT}weight"], policy.head.projection.weight)
    other = fresh_policy(base, "quantile", 4, SETTINGS, lesson).policy
    assert not torch.equal(other.backbone.prompts, policy.backbone.prompts)
    assert not torch.equal(other.head.projection.weight, policy.head.projection.weight)
    kept = fresh_policy(base, "quantile", 3, replace(SETTINGS, output_projection="inherited"), lesson).policy
    assert torch.equal(stored[f"{OUTPUT}weight"], kept.head.projection.weight)


def test_every_head_trains_and_verifies_itself(trained, arm, base):
    for head, found in trained.items():
        assert [check.name for check in found.checks if not check.passed] == [], head
    assert len({found.initialisation for found in trained.values()}) == 1
    policy = QuantilePolicy.from_pretrained(training.TrainingJob(arm, SETTINGS, base, "quantile", 0).policy)
    assert (policy.config.backbone, policy.config.backbone_layers) == ("tiny", [2, 1])
    assert policy.config.backbone_weights is None  # no path of this machine


def test_draws_and_costs_with_one_vlm_for_all_heads(trained, arm, base):
    first_draws.draw_and_time(arm, 0, SETTINGS, base)
    costs = json.loads((records.seed_folder(arm, 0) / records.COST).read_text())
    assert [cost["expert_passes"] for cost in costs] == [1, 1, 1, 10]
    heads = first_draws._load_heads(records.seed_folder(arm, 0) / records.POLICIES, "cpu")
    assert len({id(fresh.policy.backbone.paligemma_with_expert.paligemma) for fresh in heads.values()}) == 1


@pytest.mark.parametrize("prompts", ["base", "new"])
def test_prompts_of_our_own_base_are_kept_or_new(prompts, arm, trained):
    base = str(trained["quantile"].job.policy)
    policy = fresh_policy(base, "l1", 5, replace(SETTINGS, prompts=prompts), load_lesson(arm)).policy
    stored = load_file(f"{base}/model.safetensors")["backbone.prompts"]
    assert torch.equal(policy.backbone.prompts, stored) == (prompts == "base")


def test_a_checkpoint_is_recognised_by_its_sizes(base, tmp_path):
    assert recognise(Path(base)) == ("tiny", [2, 1])
    lerobot_checkpoint(TINY, tmp_path)
    assert recognise(tmp_path) == ("tiny", None)
    save_file({"action_in_proj.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=rf"of any depth: pi05: depth {PI05.depth}, .*; got no pi05"):
        recognise(tmp_path)


def test_a_policy_of_another_kind_is_refused_as_a_base(arm, tmp_path):
    (tmp_path / "config.json").write_text('{"type": "act"}')
    with pytest.raises(ValueError, match=r"type quantile or pi05; .* holds 'act'"):
        fresh_policy(str(tmp_path), "l1", 0, SETTINGS, load_lesson(arm))


@pytest.mark.slow
@pytest.mark.parametrize("head", records.HEADS)
def test_on_a_simulated_gpu_the_stages_give_the_cpus_numbers(head, trained, tmp_path, base):
    """Cache, checks, training, copula: nothing on the device meets what stayed in main memory."""
    arm = make_arm(tmp_path / "embedded")
    settings = replace(SETTINGS, device="cuda")
    with simulated_cuda():
        training.prepare_cache(arm, settings, base)
        found = training.train(training.TrainingJob(arm, settings, base, head, 0))
    assert [check.name for check in found.checks if not check.passed] == []
    assert found.curve["losses"] == pytest.approx(trained[head].curve["losses"], rel=1e-4)


@pytest.mark.slow
def test_on_a_simulated_gpu_draws_are_the_cpus(trained, arm, base, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with simulated_cuda():
        first_draws.draw_and_time(arm, 0, replace(SETTINGS, device="cuda"), base)
    drawn = np.load(records.seed_folder(arm, 0) / records.DRAWS)
    first_draws.draw_and_time(arm, 0, SETTINGS, base)
    again = np.load(records.seed_folder(arm, 0) / records.DRAWS)
    for name in again.files:
        np.testing.assert_allclose(drawn[name], again[name], atol=1e-4, err_msg=name)
