"""Is the predicted distribution honest? Coverage, PIT, CRPS, interval width and pinball skill.

Axes: *s any shape (batch, step, action dim), k level, n sample. `valid` picks the coordinates that count.
Targets and quantiles must be in the same units; coverage, PIT and skill do not depend on which.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_no_nan, require_shape
from lerobot_policy_quantile.core._devices import on_host
from lerobot_policy_quantile.core._normal import phi_inverse
from lerobot_policy_quantile.core.losses import quantile_loss
from lerobot_policy_quantile.core.quantile_function import QuantileFunction


def level_coverage(
    quantiles: QuantileFunction, target: Float[Tensor, "*s"], valid: Bool[Tensor, "*s"]
) -> Float[Tensor, " k"]:
    """Fraction of valid targets at or below each predicted quantile; calibrated when it equals the level."""
    knots, target = _valid_only(quantiles, target, valid)
    return covered(knots, target).to(knots.levels.dtype).mean(0)


def covered(quantiles: QuantileFunction, target: Float[Tensor, "*s"]) -> Bool[Tensor, "*s k"]:
    """Whether each target is at or below each of its predicted quantiles."""
    require_shape("target", target, tuple(quantiles.shape))
    below: Tensor = target[..., None] <= quantiles.quantiles
    return below


def interval_coverage(
    quantiles: QuantileFunction, target: Float[Tensor, "*s"], valid: Bool[Tensor, "*s"], mass: float
) -> Float[Tensor, ""]:
    """Fraction of valid targets inside the central interval that should hold `mass` of them."""
    _require_some(quantiles, target, valid)
    require_no_nan("target", torch.where(valid, target, 0.0))
    return (inside_interval(quantiles, target, mass) & valid).sum() / valid.sum()


def inside_interval(quantiles: QuantileFunction, target: Float[Tensor, "*s"], mass: float) -> Bool[Tensor, "*s"]:
    """Whether each target is inside the central interval that should hold `mass`, ends included."""
    require_between("mass", mass, 0.0, 1.0)
    target = target.to(quantiles.levels.dtype)
    return (quantiles((1 - mass) / 2) <= target) & (target <= quantiles((1 + mass) / 2))


def interval_width(quantiles: QuantileFunction, valid: Bool[Tensor, "*s"], mass: float) -> Float[Tensor, ""]:
    """Mean width of the central interval that should hold `mass`, over valid coordinates."""
    require_shape("valid", valid, tuple(quantiles.shape))
    return torch.where(valid, quantiles.width(mass), 0.0).sum() / valid.sum()


def pit(quantiles: QuantileFunction, target: Float[Tensor, "*s"], valid: Bool[Tensor, "*s"]) -> Float[Tensor, " n"]:
    """Probability integral transform F(target) of the valid targets; uniform on [0, 1] when calibrated."""
    knots, target = _valid_only(quantiles, target, valid)
    return knots.cdf(target)


def crps(quantiles: QuantileFunction, target: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Continuous ranked probability score of the piecewise-linear law, twice its integrated pinball loss.

    Exact: on a segment [s, t] of ranks the residual e(u) = target - Q(u) is linear, and
    rho_u(e) = u e + max(-e, 0); the first term is a quadratic (Simpson's rule integrates it
    exactly), the second the positive part of a line.
    """
    require_shape("target", target, tuple(quantiles.shape))
    ends = quantiles.levels.new_tensor([0.0, 1.0])
    ranks = torch.cat([ends[:1], quantiles.levels, ends[1:]])
    tails = [quantiles(0.0)[..., None], quantiles(1.0)[..., None]]
    knots = torch.cat([tails[0], quantiles.quantiles, tails[1]], dim=-1)
    residual = target[..., None] - knots
    start, stop = residual[..., :-1], residual[..., 1:]
    s, t = ranks[:-1], ranks[1:]
    linear = (s * start + (s + t) * (start + stop) + t * stop) / 6  # Simpson
    hinge = _mean_positive_part(-start, -stop)
    return 2 * ((linear + hinge) * (t - s)).sum(-1)


def sample_crps(
    samples: Float[Tensor, "n *s"], target: Float[Tensor, "*s"], *, fair: bool = False
) -> Float[Tensor, "*s"]:
    """CRPS of n samples: mean |x_i - y| minus half the mean of |x_i - x_j| over all pairs (i, j).

    A single sample scores its distance, as a point does. `fair` leaves out the pairs of a sample with itself and so
    estimates, without bias, the score of the law that two or more samples were drawn from.
    """
    require_shape("target", target, tuple(samples.shape[1:]))
    n = len(samples)
    if n < (2 if fair else 1):
        raise ValueError(f"samples must be at least {2 if fair else 1} along the first axis; got {n}")
    distance = (samples - target).abs().mean(0)
    # Sorted, the i-th of n samples is the larger one in i - 1 pairs and the smaller one in n - i.
    weight = torch.arange(1 - n, n, 2, dtype=samples.dtype, device=samples.device)
    spread = torch.tensordot(weight, samples.sort(0).values, dims=1)
    score: Tensor = distance - spread / (n * (n - 1) if fair else n * n)
    return score


