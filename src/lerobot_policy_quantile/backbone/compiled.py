"""The fast path's passes through torch.compile. Experimental: written for a GPU, run on none so far.

A CUDA graph copies its inputs into memory of its own before each run, except those whose address it may rely on: the
weights are declared to stay where they are. Every new shape is compiled and recorded anew, which takes minutes and
memory: prefixes are padded to few lengths, and after a few shapes the plain pass takes over.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from lerobot_policy_quantile.backbone.linear import Linear, exact_linear

LENGTHS = 64
"""Prefixes are padded to a multiple of this many tokens."""
MAX_GRAPHS = 8
"""Shapes of one pass that are compiled; torch.compile itself gives up after as many."""


def static_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The plain product with a weight that stays where it is."""
    for part in (weight, bias):
        if part is not None:
            torch._dynamo.mark_static_address(part)
    return exact_linear(weight, bias)


class CompiledPass:
    """A pass compiled for the first shapes it meets, plain for all others."""

    def __init__(self, plain: Callable[..., Any], *, as_graph: bool = False) -> None:
        self._plain, self._as_graph = plain, as_graph
        self._compiled = torch.compile(plain, dynamic=False, mode="reduce-overhead" if as_graph else None)
        self.shapes: set[tuple[Any, ...]] = set()

    def __call__(self, *given: Any) -> Any:
        """What the plain pass says."""
        shape = tuple((part.shape, part.dtype) if isinstance(part, Tensor) else part for part in tree_flatten(given)[0])
        if shape not in self.shapes and len(self.shapes) >= MAX_GRAPHS:
            return self._plain(*given)
        self.shapes.add(shape)
        answer = self._compiled(*given)
        return answer.clone() if self._as_graph else answer  # a graph's answer lies where its next run writes
