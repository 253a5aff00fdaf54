"""The policy behind LeRobot's interface: every variant trains; loss, acting, saving, bad input."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from torch import Tensor

from lerobot_policy_quantile.backbone import VARIANTS
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.losses import keep_mask
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.label_noise import keep_labels, keyed_generator
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.command_line import ROOT, environment
from tests.support.datasets import CAMERA
from tests.support.policies import STATS, make_batch, make_config, make_policy, raw_batch

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


def test_labels_are_dropped_in_training_only():
    policy = make_policy(drop_ratio=0.5)
    batch = make_batch(policy.config)
    with torch.no_grad():
        assert float(policy.eval()(batch)[0]) == float(policy(batch)[0])
        first, second = (float(policy.train()(batch)[0]) for _ in range(2))
    assert first != second


def test_masks_depend_on_the_frame_not_on_the_split():
    """One batch of six or two of three: the same labels are dropped, 3 of 30 at r = 0.1."""
    valid = torch.ones(6, 10, 3, dtype=torch.bool)
    frames = [5, 900, 17, 3, 44, 8]
    key = {"run": 7, "forward": 3}
    whole = keep_labels(valid, 0.1, frames=frames, **key)
    halves = [keep_labels(valid[:3], 0.1, frames=frames[part], **key) for part in (slice(3), slice(3, 6))]
    assert torch.equal(whole, torch.cat(halves))
    assert (~whole).flatten(1).sum(1).tolist() == [3] * 6
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole, keep_labels(valid, 0.1, run=7, forward=4, frames=frames))


def test_masks_are_drawn_frame_by_frame():
    """Drawn together, and the same as ever: each frame by a generator of its own."""
    valid = torch.rand(5, 10, 3) > 0.3
    frames = [5, 900, 2**40, 0, 44]
    alone = [
        keep_mask(row[None], 0.3, generator=keyed_generator(7, 3, frame))
        for row, frame in zip(valid, frames, strict=True)
    ]
    assert torch.equal(keep_labels(valid, 0.3, run=7, forward=3, frames=frames), torch.cat(alone))


def test_keys_are_numpys_seed_sequence():
    """What makes runs of earlier versions resumable."""
    for key in [(7, 3, 900), (7, 3, 2**40)]:
        seed = int(np.random.SeedSequence(list(key)).generate_state(1, dtype=np.uint64)[0]) & (2**63 - 1)
        assert keyed_generator(*key).initial_seed() == seed


def test_generators_of_near_keys_are_unrelated():
    draws = torch.stack([torch.rand(1000, generator=keyed_generator(0, 0, frame)) for frame in range(20)])
    correlation = torch.corrcoef(draws) - torch.eye(20)
    assert correlation.abs().max() < 0.15  # five standard errors of 1000 independent draws


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


# --- acting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "calls"), [("quantile", 1), ("l1", 1), ("l2", 1), ("flow", 10)])
def test_one_expert_pass_per_chunk_and_replanning_after_n_action_steps(head, calls):
    policy = make_policy(head=head, n_action_steps=4)
    batch = make_batch(policy.config, rows=2)
    actions = [policy.select_action(batch) for _ in range(4)]
    assert policy.backbone.expert_calls == calls
    assert all(action.shape == (2, 3) for action in actions)
    policy.select_action(batch)
    assert policy.backbone.expert_calls == 2 * calls


def test_median_actions_are_the_chunk_step_by_step():
    policy = make_policy()
    batch = make_batch(policy.config, rows=2)
    chunk = policy.predict_action_chunk(batch)
    policy.reset()
    assert torch.equal(torch.stack([policy.select_action(batch) for _ in range(10)], dim=1), chunk)


def random_decisions(policy: QuantilePolicy, batch: dict[str, Tensor], chunks: int = 2) -> Tensor:
    return torch.cat([policy.predict_action_chunk(batch) for _ in range(chunks)], dim=1)


@pytest.mark.parametrize("settings", [{"decoder": "independent"}, {"head": "flow"}, {"query": "noise"}])
def test_each_row_has_an_episode_of_its_own(settings):
    """A batch of three equals three batches of one, with the same seeds; other seeds act otherwise."""
    policy = make_policy(**settings)
    batch = make_batch(policy.config, rows=3)
    policy.reset(seeds=[11, 12, 13])
    together = random_decisions(policy, batch)
    for row, seed in enumerate([11, 12, 13]):
        policy.reset(seeds=[seed])
        alone = random_decisions(policy, {k: v[row : row + 1] for k, v in batch.items() if isinstance(v, Tensor)})
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)
    policy.reset(seeds=[21, 22, 23])
    assert not torch.allclose(random_decisions(policy, batch), together, atol=1e-3)


def test_episodes_without_seeds_are_numbered_whatever_the_batch():
    policy = make_policy(decoder="independent", episode_seed=5)
    batch = make_batch(policy.config, rows=2)
    policy.predict_action_chunk(batch)
    assert [episode.seed for episode in policy._episodes] == [5, 6]
    policy.reset()
    policy.predict_action_chunk(batch)
    assert [episode.seed for episode in policy._episodes] == [7, 8]
    assert all(isinstance(episode, Episode) for episode in policy._episodes)


def test_another_batch_size_without_reset_is_refused():
    policy = make_policy()
    policy.predict_action_chunk(make_batch(policy.config, rows=2))
    with pytest.raises(ValueError, match=r"one row per running episode, 2; got 3; call reset\(\)"):
        policy.predict_action_chunk(make_batch(policy.config, rows=3))


def test_quantiles_come_in_action_units_with_the_chunk():
    policy = make_policy().eval()
    batch = make_batch(policy.config, rows=2)
    _, after = make_quantile_pre_post_processors(policy.config, STATS)
    actions, quantiles, levels = policy.predict_distribution(batch, after)
    assert quantiles.shape == (2, 10, 3, 21)
    torch.testing.assert_close(quantiles[..., 10], actions)
    assert (quantiles.diff(dim=-1) >= 0).all()
    torch.testing.assert_close(actions, after(policy.predict_action_chunk(batch)))
    # Before training every gap is 0.02 in normalised units: half a range of 4, 2 and 1 units.
    torch.testing.assert_close(quantiles.diff(dim=-1)[0, 0, :, 0], torch.tensor([0.04, 0.02, 0.01]), rtol=1e-3, atol=0)
    assert levels[10] == 0.5


@pytest.mark.parametrize("head", ["l1", "flow"])
def test_heads_without_a_distribution_say_so(head):
    policy = make_policy(head=head)
    _, after = make_quantile_pre_post_processors(policy.config, STATS)
    distribution = policy.predict_distribution(make_batch(policy.config), after)
    assert distribution.quantiles is None
    assert distribution.levels is None
    assert distribution.actions.shape == (4, 10, 3)


# --- saving and loading -----------------------------------------------------------------------


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
    from safetensors.torch import save_file

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


# --- bad input --------------------------------------------------------------------------------


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
