"""Bounds with a guarantee: conformalised quantile regression whose exchangeable unit is the episode. Not in the paper.

The central interval of a predicted law is widened on both sides by a margin, or narrowed if the margin is negative, so
that of a new episode, drawn as the calibration episodes were, a frame picked at random is inside with probability at
least `mass` (Romano et al. 2019; groups of dependent frames after Lee, Barber and Willett 2023). Every coordinate
(chunk step, action dim) has a margin of its own.

Axes: _ frame, any number per episode; *s coordinates.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_shape
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

_ROUNDING = 1e-9


def episodes_needed(mass: float) -> int:
    """The smallest number n of calibration episodes with ceil((n + 1) mass) <= n; fewer give no finite margin."""
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie strictly between 0 and 1; got {mass}")
    return math.ceil(mass / (1 - mass) - _ROUNDING)


def conformity_scores(quantiles: QuantileFunction, target: Float[Tensor, "*s"], mass: float) -> Float[Tensor, "*s"]:
    """How far each target is outside the central interval of that mass; negative inside: max(Q_low - y, y - Q_high)."""
    require_between("mass", mass, 0.0, 1.0)
    require_shape("target", target, tuple(quantiles.shape))
    target = target.to(quantiles.levels.dtype)
    return torch.maximum(quantiles((1 - mass) / 2) - target, target - quantiles((1 + mass) / 2))


def conformal_margin(
    scores: Sequence[Float[Tensor, "_ *s"]], valid: Sequence[Bool[Tensor, "_ *s"]], mass: float
) -> Float[Tensor, "*s"]:
    """The finite-sample quantile of scores, one entry of each sequence per episode.

    Each of the m episodes that have a valid frame at a coordinate weighs 1 / (m + 1) there, shared by its frames; the
    rest is the new episode's. With one frame per episode this is the ceil((m + 1) mass)-th smallest score. Infinite
    where episodes are too few.
    """
    counts = [there.sum(0, keepdim=True) for there in valid]
    shares = [there / count.clamp_min(1) for there, count in zip(valid, counts, strict=True)]
    weight, every = torch.cat(shares).double(), torch.cat(list(scores)).double()
    every = torch.where(torch.cat(list(valid)), every, torch.inf)
    ordered, order = every.sort(0)
    reached = weight.gather(0, order).cumsum(0)
    episodes = torch.cat([(count > 0).double() for count in counts]).sum(0)
    wanted = mass * (episodes + 1) - _ROUNDING
    place = (reached < wanted).sum(0)
    padded = torch.cat([ordered, torch.full_like(ordered[:1], torch.inf)])
    return padded.gather(0, place[None])[0]


def conformal_bounds(
    quantiles: QuantileFunction, margin: Float[Tensor, "*s"], mass: float
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """The central interval of that mass, widened by a margin that broadcasts to its shape.

    Where a negative margin would leave nothing, both ends are the interval's middle.
    """
    margin = margin.to(quantiles.levels)
    low, high = quantiles((1 - mass) / 2), quantiles((1 + mass) / 2)
    middle = (low + high) / 2
    return torch.minimum(low - margin, middle), torch.maximum(high + margin, middle)
