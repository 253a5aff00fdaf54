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


def mirror_gaps(raw_gaps: Float[Tensor, "*b c"]) -> Float[Tensor, "*b g"]:
    """Symmetric Quantiles: the same c raw gaps (innermost first) on both sides of the median."""
    return torch.cat([raw_gaps.flip(-1), raw_gaps], dim=-1)


def ordered_quantiles(
    median: Float[Tensor, "*b"], gaps: Float[Tensor, "*b g"], *, detach_anchor: bool = False
) -> Float[Tensor, "*b k"]:
    """q_c = m, q_{c-j} = m - sum of j left gaps, q_{c+j} = m + sum of j right gaps. Paper eq. 5.

    Non-decreasing along the last axis for any finite median and any gaps >= 0, in float32 and in
    half precision: each quantile is its inner neighbour plus one gap, and rounding is monotone.

    `detach_anchor` is the paper's Detached Median Anchor: the median enters the non-central
    quantiles as a constant, and the gradient with respect to it is multiplied by K.
    """
    if gaps.shape[-1] % 2 or not gaps.shape[-1]:
        raise ValueError(f"gaps must hold c left and c right gaps, an even number; got {gaps.shape[-1]}")
    require_shape("gaps", gaps, (*median.shape, gaps.shape[-1]))
    quantiles: Tensor = _Accumulate.apply(median, gaps, detach_anchor)  # type: ignore[no-untyped-call]
    return quantiles


class _Accumulate(torch.autograd.Function):
    """The linear map (median, gaps) -> quantiles and its transpose, one tensor of memory each."""

    @staticmethod
    def forward(median: Tensor, gaps: Tensor, detach_anchor: bool) -> Tensor:
        del detach_anchor
        c = gaps.shape[-1] // 2
        # At least float32 inside: bfloat16 sums of small gaps would stand still.
        wide = torch.promote_types(median.dtype, torch.float32)
        quantiles = torch.empty(*median.shape, 2 * c + 1, dtype=wide, device=median.device)
        quantiles[..., c] = median
        for j in range(c):
            torch.sub(quantiles[..., c - j], gaps[..., c - 1 - j], out=quantiles[..., c - j - 1])
            torch.add(quantiles[..., c + j], gaps[..., c + j], out=quantiles[..., c + j + 1])
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
        # A gap moves every quantile outside of it: sum the gradient from the outermost inwards.
        grad_gaps = torch.empty(*grad.shape[:-1], 2 * c, dtype=grad.dtype, device=grad.device)
        torch.neg(grad[..., 0], out=grad_gaps[..., 0])
        grad_gaps[..., -1] = grad[..., -1]
        for j in range(1, c):
            torch.sub(grad_gaps[..., j - 1], grad[..., j], out=grad_gaps[..., j])
            torch.add(grad_gaps[..., -j], grad[..., -1 - j], out=grad_gaps[..., -1 - j])
        grad_median = grad[..., c] * k if ctx.detach_anchor else grad.sum(-1)
        return grad_median, grad_gaps, None
