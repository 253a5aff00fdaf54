"""The policy acts: chunks, episodes, distributions in action units."""

import pytest
import torch
from torch import Tensor

from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.policies import STATS, make_batch, make_policy


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
