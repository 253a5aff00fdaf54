"""Saving and loading: a folder is enough, names no machine, and fits its settings or is refused."""

import json
import subprocess
import sys

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.command_line import ROOT, environment
from tests.support.policies import STATS, make_batch, make_config, make_policy, raw_batch


@pytest.mark.slow
def test_a_copied_folder_loads_in_a_fresh_process(tmp_path):
    """Saved here, moved there, the original gone: the same chunk, from a process that knows nothing."""
    policy = make_policy(tokenizer="shipped").eval()
    before, after = make_quantile_pre_post_processors(policy.config, STATS)
    saved, moved = tmp_path / "saved", tmp_path / "moved"
    for part in (policy, before, after):
        part.save_pretrained(saved)
    saved.rename(moved)
    expected = policy.predict_action_chunk(before(raw_batch()))
    torch.save(raw_batch(), tmp_path / "batch.pt")
    code = (
        "import sys, torch\n"
        "from lerobot.utils.import_utils import register_third_party_plugins\n"
        "register_third_party_plugins()\n"
        "from lerobot.configs import PreTrainedConfig\n"
        "from lerobot.policies.factory import get_policy_class, make_pre_post_processors\n"
        "folder, batch, out = sys.argv[1:]\n"
        "config = PreTrainedConfig.from_pretrained(folder)\n"
        "policy = get_policy_class(config.type).from_pretrained(folder)\n"
        "before, _ = make_pre_post_processors(config, pretrained_path=folder)\n"
        "torch.save(policy.predict_action_chunk(before(torch.load(batch))), out)\n"
    )
    command = [sys.executable, "-c", code, moved, tmp_path / "batch.pt", tmp_path / "chunk.pt"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment(), capture_output=True)
    torch.testing.assert_close(torch.load(tmp_path / "chunk.pt"), expected, rtol=1e-5, atol=1e-6)


def test_nothing_of_this_machine_is_saved(tmp_path):
    policy = make_policy()
    policy.config.pretrained_path = tmp_path / "somewhere"
    policy.config.backbone_weights = str(tmp_path)
    policy.config.tokenizer = str(tmp_path / "tokenizer")
    policy.save_pretrained(tmp_path / "saved")
    text = (tmp_path / "saved" / "config.json").read_text()
    assert str(tmp_path) not in text
    assert str(ROOT) not in text
    assert policy.config.backbone_weights == str(tmp_path)  # the running policy keeps its settings


def test_a_hub_id_is_kept_as_the_base_model(tmp_path):
    policy = make_policy()
    policy.config.backbone_weights = "lerobot/pi05_base"
    policy.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["backbone_weights"] == "lerobot/pi05_base"
    restored = QuantilePolicy.from_pretrained(tmp_path)  # weights come from the folder, not from the hub
    assert torch.equal(restored.backbone.prompts, policy.backbone.prompts)


@pytest.mark.parametrize(("field", "value"), [("n_quantiles", 9), ("chunk_size", 12), ("head", "l2"), ("n_prompts", 0)])
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, field, value):
    make_policy().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="checkpoint does not fit") as error:
        QuantilePolicy.from_pretrained(tmp_path, config=make_config(**{field: value}))
    assert f"{field}: trained with" in str(error.value)
    assert f"asked for {value!r}" in str(error.value)


def test_a_checkpoint_of_another_action_is_refused(tmp_path):
    policy = make_policy()
    policy.save_pretrained(tmp_path)
    config = make_config()
    config.output_features["action"].shape = (4,)
    with pytest.raises(ValueError, match=r"action: trained with shape \(3,\), asked for \(4,\)"):
        QuantilePolicy.from_pretrained(tmp_path, config=config)


def test_a_checkpoint_with_a_missing_weight_is_refused(tmp_path):
    make_policy().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["backbone.prompts"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"does not fit this model:\n1 missing:\n  backbone\.prompts"):
        QuantilePolicy.from_pretrained(tmp_path)


def test_model_card_names_base_head_levels_data_and_metrics(monkeypatch):
    monkeypatch.setattr(ModelCard, "validate", lambda self: None)  # asks the hub
    policy = make_policy(decoder="shared(l=0.2)", n_quantiles=9).train()
    policy(make_batch(policy.config))
    policy.config.backbone_weights = "lerobot/pi05_base"
    card = policy.generate_model_card("me/data", "quantile", "apache-2.0", ["toy"])
    assert card.data.base_model == "lerobot/pi05_base"
    assert card.data.datasets == "me/data"
    assert card.data.metrics == ["coverage_50", "coverage_80", "coverage_95", "width_80"]
    assert "| Head | quantile |" in card.text
    assert "| Levels | 9, from 0.025 to 0.975 |" in card.text
    assert "`shared(l=0.2, rho=0.9)`" in card.text
    assert "| coverage_80, last training batch |" in card.text
    assert "## Inputs & Outputs" in card.text
