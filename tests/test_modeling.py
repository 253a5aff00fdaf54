"""The policy behind LeRobot's interface: every variant trains; loss, optimiser, bad input."""

import pytest
import torch
from torch import Tensor

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from tests.support.datasets import CAMERA
from tests.support.policies import make_batch, make_policy

HEADS = [{"head": head} for head in ("quantile", "l1", "l2", "flow")]
ABLATIONS = [
    {"supervise": "median"},
    {"anchor": "detached"},
    {"gaps": "symmetric"},
    {"query": "noise"},
    {"query": "vlm"},
    {"freeze_vlm": False},
    {"gradient_checkpointing": True},
]
CELLS = [
    {"n_prompts": prompts, "supervise": supervise, "drop_ratio": ratio}
    for prompts in (0, 16)
    for supervise in ("median", "all")
    for ratio in (0.0, 0.1)
]
LEVELS = [{"n_quantiles": k} for k in (5, 9, 11, 15, 21, 25, 31)]
RATIOS = [{"drop_ratio": r} for r in (0.0, 0.1, 0.5, 1.0)]
POINTS_WITHOUT_PROMPTS = [{"head": head, "n_prompts": 0} for head in ("l1", "l2", "flow")]


def settings_name(settings: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def trained(policy: QuantilePolicy) -> dict[str, Tensor]:
    return {name: p for name, p in policy.named_parameters() if p.requires_grad and p.numel() and not unread(name)}


def unread(name: str) -> bool:
    """The expert reads keys and values: what the VLM's last layer makes of them is read by nobody."""
    last = f"language_model.layers.{VARIANTS['tiny'].depth - 1}."
    reads = ("input_layernorm", "self_attn.k_proj", "self_attn.v_proj")
    return "language_model.norm" in name or (last in name and not any(part in name for part in reads))


# --- training ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [*HEADS, *ABLATIONS, *CELLS, *LEVELS, *RATIOS, *POINTS_WITHOUT_PROMPTS], ids=settings_name
)
def test_every_variant_trains_from_its_configuration(settings):
    """Two updates: finite loss, a gradient for every trained parameter, and only those move."""
    policy = make_policy(**settings).train()
    batch = make_batch(policy.config, rows=3)
    optimizer = policy.config.get_optimizer_preset().build(policy.get_optim_params())
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    for _ in range(2):
        loss, log = policy(batch)
        assert torch.isfinite(loss)
        loss.backward()
        assert all(p.grad is not None for p in trained(policy).values())
        gradient = sum(float(p.grad.abs().sum()) for p in trained(policy).values())
        assert (gradient == 0) == (settings.get("drop_ratio") == 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert log["loss"] == loss.item()
    moved = {name for name, value in policy.state_dict().items() if not torch.equal(value, before[name])}
    assert moved <= set(trained(policy)) | {"noise_key"}
    if not policy.config.freeze_vlm:
        assert any("vision_tower" in name for name in moved)
    if settings.get("drop_ratio") != 1.0:
        assert {"head.projection.weight", "backbone.action_in_proj.bias"} <= moved
        assert ("backbone.prompts" in moved) == (policy.config.n_prompts > 0)


@pytest.mark.parametrize("settings", [*HEADS, {"supervise": "median"}], ids=settings_name)
def test_padding_is_read_by_every_head(settings):
    """What stands in padded steps, NaN even, changes neither loss nor gradient; an empty batch has loss zero."""
    policy = make_policy(**settings).eval()
    batch = make_batch(policy.config, rows=2)
    batch["action_is_pad"][:, 6:] = True
    poisoned = {**batch, "action": batch["action"].clone()}
    poisoned["action"][:, 6:] = torch.nan
    clean = {**batch, "action": batch["action"].clone()}
    clean["action"][:, 6:] = 0.0
    assert float(policy(poisoned)[0]) == float(policy(clean)[0]) > 0
    batch["action_is_pad"][:] = True
    loss, log = policy.train()(batch)
    loss.backward()
    assert float(loss) == 0.0
    assert all(not p.grad.any() for p in trained(policy).values())
    assert set(log) == set(policy(clean)[1])  # processes average the same keys


def test_model_padding_never_reaches_the_loss():
    """Action widths beyond the real three get no gradient in the output projection (Sec. 3.2)."""
    policy = make_policy().train()
    policy(make_batch(policy.config))[0].backward()
    gradient = policy.head.projection.weight.grad
    assert gradient[:3].abs().sum() > 0
    assert not gradient[3:].any()


def test_reduction_none_keeps_the_batch_axis():
    policy = make_policy().eval()
    batch = make_batch(policy.config, rows=5)
    batch["action_is_pad"][1] = True
    per_sample, _ = policy(batch, reduction="none")
    assert per_sample.shape == (5,)
    assert per_sample[1] == 0
    torch.testing.assert_close(per_sample.mean(), policy(batch)[0])


@pytest.mark.parametrize("settings", [{}, {"head": "flow"}, {"query": "noise"}], ids=settings_name)
def test_a_reloaded_policy_goes_on_with_the_same_noise(settings, tmp_path):
    policy = make_policy(drop_ratio=0.5, **settings).train()
    batch = make_batch(policy.config)
    with torch.no_grad():
        policy(batch)
        policy.save_pretrained(tmp_path)
        torch.manual_seed(99)
        restored = QuantilePolicy.from_pretrained(tmp_path).train()
        torch.rand(5)  # a data loader starting up
        assert [float(restored(batch)[0]) for _ in range(3)] == [float(policy(batch)[0]) for _ in range(3)]


def test_logged_coverage_counts_targets_inside_the_central_interval():
    """Median and gaps set by hand: quantiles from -0.2 to 0.2; targets at 0 are inside, at 1 outside."""
    policy = make_policy().eval()
    for parameter in policy.head.parameters():
        torch.nn.init.zeros_(parameter)
    batch = make_batch(policy.config, rows=4)
    batch["action"][:] = 1.0
    batch["action"][:3] = 0.0
    _, log = policy(batch)
    assert [log[f"coverage_{mass}"] for mass in (50, 80, 95)] == [0.75] * 3
    assert log["width_80"] == pytest.approx(0.8 / 0.95 * 0.4, rel=1e-5)  # linear between knots 0.02 apart


def test_optimiser_groups_are_the_papers():
    policy = make_policy()
    rest, prompts = policy.get_optim_params()
    assert (rest["lr"], rest["weight_decay"]) == (2.5e-5, 0.01)
    assert (prompts["lr"], prompts["weight_decay"]) == (1e-4, 0.0)
    assert [p is policy.backbone.prompts for p in prompts["params"]] == [True]
    assert {id(p) for p in rest["params"]} == {id(p) for n, p in trained(policy).items() if n != "backbone.prompts"}


def test_the_head_may_have_a_rate_of_its_own():
    policy = make_policy(optimizer_head_lr=1e-3)
    rest, head, prompts = policy.get_optim_params()
    assert (head["lr"], head["weight_decay"]) == (1e-3, 0.01)
    assert {id(p) for p in head["params"]} == {id(p) for p in policy.head.parameters()}
    assert (rest["lr"], prompts["lr"]) == (2.5e-5, 1e-4)
    together = [id(p) for group in (rest, head, prompts) for p in group["params"]]
    assert sorted(together) == sorted(id(p) for p in trained(policy).values())


def test_half_precision_trains_float32_weights_over_a_half_precision_vlm():
    policy = make_policy(dtype="bfloat16").train()
    assert {p.dtype for p in trained(policy).values()} == {torch.float32}
    assert torch.bfloat16 in {p.dtype for p in policy.backbone.vlm_parameters()}
    batch = make_batch(policy.config)
    loss, _ = policy(batch)
    loss.backward()
    exact = make_policy(dtype="float32").train()(batch)[0]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.05, atol=0.0)


