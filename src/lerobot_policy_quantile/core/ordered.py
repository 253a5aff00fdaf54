"""Ordered quantiles from a median and raw gaps.

Axes: b batch, h chunk step, d action dim, k level (K = 2c + 1), g raw gap (2c).
The raw gaps are ordered as the quantiles are: the first c lie left of the median (outermost
first), the last c right of it (innermost first), so raw gap g sits between quantiles g and g + 1.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from lerobot_policy_quantile.core._checks import require_shape

DELTA0 = 0.02


def positive_gaps(raw_gaps: Float[Tensor, "*b g"], *, delta0: float = DELTA0) -> Float[Tensor, "*b g"]:
    """Gaps g = (delta0 / ln 2) softplus(r), so that a raw 0 gives delta0. Paper eq. 4.

    Never negative; in float32 a raw value below about -104 underflows to a gap of exactly 0.
    """
    return functional.softplus(raw_gaps).mul_(delta0 / math.log(2))


def mirror_gaps(gaps: Float[Tensor, "*b c"]) -> Float[Tensor, "*b g"]:
    """Symmetric Quantiles: the same c gaps (innermost first) on both sides of the median.

    Positive gaps are mirrored, not raw ones: softplus may round the two copies of one raw value differently.
    """
    return torch.cat([gaps.flip(-1), gaps], dim=-1)


def ordered_quantiles(
    median: Float[Tensor, "*b"], gaps: Float[Tensor, "*b g"], *, detach_anchor: bool = False
) -> Float[Tensor, "*b k"]:
    """q_c = m, q_{c-j} = m - sum of j left gaps, q_{c+j} = m + sum of j right gaps. Paper eq. 5.

    Non-decreasing along the last axis for any finite median and any gaps >= 0, in float32 and in
    half precision: the sums grow gap by gap (`running_sum_`) and rounding is monotone.

    `detach_anchor` is the paper's Detached Median Anchor: the median enters the non-central
    quantiles as a constant, and the gradient with respect to it is multiplied by K.
    """
    if gaps.shape[-1] % 2 or not gaps.shape[-1]:
        raise ValueError(f"gaps must hold c left and c right gaps, an even number; got {gaps.shape[-1]}")
    require_shape("gaps", gaps, (*median.shape, gaps.shape[-1]))
    quantiles: Tensor = _Accumulate.apply(median, gaps, detach_anchor)  # type: ignore[no-untyped-call]
    return quantiles


class _Accumulate(torch.autograd.Function):
    """The linear map (median, gaps) -> quantiles and its transpose, one result in memory each."""

    @staticmethod
    def forward(median: Tensor, gaps: Tensor, detach_anchor: bool) -> Tensor:
        del detach_anchor
        c = gaps.shape[-1] // 2
        # At least float32 inside: bfloat16 sums of small gaps would stand still.
        wide = torch.promote_types(median.dtype, torch.float32)
        quantiles = torch.empty(*median.shape, 2 * c + 1, dtype=wide, device=median.device)
        quantiles[..., c] = median
        left, middle, right = quantiles[..., :c], quantiles[..., c, None], quantiles[..., c + 1 :]
        running_sum_(right.copy_(gaps[..., c:])).add_(middle)
        running_sum_(left.copy_(gaps[..., :c].flip(-1)))
        torch.sub(middle, left.flip(-1), out=left)
        return quantiles.to(median.dtype)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        ctx.detach_anchor = inputs[2]  # type: ignore[attr-defined]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        k = grad.shape[-1]
        c = k // 2
        # A gap moves every quantile outside of it, so it gets the sum of their gradients.
        grad_gaps = torch.empty(*grad.shape[:-1], 2 * c, dtype=grad.dtype, device=grad.device)
        left, right, grad_right = grad_gaps[..., :c], grad_gaps[..., c:], grad[..., c + 1 :]
        torch.cumsum(grad[..., :c], dim=-1, out=left).neg_()
        torch.cumsum(grad_right, dim=-1, out=right)
        right.neg_().add_(grad_right).add_(grad_right.sum(-1, keepdim=True))
        grad_median = grad[..., c] * k if ctx.detach_anchor else grad.sum(-1)
        return grad_median, grad_gaps, None


def running_sum_(gaps: Float[Tensor, "*b c"], *, sequential: bool | None = None) -> Float[Tensor, "*b c"]:
    """Replaces the gaps by the sums of the first 1, 2, ..., c of them, non-decreasing even after rounding.

    That needs each sum to be the one before plus a gap. `torch.cumsum` works so on a CPU; on other
    devices its parallel scan adds in another order for every entry and may step back by one unit
    in the last place, so there the sums are formed one by one (`sequential`; None decides by device).
    """
    if sequential is None:
        sequential = gaps.device.type != "cpu"
    if not sequential:
        return gaps.cumsum_(-1)
    for j in range(1, gaps.shape[-1]):
        gaps[..., j] += gaps[..., j - 1]
    return gaps
