"""Training through kept prefixes is training, with the VLM run once per frame."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.checkpoint_config import portable
from tests.support.policies import make_batch, make_config

FRAMES = 200
META = SimpleNamespace(total_frames=FRAMES, features={"action": {"names": ["dx", "dy", "gripper"]}})


def policy_of(seed=0, **overrides):
    torch.manual_seed(seed)
    with mock.patch("lerobot_policy_quantile.modeling_quantile.exact_quantiles_of"):  # no dataset on disk
        policy = QuantilePolicy(make_config(**overrides), dataset_meta=META)
    return policy.train()


def step(policy, batch):
    policy.zero_grad()
    loss, _ = policy.forward(batch)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_a_kept_prefix_trains_like_a_fresh_one(place, tmp_path):
    place = str(tmp_path / "prefixes") if place == "folder" else place
    plain, kept = policy_of(), policy_of(prefix_cache=place)
    batch = make_batch(plain.config)
    for _ in range(2):  # the second time from the cache
        (loss, gradient), (kept_loss, kept_gradient) = step(plain, batch), step(kept, batch)
        assert kept_loss == pytest.approx(loss, rel=1e-5)
        assert (kept_gradient - gradient).norm() < 1e-4 * gradient.norm()


def test_the_vlm_reads_a_frame_once(tmp_path):
    policy = policy_of(prefix_cache=str(tmp_path / "prefixes"))
    batch, more = (make_batch(policy.config, rows) for rows in (3, 4))
    for name in batch:  # one frame more than before
        if isinstance(more[name], torch.Tensor):
            more[name][:3] = batch[name]
    step(policy, batch)
    with mock.patch.object(QuantilePolicy, "prefix", autospec=True, side_effect=QuantilePolicy.prefix) as read:
        step(policy, batch)
        assert read.call_count == 0
        step(policy, more)
        assert [len(call.args[1]["observation.language.tokens"]) for call in read.call_args_list] == [1]


def test_another_vlm_or_changed_pictures_are_refused(tmp_path):
    place = str(tmp_path / "prefixes")
    policy = policy_of(prefix_cache=place)
    step(policy, make_batch(policy.config))
    with pytest.raises(ValueError, match=r"is stale \(weights was"):
        step(policy_of(1, prefix_cache=place), make_batch(policy.config))
    with pytest.raises(ValueError, match="frame 100 is not what the prefix cache holds"):
        step(policy, make_batch(policy.config, seed=1))


def test_evaluation_and_checkpoints_know_nothing_of_it(tmp_path):
    policy = policy_of(prefix_cache="memory")
    policy.eval().forward(make_batch(policy.config))
    assert policy._prefix_reuse._cache is None
    assert portable(policy.config).prefix_cache is None


def test_what_it_needs_is_said(tmp_path):
    torch.manual_seed(0)
    policy = QuantilePolicy(make_config(prefix_cache="memory")).train()
    with pytest.raises(ValueError, match=r"prefix_cache needs to know the dataset .* make_policy"):
        policy.forward(make_batch(policy.config))
    with pytest.raises(ValueError, match="freeze_vlm must be true with a prefix_cache"):
        QuantileConfig(prefix_cache="memory", freeze_vlm=False)
    with pytest.raises(ValueError, match="prefix_cache must be 'memory', a folder, or null; got ''"):
        QuantileConfig(prefix_cache="")
