"""An episode's noise goes on where it was when an attempt failed."""

import pytest
import torch

from lerobot_policy_quantile.core.episode import Episode, unchanged_on_error


def test_a_failed_attempt_draws_nothing():
    episode, alone = Episode(3), Episode(3)
    for one in (episode, alone):
        one.next_latent(0.9, one.normal(4))
    before = episode.latent

    def attempt():
        with unchanged_on_error([episode]):
            episode.next_latent(0.9, episode.normal(4))
            episode.rank, episode.executed = 0.3, torch.zeros(2, 4)
            raise RuntimeError("in mid-batch")

    with pytest.raises(RuntimeError):
        attempt()
    assert episode.latent is before
    assert (episode.rank, episode.executed) == (None, None)
    assert torch.equal(episode.normal(4), alone.normal(4))
