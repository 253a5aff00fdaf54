"""The shipped base checkpoint: small, portable, and the start of other policies."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import make_pre_post_processors
from safetensors.torch import load_file

from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy
from lerobot_policy_quantile.backbone import VARIANTS, Backbone
from lerobot_policy_quantile.configuration_quantile import SHIPPED_BASES, SUITES_BASE, QuantileConfig
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.base_checkpoint import (
    BASE_GROUND,
    FLOW_FILE,
    base_checkpoint,
    copy_base,
    load_base_weights,
    policy_from_base,
    processors_from_base,
)

LIMIT = 12_000_000


each_base = pytest.mark.parametrize("name", SHIPPED_BASES)


@each_base
def test_it_has_all_files_of_a_policy_and_stays_small(name):
    names = {path.name for path in base_checkpoint(name).iterdir()}
    assert {"config.json", "model.safetensors", "README.md", "policy_preprocessor.json", "training.jsonl"} <= names
    assert sum(path.stat().st_size for path in base_checkpoint(name).iterdir() if path.is_file()) < LIMIT


@each_base
def test_it_names_no_path_of_a_machine(name):
    for path in base_checkpoint(name).glob("*.json"):
        text = path.read_text()
        assert not any(root in text for root in ("/work", "/home", "/root", "/tmp")), path.name
    config = json.loads((base_checkpoint(name) / "config.json").read_text())
    assert config["pretrained_path"] is None
    assert config["freeze_vlm"] is True


@pytest.mark.parametrize(("name", "steps"), [*zip(SHIPPED_BASES, (3, 5), strict=True)])
def test_it_loads_as_any_saved_policy(name, steps):
    policy = load_lerobot_policy(base_checkpoint(name))
    assert policy.n_action_steps == steps


def test_the_base_of_all_suites_favours_no_head_and_leaves_prompts_to_fine_tuning():
    folder = base_checkpoint(SUITES_BASE)
    direct = load_file(folder / "model.safetensors")["head.projection.weight"]
    flow = load_file(folder / FLOW_FILE)["flow_projection.weight"]
    assert direct.shape == flow.shape
    config = QuantileConfig(backbone="tiny", backbone_weights=SUITES_BASE, **features_of(folder))
    for head, projection in (("quantile", direct), ("l1", direct), ("flow", flow), ("one_step_flow", flow)):
        policy = QuantilePolicy(replace(config, head=head))
        assert torch.equal(policy.head.projection.weight, projection), head
        assert policy.backbone.prompts.shape[0] == 16


def features_of(folder):
    saved = PreTrainedConfig.from_pretrained(folder)
    return {name: getattr(saved, name) for name in ("input_features", "output_features", "grippers")}


@pytest.mark.parametrize("head", ["quantile", "l1", "l2", "flow"])
def test_a_policy_from_base_keeps_all_but_the_gaps(head):
    torch.manual_seed(1)
    policy = policy_from_base(head)
    stored, ours = load_file(base_checkpoint() / "model.safetensors"), policy.state_dict()
    kept = [name for name in ours if name.startswith(("backbone.", "head.projection."))]
    assert len(kept) > 50
    assert "head.projection.weight" in kept
    for name in kept:
        assert torch.equal(ours[name], stored[name]), name
    if head == "quantile":
        assert stored["head.gap_projection.weight"].any()
        assert not ours["head.gap_projection.weight"].any()
    assert policy.config.head == head
    assert not any(p.requires_grad for p in policy.backbone.vlm_parameters())


def test_a_fresh_output_projection_is_drawn_anew_and_the_same_for_every_head():
    stored, drawn = load_file(base_checkpoint() / "model.safetensors"), []
    for head in ("quantile", "l1", "flow"):
        torch.manual_seed(1)
        policy = policy_from_base(head, output_projection="fresh")
        assert torch.equal(policy.backbone.action_in_proj.weight, stored["backbone.action_in_proj.weight"])
        drawn.append(policy.head.projection.weight)
    assert not torch.equal(drawn[0], stored["head.projection.weight"])
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_another_number_of_prompts_begins_afresh():
    fewer, same = policy_from_base(n_prompts=4), policy_from_base()
    assert "backbone.prompts" in load_base_weights(fewer.backbone, fewer.head).new
    assert "backbone.prompts" in load_base_weights(same.backbone, same.head).loaded


def test_on_another_ground_the_same_height_above_it_reads_the_same(tmp_path):
    config = PreTrainedConfig.from_pretrained(base_checkpoint())
    folder = tmp_path / "libero"
    copy = f"from pathlib import Path; import {copy_base.__module__} as b; b.copy_base(Path({str(folder)!r}), ground=0)"
    subprocess.run([sys.executable, "-c", copy], check=True)  # nothing has registered the policy there
    pictures = {key: torch.zeros(3, 96, 96) for key in config.image_features}
    words = {}
    for name, ground, before in (
        ("base", BASE_GROUND, processors_from_base(config)[0]),
        ("moved", 0.0, processors_from_base(config, ground=0.0)[0]),
        ("copied", 0.0, make_pre_post_processors(config, pretrained_path=str(folder))[0]),
        ("mistaken", 0.0, processors_from_base(config)[0]),
    ):
        state = torch.tensor([-0.1, 0.1, ground + 0.15, 3.14, 0.0, 0.0, 0.03, -0.03])
        words[name] = before({**pictures, "observation.state": state, "task": "pick"})["observation.language.tokens"]
    assert torch.equal(words["base"], words["moved"])
    assert torch.equal(words["base"], words["copied"])
    assert not torch.equal(words["base"], words["mistaken"])


def test_backbone_weights_base_is_the_same_start():
    config = PreTrainedConfig.from_pretrained(base_checkpoint())
    config.backbone_weights = "base"
    torch.manual_seed(1)
    policy = QuantilePolicy(config)
    torch.manual_seed(1)
    other = policy_from_base()
    for name, tensor in other.state_dict().items():
        if name.startswith(("backbone.", "head.")):
            assert torch.equal(tensor, policy.state_dict()[name]), name


def test_a_backbone_of_another_size_is_refused_before_anything_is_written():
    backbone, head = Backbone(VARIANTS["tiny"], model_dim=24), policy_from_base().head
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    with pytest.raises(ValueError, match=r"does not fit a backbone 'tiny' with model_dim 24: 1 tensors"):
        load_base_weights(backbone, head)
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must be a folder with model\.safetensors"):
        load_base_weights(Backbone(VARIANTS["tiny"]), policy_from_base().head, tmp_path)