# --- bad input --------------------------------------------------------------------------------


def test_half_of_l1_has_the_gradients_of_half_the_loss_and_is_judged_as_l1():
    whole, half = (make_policy(head="l1", loss_scale=scale).train() for scale in (1.0, 0.5))
    half.load_state_dict(whole.state_dict())
    batch = make_batch(whole.config, rows=2)
    for policy in (whole, half):
        policy(batch)[0].backward()
    for name, parameter in trained(half).items():
        torch.testing.assert_close(2 * parameter.grad, trained(whole)[name].grad)
    assert half.eval()(batch)[0] == whole.eval()(batch)[0]


def test_missing_cameras_are_refused_in_training_and_acting():
    policy = make_policy()
    batch = make_batch(policy.config)
    del batch[CAMERA]
    for act in (policy, policy.select_action):
        with pytest.raises(ValueError, match=r"cameras missing: the policy reads observation.images.top"):
            act(batch)


def test_nan_in_an_action_is_refused_with_frame_and_step():
    policy = make_policy()
    batch = make_batch(policy.config)
    batch["action"][2, 7, 1] = torch.nan
    with pytest.raises(ValueError, match=r"action must be finite; row 2 \(frame index 102\), dimension \(7, 1\)"):
        policy(batch)


def test_chunks_of_another_length_are_refused():
    policy = make_policy()
    batch = make_batch(policy.config)
    batch["action"] = batch["action"][:, :5]
    with pytest.raises(ValueError, match=r"action must have shape \(4, 10, 3\); got \(4, 5, 3\)"):
        policy(batch)


def test_training_without_actions_is_refused():
    policy = make_policy()
    batch = make_batch(policy.config)
    del batch["action"]
    with pytest.raises(ValueError, match="action is missing"):
        policy(batch)


def test_actions_wider_than_the_model_are_refused_before_any_weight_is_made():
    with pytest.raises(ValueError, match="above max_action_dim = 2"):
        make_policy(max_action_dim=2)