def sample_quantiles(samples: Float[Tensor, "n *s"], levels: Float[Tensor, " k"]) -> QuantileFunction:
    """Quantiles of n samples at the levels, linear between the sorted samples; a point's are all the same."""
    n = len(samples)
    if not n:
        raise ValueError("samples must be at least 1 along the first axis; got 0")
    ordered = samples.sort(0).values.movedim(0, -1)
    place = levels.to(samples) * (n - 1)
    left = place.floor().long().clamp(max=max(n - 2, 0))
    right = (left + 1).clamp(max=n - 1)
    low, high = ordered[..., left], ordered[..., right]
    # Rounding must not let a quantile fall below the one before it.
    quantiles = (low + (place - left) * (high - low)).cummax(-1).values
    return QuantileFunction(levels, quantiles)


def pinball_skill(
    quantiles: QuantileFunction,
    reference: QuantileFunction,
    target: Float[Tensor, "*s"],
    valid: Bool[Tensor, "*s"],
) -> Float[Tensor, ""]:
    """1 - (our pinball loss) / (the reference's): 1 is perfect, 0 no better than the reference.

    The usual reference is `climatology`: the data's own marginal quantiles, whatever the observation.
    """
    ours, our_target = _valid_only(quantiles, target, valid)
    theirs, their_target = _valid_only(reference, target, valid)
    loss = quantile_loss(ours.quantiles, our_target, ours.levels).mean()
    return 1 - loss / quantile_loss(theirs.quantiles, their_target, theirs.levels).mean()


def climatology(
    target: Float[Tensor, "n *s"], valid: Bool[Tensor, "n *s"], levels: Float[Tensor, " k"]
) -> QuantileFunction:
    """The quantiles of the valid targets over n, one set per remaining coordinate: what is known
    without looking. A coordinate with no valid target gets zeros.
    """
    require_shape("valid", valid, tuple(target.shape))
    holes = torch.where(valid, target, torch.nan)
    quantiles = torch.nanquantile(holes, levels.to(target), dim=0).movedim(0, -1).nan_to_num(nan=0.0)
    return QuantileFunction(levels, quantiles.expand(*target.shape, len(levels)))


def gaussian_climatology(
    target: Float[Tensor, "n *s"], valid: Bool[Tensor, "n *s"], levels: Float[Tensor, " k"]
) -> QuantileFunction:
    """The same with a normal law: mean and standard deviation of the valid targets of each coordinate."""
    require_shape("valid", valid, tuple(target.shape))
    count = valid.sum(0).clamp_min(1)
    mean = torch.where(valid, target, 0.0).sum(0) / count
    deviation = (torch.where(valid, target - mean, 0.0).square().sum(0) / count).sqrt()
    quantiles = mean[..., None] + deviation[..., None] * phi_inverse(levels.to(target))
    return QuantileFunction(levels, quantiles.expand(*target.shape, len(levels)))


def _valid_only(
    quantiles: QuantileFunction, target: Tensor, valid: Tensor
) -> tuple[QuantileFunction, Float[Tensor, " n"]]:
    _require_some(quantiles, target, valid)
    chosen = target[valid].to(quantiles.levels)
    require_no_nan("target", chosen)
    return QuantileFunction(quantiles.levels, quantiles.quantiles[valid]), chosen


def _require_some(quantiles: QuantileFunction, target: Tensor, valid: Tensor) -> None:
    require_shape("target", target, tuple(quantiles.shape))
    require_shape("valid", valid, tuple(target.shape))
    if on_host(valid) and not bool(valid.any()):
        raise ValueError("valid must pick at least one coordinate; got none")


def _mean_positive_part(start: Tensor, stop: Tensor) -> Tensor:
    """Mean over a segment of max(x, 0), where x runs linearly from start to stop."""
    low, high = torch.minimum(start, stop), torch.maximum(start, stop)
    crossing = high.clamp_min(0).square() / (2 * (high - low).clamp_min(torch.finfo(high.dtype).tiny))
    return torch.where(low >= 0, (low + high) / 2, torch.where(high <= 0, torch.zeros_like(high), crossing))
