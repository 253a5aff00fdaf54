"""Between host and device without waiting: a device that must answer a question stands still until the next one."""

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor to a device. From the host to a GPU the copy is staged: the host goes on, the source may be dropped."""
    staged = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.to(device, dtype or tensor.dtype, non_blocking=staged)


def on_host(tensor: Tensor) -> bool:
    """Whether its values can be looked at without waiting for a device."""
    return tensor.device.type == "cpu"


def known_zero(tensor: Tensor) -> bool:
    """Whether all entries are zero, as far as the host can see."""
    return on_host(tensor) and not bool(tensor.any())
