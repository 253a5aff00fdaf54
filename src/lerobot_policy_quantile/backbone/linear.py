"""Products with a fixed weight, behind one small contract: the fast path does not know how they are computed."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]
MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""A weight and a bias -> the product with them."""
_BLOCK = "_fused_block"
"""Where the first of several fused modules keeps their common weight."""


def exact_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The plain product."""
    return lambda x: functional.linear(x, weight, bias)


def packed_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The plain product on a second copy of the weight, laid out once as oneDNN's kernels read it."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise ValueError(f"packed needs float32 weights on the CPU; got {weight.dtype} on {weight.device}")
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def product(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return y

    return product


def fuse(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of several products of one input as one block; the modules' weights move into it, once."""
    weight = getattr(linears[0], _BLOCK, None)
    if weight is None or not _lies_in(weight, linears):
        weight = torch.cat([linear.weight.data for linear in linears])
        parts = torch.split(weight, [linear.out_features for linear in linears])
        for linear, part in zip(linears, parts, strict=True):
            linear.weight.data = _with_own_storage(part)
        setattr(linears[0], _BLOCK, weight)
    if linears[0].bias is None:
        return weight, None
    return weight, torch.cat([linear.bias.data for linear in linears])


def halves(product: Linear) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Two fused products of one input, apart again."""
    return lambda x: product(x).chunk(2, dim=-1)


def side_by_side(*linears: nn.Linear) -> Linear:
    """Products of one input next to each other, each on its own live weight."""
    return lambda x: torch.cat([linear(x) for linear in linears], dim=-1)


def forget_blocks(module: nn.Module) -> None:
    """After weights have moved elsewhere: let go of the memory they have left."""
    for part in module.modules():
        part.__dict__.pop(_BLOCK, None)


def _lies_in(block: Tensor, linears: tuple[nn.Linear, ...]) -> bool:
    place = block.data_ptr()
    for linear in linears:
        if linear.weight.data_ptr() != place or linear.weight.dtype != block.dtype:
            return False
        place += linear.weight.numel() * block.element_size()
    return True


def weights_of(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """What `MakeLinear` takes."""
    return linear.weight.data, None if linear.bias is None else linear.bias.data


def _with_own_storage(part: Tensor) -> Tensor:
    """The same memory under a storage that ends where the tensor ends: safetensors refuses to save other views."""
    begin = part.storage_offset() * part.element_size()
    storage = part.untyped_storage()[begin : begin + part.numel() * part.element_size()]
    return torch.empty(0, dtype=part.dtype, device=part.device).set_(storage, 0, part.shape)  # type: ignore[call-overload, no-any-return]
