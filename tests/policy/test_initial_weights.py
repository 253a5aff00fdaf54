"""A new policy starts from named weights, or says that it does not; what cannot be had is refused before any model."""

import logging
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from lerobot_policy_quantile import modeling_quantile
from lerobot_policy_quantile.backbone import VARIANTS, weights
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy import tokenizer
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from tests.backbone.lerobot_reference import lerobot_checkpoint
from tests.support.policies import make_config


@pytest.fixture
def no_model(monkeypatch):
    """Building a model fails the test."""

    def build(config):
        pytest.fail("a model was built")

    monkeypatch.setattr(modeling_quantile, "build_backbone", build)


def offline(repository, **settings):
    raise FileNotFoundError("Name or service not known")


def test_pi05_alone_starts_from_pi05_base_which_is_looked_for_before_a_model_is_built(no_model, monkeypatch):
    monkeypatch.setattr(weights, "snapshot_download", offline)
    with pytest.raises(ValueError, match=r"'lerobot/pi05_base' cannot be had from the hub .*give the folder"):
        QuantilePolicy(make_config(backbone="pi05", backbone_weights=None, random_vlm=False))


def test_tiny_alone_starts_from_the_shipped_base_and_reports_it(caplog):
    caplog.set_level(logging.INFO)
    policy = QuantilePolicy(make_config(backbone_weights=None, random_vlm=False))
    stored = load_file(base_checkpoint() / "model.safetensors")
    assert torch.equal(policy.backbone.prompts, stored["backbone.prompts"])
    assert policy.config.backbone_weights == "base"
    (message,) = [text for text in caplog.messages if "backbone_weights" in text]
    assert message.startswith("backbone_weights base: ")
    assert "tensors loaded; new: head.gap_projection.weight, head.gap_projection.bias; dropped: " in message


@pytest.mark.parametrize("settings", [{"backbone_weights": "none"}, {"backbone": "small", "backbone_weights": None}])
def test_a_frozen_random_vlm_must_be_meant(no_model, settings):
    with pytest.raises(ValueError, match=r"random weights would be frozen; .*policy\.random_vlm=true if that is meant"):
        QuantilePolicy(make_config(**{"random_vlm": False, **settings}))


def test_random_weights_are_a_choice_that_is_said(caplog):
    for settings in ({"freeze_vlm": False, "random_vlm": False}, {"random_vlm": True}):
        caplog.clear()
        assert QuantilePolicy(make_config(backbone_weights="none", **settings)).config.backbone_weights == "none"
        assert "backbone_weights none: the backbone starts from random weights" in caplog.messages


def test_a_checkpoint_that_was_trained_from_random_weights_loads_whatever_is_frozen_now(tmp_path):
    QuantilePolicy(make_config(backbone_weights="none", freeze_vlm=False, random_vlm=False)).save_pretrained(tmp_path)
    config = QuantilePolicy.from_pretrained(tmp_path).config
    config.freeze_vlm = True
    assert QuantilePolicy.from_pretrained(tmp_path, config=config).config.freeze_vlm


def test_a_tokenizer_that_cannot_be_had_is_refused_before_a_model_is_built(no_model, monkeypatch):
    def fetch(source, **settings):
        raise OSError("You are trying to access a gated repo.\nMake sure")

    monkeypatch.setattr(tokenizer.AutoTokenizer, "from_pretrained", fetch)
    meta = SimpleNamespace(features={})
    with pytest.raises(ValueError, match=r"tokenizer 'google/x' cannot be had \(You are .* gated repo\.\); accept its"):
        QuantilePolicy(make_config(tokenizer="google/x", grippers=[]), dataset_meta=meta)


def test_a_broken_file_is_refused_before_a_model_is_built(no_model, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="git-lfs pointer"):
        QuantilePolicy(make_config(backbone_weights=str(tmp_path)))


@pytest.fixture(scope="module")
def pi05_folder(tmp_path_factory):
    """A folder that LeRobot's pi05 wrote, at the tiny variant's sizes."""
    folder = tmp_path_factory.mktemp("pi05")
    lerobot_checkpoint(VARIANTS["tiny"], folder)
    return str(folder)


@pytest.mark.parametrize("source", ["base", "pi05"])
def test_other_action_widths_say_what_to_set_before_a_model_is_built(no_model, source, pi05_folder):
    place = "base" if source == "base" else pi05_folder
    with pytest.raises(ValueError, match=r"at most 32 .*; got 40; set policy\.output_projection=fresh"):
        QuantilePolicy(make_config(backbone_weights=place, max_action_dim=40))
    with pytest.raises(ValueError, match=r"must be 32 .*; got 8; set policy\.max_action_dim=32"):
        QuantilePolicy(make_config(backbone_weights=place, max_action_dim=8))


@pytest.mark.parametrize("source", ["base", "pi05"])
def test_a_wider_policy_with_a_fresh_projection_keeps_all_that_fits(source, pi05_folder):
    place = "base" if source == "base" else pi05_folder
    wide = QuantilePolicy(make_config(backbone_weights=place, max_action_dim=40, output_projection="fresh"))
    same = QuantilePolicy(make_config(backbone_weights=place))
    ours, theirs = wide.backbone.state_dict(), same.backbone.state_dict()
    assert torch.equal(ours["action_in_proj.weight"][:, :32], theirs["action_in_proj.weight"])
    same_everywhere = [n for n in ours if n not in ("action_in_proj.weight", "prompts")]
    assert all(torch.equal(ours[name], theirs[name]) for name in same_everywhere)
    assert wide.head.projection.weight.shape[0] == 40
    assert not torch.equal(wide.head.projection.weight[:32], same.head.projection.weight)


def test_more_dimensions_than_a_policy_takes_say_all_there_is_to_set():
    from lerobot.configs import FeatureType, PolicyFeature

    features = {"output_features": {"action": PolicyFeature(FeatureType.ACTION, (40,))}}
    with pytest.raises(ValueError, match=r"policy\.max_action_dim to at least 40 and policy\.output_projection=fresh$"):
        make_config(backbone="pi05", backbone_weights=None, **features).validate_features()
    with pytest.raises(ValueError, match=r"policy\.max_action_dim to at least 40$"):
        make_config(backbone_weights="none", **features).validate_features()


def test_the_shipped_base_fits_the_tiny_variant_only():
    with pytest.raises(ValueError, match="backbone must be 'tiny' with backbone_weights = 'base'; got 'pi05'"):
        make_config(backbone="pi05", backbone_weights="base")
