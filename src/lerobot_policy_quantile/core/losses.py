"""Losses per element, label dropping, and the one masked reduction that every head uses.

Axes: b batch, h chunk step, d action dim, k level.
A per-element loss has the target's shape; which elements count is the caller's business:
`masked_mean(absolute_loss(prediction, target), keep)`.
`valid` is True at a real, supervised coordinate and False at padding.
"""

from fractions import Fraction
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from lerobot_policy_quantile.core._checks import (
    require_between,
    require_choice,
    require_no_nan,
    require_shape,
)
from lerobot_policy_quantile.core._devices import send

Reduction = Literal["mean", "none"]


# --- per element ------------------------------------------------------------------------------


def pinball(residual: Float[Tensor, "*s"], level: float | Float[Tensor, "..."]) -> Float[Tensor, "*s"]:
    """Pinball loss rho_tau(e) = max(tau e, (tau - 1) e) of e = a - q. Paper eq. 6.

    Underprediction (e > 0) costs tau per unit, overprediction 1 - tau.
    """
    return torch.maximum(level * residual, (level - 1) * residual)


def quantile_loss(
    quantiles: Float[Tensor, "*s k"], target: Float[Tensor, "*s"], levels: Float[Tensor, " k"]
) -> Float[Tensor, "*s"]:
    """Mean over the K levels of `pinball(target - quantiles, levels)`, with the target's shape.

    Where a quantile meets its target exactly, the gradient is the middle of the subgradient
    interval (zero for the median, as for |e|).
    """
    require_shape("quantiles", quantiles, (*target.shape, len(levels)))
    loss: Tensor = _QuantileLoss.apply(quantiles, target, levels)  # type: ignore[no-untyped-call]
    return loss


def absolute_loss(prediction: Float[Tensor, "*s"], target: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """|e|, the L1 baseline."""
    require_shape("prediction", prediction, tuple(target.shape))
    return (target - prediction).abs()


def squared_loss(prediction: Float[Tensor, "*s"], target: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """e^2, the L2 baseline (its mean is the paper's squared regression) and the loss on velocities. Paper eq. A.1."""
    require_shape("prediction", prediction, tuple(target.shape))
    return (target - prediction).square()


class _QuantileLoss(torch.autograd.Function):
    """`pinball(...).mean(-1)` with one temporary the size of the quantiles instead of five.

    With x = q - a = -e: rho_tau(e) = |x| / 2 + (1/2 - tau) x, derivative in q sign(x) / 2 + 1/2 - tau.
    """

    @staticmethod
    def forward(quantiles: Tensor, target: Tensor, levels: Tensor) -> Tensor:
        x = _excess(quantiles, target)
        tilt = x @ (0.5 - levels.to(x.dtype))
        return (x.abs_().sum(-1) / 2 + tilt) / len(levels)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        quantiles, target, levels = ctx.saved_tensors
        slope = _excess(quantiles, target).sgn_()
        slope.add_(1 - 2 * levels.to(slope.dtype)).mul_(grad[..., None] / (2 * len(levels)))
        return slope.to(quantiles.dtype), None, None


def _excess(quantiles: Tensor, target: Tensor) -> Tensor:
    """q - a, in float32 at least: half precision would round the levels it is weighed with."""
    return quantiles.to(torch.promote_types(quantiles.dtype, torch.float32)) - target[..., None]


# --- which labels count -----------------------------------------------------------------------


def drop_count(n_valid: Int[Tensor, "*s"], drop_ratio: float) -> Int[Tensor, "*s"]:
    """How many of N valid labels are dropped: min(ceil(r N), max(N - 1, 0)); all of them at r = 1.

    Integer arithmetic on the ratio that was meant: 0.1 * 3 of 70 labels are 21, where floating
    point has 21.000000000000004 and a ceiling of 22.
    """
    require_between("drop_ratio", drop_ratio, 0.0, 1.0)
    if drop_ratio == 1.0:
        return n_valid.clone()
    r = Fraction(repr(float(drop_ratio))).limit_denominator(1_000_000)
    ceiling = (r.numerator * n_valid + r.denominator - 1) // r.denominator
    return torch.minimum(ceiling, (n_valid - 1).clamp_min(0))


def keep_mask(valid: Bool[Tensor, "b *s"], drop_ratio: float, *, generator: torch.Generator) -> Bool[Tensor, "b *s"]:
    """Valid labels that keep their supervision: per sample, `drop_count` of them are dropped,
    uniformly without replacement. The K levels of a coordinate share its fate.
    """
    flat = valid.flatten(1)
    return keep_by_score(valid, drop_ratio, torch.rand(flat.shape, generator=generator, device=generator.device))


def keep_by_score(valid: Bool[Tensor, "b *s"], drop_ratio: float, score: Float[Tensor, "b n"]) -> Bool[Tensor, "b *s"]:
    """`keep_mask` with the draws given: of every sample's valid labels, those with the lowest scores are dropped."""
    flat = valid.flatten(1)
    most = int(drop_count(torch.tensor(flat.shape[1]), drop_ratio))  # no sample drops more
    if not most:
        return valid
    drop = drop_count(flat.sum(1), drop_ratio)
    score = send(score, flat.device).masked_fill(~flat, 2.0)  # padding comes after every valid label
    candidates = score.topk(most, dim=1, largest=False).indices
    spared = torch.arange(most, device=flat.device) >= drop[:, None]
    return (flat.scatter(1, candidates, spared) & flat).view_as(valid)


def clean_target(target: Float[Tensor, "*s"], valid: Bool[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """The target with padding set to zero, whatever it held; NaN in a valid place is refused."""
    require_shape("valid", valid, tuple(target.shape))
    target = torch.where(valid, target, torch.zeros_like(target))
    require_no_nan("target", target)
    return target


# --- reduction --------------------------------------------------------------------------------


def masked_mean(
    loss: Float[Tensor, "b *s"], keep: Bool[Tensor, "b *s"], *, reduction: Reduction = "mean"
) -> Float[Tensor, "..."]:
    """Mean over each sample's kept elements, then over the batch, empty samples counted. Paper eq. 7.

    `loss` is already a mean over levels, which is eq. 7's factor 1 / K. An empty sample has loss
    zero and gradient zero, and stays in the batch mean. `reduction="none"` leaves the batch axis.
    """
    require_choice("reduction", reduction, ("mean", "none"))
    require_shape("keep", keep, tuple(loss.shape))
    kept = torch.where(keep, loss, torch.zeros_like(loss)).flatten(1).sum(1)
    per_sample = kept / keep.flatten(1).sum(1).clamp_min(1)
    return per_sample.mean() if reduction == "mean" else per_sample
