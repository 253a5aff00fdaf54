"""Products with a fixed weight, behind one small contract: the fast path does not know how they are computed."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]
MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""A weight and a bias -> the product with them."""


def exact_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The plain product."""
    return lambda x: functional.linear(x, weight, bias)


def fuse(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of several products of one input as one block; the modules' weights move into it."""
    weight = torch.cat([linear.weight.data for linear in linears])
    for linear, part in zip(linears, torch.split(weight, [linear.out_features for linear in linears]), strict=True):
        linear.weight.data = _with_own_storage(part)
    if linears[0].bias is None:
        return weight, None
    return weight, torch.cat([linear.bias.data for linear in linears])


def weights_of(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """What `MakeLinear` takes."""
    return linear.weight.data, None if linear.bias is None else linear.bias.data


def _with_own_storage(part: Tensor) -> Tensor:
    """The same memory under a storage that ends where the tensor ends: safetensors refuses to save other views."""
    begin = part.storage_offset() * part.element_size()
    storage = part.untyped_storage()[begin : begin + part.numel() * part.element_size()]
    return torch.empty(0, dtype=part.dtype, device=part.device).set_(storage, 0, part.shape)  # type: ignore[call-overload, no-any-return]
