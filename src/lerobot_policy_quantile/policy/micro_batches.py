"""The gradient of a batch that does not fit into memory at once, taken in pieces.

LeRobot's trainer makes one forward and one backward pass per update and knows no accumulation. So the pieces' gradients
are taken inside the forward: each piece runs forward and backward and frees its activations, and the backward pass that
the trainer then asks for hands the sum over. The trainer sees one batch, one loss and one update; gradient clipping,
schedule and the averaging over processes work on the whole batch's gradient.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter
from torch.utils.hooks import RemovableHandle

from lerobot_policy_quantile.policy.training_step import Labels

Loss = Callable[..., tuple[Tensor, Tensor]]


def in_micro_batches(whole: Loss) -> Loss:
    """A policy's loss and numbers to log, piece by piece where `config.micro_batch` is smaller than the batch.

    The same labels are dropped as in one piece: their draw depends on the frame, and all pieces are one forward. The
    host knows of the pieces what it knows of the batch, and waits for none of them.
    """

    @wraps(whole)
    def split(policy: Any, batch: Mapping[str, Any], labels: Labels, reduction: str) -> tuple[Tensor, Tensor]:
        size, rows = policy.config.micro_batch, len(labels.frames)
        if size is None or rows <= size or not (policy.training and torch.is_grad_enabled()):
            return whole(policy, batch, labels, reduction)
        if reduction != "mean":
            raise ValueError(f"reduction must be 'mean' with micro_batch = {size}; got {reduction!r}")
        losses, numbers, shares = [], [], []
        with _Sums(policy.parameters()) as sums:
            for start in range(0, rows, size):
                stop, share = start + size, min(size, rows - start) / rows
                part, measured = whole(policy, _rows(batch, start, stop, rows), labels.rows(start, stop), reduction)
                sums.add(share * part)
                losses.append(share * part.detach())
                numbers.append(measured)
                shares.append(share)
        known = sums.of_parameters()
        loss: Tensor = _Deliver.apply(sum(losses), list(known.values()), *known)  # type: ignore[no-untyped-call]
        return loss, _mean(torch.stack(numbers), shares)

    return split


class _Sums:
    """Sums of gradients, one per parameter, added up while a backward pass runs: no piece holds all of its own at once.

    The parameters' own `grad` and what waits for it (the averaging over processes) are not touched.
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._sums: dict[int, Tensor] = {}
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for i, parameter in enumerate(self._parameters):
            hook = parameter.register_hook(partial(self._take, i))  # type: ignore[no-untyped-call]
            self._hooks.append(hook)
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def add(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradients of a piece's share of the loss."""
        with torch.autocast(loss.device.type, enabled=False):
            torch.autograd.grad(loss, self._parameters, allow_unused=True)

    def of_parameters(self) -> dict[Parameter, Tensor]:
        """Parameter -> sum; those that no piece has used are left out."""
        return {self._parameters[i]: total for i, total in sorted(self._sums.items())}

    def _take(self, i: int, gradient: Tensor) -> Tensor:
        """Keep a gradient and pass on one of the same shape that takes no memory."""
        if i in self._sums:
            self._sums[i].add_(gradient)
        else:
            self._sums[i] = gradient.clone()
        return gradient.new_zeros(()).expand_as(gradient)


class _Deliver(torch.autograd.Function):
    """A loss whose gradients are known already."""

    @staticmethod
    def forward(context: Any, loss: Float[Tensor, ""], gradients: list[Tensor], *_: Tensor) -> Tensor:
        context.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, context.gradients = context.gradients, None
        if gradients is None:
            raise RuntimeError("the gradients of a batch in pieces can be asked for once")
        return None, None, *(gradient.mul_(upstream[0]) for gradient in gradients)


def _rows(batch: Mapping[str, Any], start: int, stop: int, rows: int) -> dict[str, Any]:
    """Some rows of a batch; entries that are not per row stay whole."""

    def per_row(value: Any) -> bool:
        if isinstance(value, Tensor):
            return value.ndim > 0 and len(value) == rows
        return isinstance(value, list | tuple) and len(value) == rows

    return {name: value[start:stop] if per_row(value) else value for name, value in batch.items()}


def _mean(numbers: Float[Tensor, "pieces n"], shares: list[float]) -> Float[Tensor, " n"]:
    """Each number over the pieces that have it, by their share of the rows; the last, a count, is summed."""
    known = ~torch.isnan(numbers)
    weight = torch.stack([row * share for row, share in zip(known.to(numbers.dtype), shares, strict=True)])
    mean = torch.where(known, numbers, 0.0).mul(weight).sum(0) / weight.sum(0)
    return torch.cat([mean[:-1], numbers[:, -1:].sum(0)])
