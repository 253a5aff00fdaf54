"""Rank laws: how a standard normal latent z becomes a rank u in [0, 1].

Axes: b batch, t 1 (one latent per chunk) or h (one per step), d action dim, j interval.
A law is data plus one method; which coordinates share a latent, how latents move in time and what
is evaluated at the rank are decided elsewhere (`composition.py`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, override

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_choice
from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

Scored = Literal["motion", "all"]

_TIE = 1e-4
"""Relative difference of densities that rounding may make: gaps are differences of quantiles."""


class ChunkDraw(NamedTuple):
    """All that a law may look at to turn the latents of a chunk into ranks."""

    latent: Float[Tensor, "b t d"]
    quantiles: QuantileFunction
    motion: Sequence[int]
    """Coordinates that are not grippers."""
    episodes: Sequence[Episode] = ()
    """One per row; only a law that remembers its route looks at them."""


class RankLaw(ABC):
    """Maps latents to ranks, given the predicted quantiles of the chunk."""

    @abstractmethod
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        """Ranks with the latents' shape."""


@dataclass(frozen=True)
class Fixed(RankLaw):
    """The same rank everywhere; 0.5 is the median."""

    rank: float = 0.5

    def __post_init__(self) -> None:
        require_between("rank", self.rank, 0.0, 1.0)

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        return torch.full_like(draw.latent, self.rank)


@dataclass(frozen=True)
class Window(RankLaw):
    """u = l + (1 - 2 l) Phi(T z): ranks inside [l, 1 - l], drawn together by T < 1. Paper eq. B.3.

    With T = 1 the rank is uniform on the interval (eq. B.3 itself); the paper's windowed sampling
    has T = 0.35.
    """

    l: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_between("l", self.l, 0.0, 0.5, open_high=True)
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite; got {self.temperature}")

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        return self.l + (1 - 2 * self.l) * phi(self.temperature * draw.latent)


@dataclass(frozen=True)
class DensityWeighted(RankLaw):
    """Ranks drawn where the predicted densities are high: p_j ~ width_j * s_j ** exponent.

    Rescored at every chunk. Proposes from an average of marginal densities, not from a joint law.
    """

    exponent: float = 2.0
    scored: Scored = "motion"

    def __post_init__(self) -> None:
        require_choice("scored", self.scored, ("motion", "all"))
        if not 0 <= self.exponent < math.inf:
            raise ValueError(f"exponent must be finite and not negative; got {self.exponent}")

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        score = density_score(draw.quantiles, draw.motion if self.scored == "motion" else None)
        edges, probability = interval_probabilities(score, draw.quantiles.levels, self.exponent)
        return invert_interval_cdf(phi(draw.latent), edges, probability)


@dataclass(frozen=True)
class DensestInterval(RankLaw):
    """The midpoint of the learned interval with the highest mean density; no randomness.

    Of intervals that are equally dense up to rounding (all are, before the first update) the lowest is taken, so that a
    row's answer does not depend on what else is in its batch.
    """

    scored: Scored = "all"

    def __post_init__(self) -> None:
        require_choice("scored", self.scored, ("motion", "all"))

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        score = density_score(draw.quantiles, draw.motion if self.scored == "motion" else None)
        levels = draw.quantiles.levels
        midpoints = (levels[:-1] + levels[1:]) / 2
        densest = score >= (1 - _TIE) * score.amax(-1, keepdim=True)
        return midpoints[densest.to(torch.int8).argmax(-1)][:, None, None].expand_as(draw.latent)


def density_score(quantiles: QuantileFunction, scored: Sequence[int] | None = None) -> Float[Tensor, "b j"]:
    """s_j: mean over steps and scored coordinates of each learned interval's density. Paper eq. B.4.

    `quantiles` must be in the model's normalised action units; None scores every coordinate.
    """
    density = quantiles.interval_densities()
    if scored is not None:
        density = density[:, :, list(scored)]
    return density.mean(dim=(1, 2))


def interval_probabilities(
    score: Float[Tensor, "b j"], levels: Float[Tensor, " k"], exponent: float
) -> tuple[Float[Tensor, " e"], Float[Tensor, "b i"]]:
    """Edges of the intervals that cover [0, 1], and p_j = width_j s_j^n / sum of them. Paper eq. B.5.

    The K - 1 learned intervals plus two outer ones, which copy their neighbour's score. The paper
    squares the score (n = 2); its earlier variant has n = 1.
    """
    ends = levels.new_tensor([0.0, 1.0])
    edges = torch.cat([ends[:1], levels, ends[1:]])
    score = torch.cat([score[:, :1], score, score[:, -1:]], dim=1)
    # Scores span many decades (a collapsed gap counts 1e-6): powers are taken of the score's share.
    weight = edges.diff() * (score / score.amax(dim=1, keepdim=True)) ** exponent
    return edges, weight / weight.sum(dim=1, keepdim=True)


def invert_interval_cdf(
    probability_rank: Float[Tensor, "b t d"], edges: Float[Tensor, " e"], probability: Float[Tensor, "b i"]
) -> Float[Tensor, "b t d"]:
    """The rank at which the piecewise-linear CDF with these interval masses reaches a value."""
    zero = probability.new_zeros(len(probability), 1)
    cdf = torch.cat([zero, probability.cumsum(dim=1)], dim=1)
    cdf = cdf / cdf[:, -1:]  # the last edge is 1 exactly, whatever the sum rounded to
    flat = probability_rank.flatten(1)
    left = (torch.searchsorted(cdf, flat.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
    mass = cdf.diff(dim=1).gather(1, left).clamp_min(torch.finfo(cdf.dtype).tiny)
    inside = ((flat - cdf.gather(1, left)) / mass).clamp(0, 1)
    return (edges[left] + inside * edges.diff()[left]).view_as(probability_rank)
