"""A Gaussian copula over the steps and coordinates of a chunk: which ranks go together, learned from data.

Axes: n training chunk, h chunk step, d action dim, c = h x d flattened. Not in the paper: ours.
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_shape
from lerobot_policy_quantile.core._normal import phi_inverse
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

EDGE = 0.01
"""Ranks are kept this far inside (0, 1) before Phi^-1: an action beyond the outer quantiles is not infinitely rare."""


def fit_copula(
    quantiles: QuantileFunction,
    actions: Float[Tensor, "n h d"],
    valid: Bool[Tensor, "n h d"],
    *,
    shrinkage: float = 0.05,
) -> Float[Tensor, "c c"]:
    """Correlation of the normal scores z = Phi^-1(F(a)) of demonstrated chunks under their predictions.

    Every score counts with the width of its prediction: where all demonstrations agree, a rank is rounding noise, and
    where they part, it says which way was taken. A normalised sum of squares is a correlation matrix for any data;
    `shrinkage` towards independence makes it definite. Coordinates that never counted stay independent.
    On the CPU and in double precision wherever the predictions are: there episodes draw, and not every device has it.
    """
    require_between("shrinkage", shrinkage, 0.0, 1.0)
    require_shape("actions", actions, tuple(quantiles.shape))
    rank = quantiles.cdf(actions).clamp(EDGE, 1 - EDGE).cpu()
    score = (phi_inverse(rank.double()) * quantiles.width(0.8).cpu() * valid.cpu()).flatten(1)
    score = score / score.norm(dim=0).clamp_min(torch.finfo(score.dtype).tiny)
    correlation: Tensor = (1 - shrinkage) * (score.T @ score)
    return correlation.fill_diagonal_(1.0).float()


@dataclass(frozen=True)
class CopulaLatents:
    """Latents of a chunk drawn together from a fitted copula; from chunk to chunk a Gaussian AR(rho)."""

    rho: float = 0.0
    correlation: Float[Tensor, "c c"] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_between("rho", self.rho, 0.0, 1.0)

    def fitted(self) -> Float[Tensor, "c c"]:
        """The correlation; ValueError if there is none."""
        if self.correlation is None:
            raise ValueError("decoder copula needs a correlation fitted to training data (fit_copula); got none")
        return self.correlation

    @cached_property
    def factor(self) -> Float[Tensor, "c c"]:
        """L with L L^T the fitted correlation, in double precision; computed once, not once a chunk."""
        factor: Tensor = torch.linalg.cholesky(self.fitted().cpu().double())
        return factor

    def latents(self, episode: Episode, chunk_size: int, action_dim: int) -> Float[Tensor, "h d"]:
        """The next chunk's latents, moved by L eps with L L^T the fitted correlation."""
        size = chunk_size * action_dim
        require_shape("correlation", self.factor, (size, size))
        innovation = (self.factor @ episode.normal(size).double()).float()
        return episode.next_latent(self.rho, innovation).view(chunk_size, action_dim)
