"""Decoders give the same chunk when the prediction differs by rounding, as it does with the company in a batch."""

import pytest
import torch

from lerobot_policy_quantile.core.decoders import parse_decoder
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

ROWS, H, D = 48, 10, 7
LEVELS = quantile_levels(21)


def laws(noise):
    """The same prediction twice, the second with the rounding errors of another batch; some gaps are very narrow."""
    draw = torch.Generator().manual_seed(0)
    median = 2 * torch.rand(ROWS, H, D, 1, generator=draw) - 1
    gaps = torch.nn.functional.softplus(2 * torch.randn(ROWS, H, D, len(LEVELS) - 1, generator=draw) - 5)
    gaps[..., -1, :] *= 1e-3
    gaps[..., -1, 10] = 1.5  # a gripper is open or closed
    for error in (0.0, noise):
        moved = gaps * (1 + error * torch.randn(gaps.shape, generator=draw))
        start = median + error * torch.randn(median.shape, generator=draw)
        yield torch.cat([start, start + moved.cumsum(-1)], dim=-1), moved


@pytest.mark.parametrize("text", ["density_all", "density"])
def test_ranks_do_not_hang_on_the_last_digits_of_quantiles(text):
    decoded, subtracted = (
        [
            parse_decoder(text).decode(
                QuantileFunction(LEVELS, quantiles, gaps if own else None), episodes_from_seeds(range(ROWS))
            )
            for quantiles, gaps in laws(5e-7)
        ]
        for own in (True, False)
    )
    torch.testing.assert_close(decoded[0].ranks, decoded[1].ranks, atol=1e-5, rtol=0)
    torch.testing.assert_close(decoded[0].actions, decoded[1].actions, atol=1e-4, rtol=0)
    assert (subtracted[0].ranks - subtracted[1].ranks).abs().max() > 1e-3, "the twin: gaps from rounded quantiles"
