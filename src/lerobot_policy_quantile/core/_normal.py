"""The standard normal law: Phi and its inverse."""

import torch
from torch import Tensor


def phi(x: Tensor) -> Tensor:
    """Phi(x), the standard normal CDF."""
    probability: Tensor = torch.special.ndtr(x)
    return probability


def phi_inverse(u: Tensor) -> Tensor:
    """Phi^-1(u), the standard normal quantile function."""
    value: Tensor = torch.special.ndtri(u)
    return value
