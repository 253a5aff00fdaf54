"""8-bit weights with dynamic activations, for the CPU: an approximate mode of the fast path.

Weights are rounded once, symmetrically per output channel; activations are scaled to 8 bits as they come, one scale per
call. Sums are exact integers. CPUs with VNNI add products of bytes in one instruction; without it the range of the
activations is halved, because a pair of products would overflow 16 bits.

The kernel is torch's; only scales and layout are chosen here. Libraries that do the same were measured on the layers of
the full-size model (`benchmarks/int8_speed.py`; one thread, AVX-512 with VNNI, torch 2.11, torchao 0.18):
- torch.ao's dynamic module runs the same kernel in the same time, but halves the range with VNNI, too, for twice the
  error, and torch has announced its removal
- torchao scales each row of the activations, for about half the error, but takes 1.4 to 2.3 times as long; through
  torch.compile 1.1 to 1.6 times, and then it needs a C++ compiler and compiles every shape anew
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.backbone.linear import Linear

LARGEST = 127


def int8_linear(weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None) -> Linear:
    """The product with a weight rounded to 8 bits."""
    if weight.device.type != "cpu":
        raise ValueError(f"int8 needs weights on the CPU; got {weight.device}")
    scales = weight.abs().amax(dim=1).clamp_min(1e-12).double() / LARGEST
    rounded = torch.quantize_per_channel(
        weight.float(), scales, torch.zeros(len(weight), dtype=torch.int64), 0, torch.qint8
    )
    packed = _packed(rounded, None if bias is None else bias.float())
    narrow = not has_vnni()

    def product(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic(x.float().contiguous(), packed, narrow)
        return y.to(x.dtype)

    return product


def _packed(rounded: Tensor, bias: Tensor | None) -> Any:
    """Laid out for oneDNN, the faster of torch's two engines at the row counts of a prefix, with VNNI and without."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "onednn"
    try:
        return torch.ops.quantized.linear_prepack(rounded, bias)
    finally:
        torch.backends.quantized.engine = before


def has_vnni() -> bool:
    """Whether this CPU multiplies and adds bytes in one instruction."""
    return bool(torch.cpu._is_vnni_supported())
