"""The configuration refuses what cannot work, all at once and by name; presets are App. B's."""

import math
from itertools import pairwise

import draccus
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.optim import LRSchedulerConfig

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.policy.schedule import WarmupCosineConfig, warmup_cosine
from tests.support.policies import make_config


def test_the_type_is_registered_and_goes_round_trip(tmp_path):
    config = make_config(decoder="shared(l=0.2, rho=0.9)", n_quantiles=9)
    config._save_pretrained(tmp_path)
    loaded = PreTrainedConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, QuantileConfig)
    assert loaded == config


def test_defaults_are_the_papers():
    config = QuantileConfig(device="cpu")
    assert (config.n_quantiles, config.delta0, config.drop_ratio, config.n_prompts) == (21, 0.02, 0.1, 16)
    assert (config.chunk_size, config.n_action_steps, config.decoder, config.query) == (10, 10, "median", "zero")
    assert config.freeze_vlm
    assert config.action_delta_indices == list(range(10))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("head", "quantil", "did you mean 'quantile'"),
        ("backbone", "pi5", "pi05, small, tiny"),
        ("decoder", "mode", "decoder must be one of median"),
        ("decoder", "shared(l=2)", "l must lie in"),
        ("n_quantiles", 20, "must be odd"),
        ("n_quantiles", 1, "at least 3"),
        ("supervise", "mean", "all, median"),
        ("gaps", "even", "separate, symmetric"),
        ("anchor", "free", "shared, detached"),
        ("query", "random", "zero, noise, vlm"),
        ("dtype", "float16", "float32, bfloat16"),
        ("drop_ratio", 1.5, "[0.0, 1.0]"),
        ("drop_ratio", math.nan, "[0.0, 1.0]"),
        ("n_action_steps", 11, "at most chunk_size = 10"),
        ("chunk_size", 0, "at least 1"),
        ("n_prompts", -1, "0 or more"),
        ("delta0", 0.0, "positive"),
        ("loss_scale", 0.0, "positive"),
        ("optimizer_head_lr", 0.0, "positive, or null"),
        ("n_obs_steps", 2, "must be 1"),
        ("tokenizer_max_length", -5, "at least 1, or null"),
    ],
)
def test_bad_fields_are_refused_by_name_and_choices(field, value, says):
    with pytest.raises(ValueError, match=field) as error:
        make_config(**{field: value})
    assert says in str(error.value)


def test_all_problems_come_together():
    with pytest.raises(ValueError, match="4 problem") as error:
        make_config(head="mean", backbone="huge", n_quantiles=4, drop_ratio=-1.0)
    for field in ("head", "backbone", "n_quantiles", "drop_ratio"):
        assert field in str(error.value)


@pytest.mark.parametrize("head", ["l1", "l2", "flow"])
@pytest.mark.parametrize(
    "setting", [{"decoder": "native"}, {"gaps": "symmetric"}, {"anchor": "detached"}, {"supervise": "median"}]
)
def test_settings_of_the_quantile_head_are_refused_with_another(head, setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        make_config(head=head, **setting)


def test_flow_takes_no_other_query():
    with pytest.raises(ValueError, match="query must be 'zero' with head = 'flow'"):
        make_config(head="flow", query="noise")


def test_actions_wider_than_the_padded_width_are_refused_with_the_fix():
    config = make_config(max_action_dim=2, max_state_dim=1)
    with pytest.raises(ValueError, match=r"action has 3 dimensions, above max_action_dim = 2") as error:
        config.validate_features()
    assert "set policy.max_action_dim to at least 3" in str(error.value)
    assert "observation.state has 2 dimensions, above max_state_dim = 1" in str(error.value)


def test_features_without_camera_state_or_action_are_refused():
    config = make_config(input_features={}, output_features={})
    with pytest.raises(ValueError, match="at least one camera") as error:
        config.validate_features()
    assert "observation.state" in str(error.value)
    assert "hold action" in str(error.value)


def test_image_shaped_actions_are_refused():
    config = make_config(output_features={"action": PolicyFeature(FeatureType.ACTION, (2, 3))})
    with pytest.raises(ValueError, match="action must be a vector"):
        config.validate_features()


def test_optimiser_preset_is_adamw_of_the_paper():
    preset = make_config().get_optimizer_preset()
    assert (preset.betas, preset.eps, preset.grad_clip_norm) == ((0.9, 0.95), 1e-8, 1.0)
    assert (preset.lr, preset.weight_decay) == (2.5e-5, 0.01)


def test_schedule_warms_up_linearly_then_falls_to_a_tenth():
    """201 equal rises to the peak at step 200, the middle of a cosine at the middle, 0.1 at the end."""
    factors = [warmup_cosine(s, warmup_steps=200, total_steps=1000, final_fraction=0.1) for s in range(1001)]
    assert factors[0] == pytest.approx(1 / 201)
    assert factors[200] == 1.0
    assert all(b - a == pytest.approx(1 / 201) for a, b in pairwise(factors[:200]))
    assert factors[600] == pytest.approx(0.55)
    assert factors[1000] == pytest.approx(0.1)
    assert max(factors) == 1.0


def test_a_short_run_keeps_its_warm_up():
    """LeRobot's own schedule would shrink 200 steps of warm-up to fit 50 steps of training."""
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": 2.0}])
    scheduler = WarmupCosineConfig(200, 0.1).build(optimizer, 50)
    rates = []
    for _ in range(50):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([2.0 * (s + 1) / 201 for s in range(50)])


def test_schedule_is_known_to_lerobot_by_name():
    encoded = draccus.encode(make_config().get_scheduler_preset(), LRSchedulerConfig)
    assert encoded == {"type": "warmup_cosine_to_fraction", "num_warmup_steps": 200, "final_fraction": 0.1}
