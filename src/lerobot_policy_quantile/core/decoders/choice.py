"""Rank laws that tell a choice from a certainty by the predicted width. Not in the paper: ours.

Axes: b batch, h chunk step, t 1 or h, d action dim, j interval, r candidate rank.
A wide prediction says that demonstrations part here; a narrow one that they agree, and then a rank far from 0.5 only
adds the model's own doubt to the action, chunk after chunk.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import override

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.decoders.rank_laws import (
    ChunkDraw,
    RankLaw,
    interval_probabilities,
    invert_interval_cdf,
)
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

HOLD = 0.1
"""How much worse, in normalised units per unit of rank, another rank must fit before a route is left."""


@dataclass(frozen=True)
class WhereChoice(RankLaw):
    """A density-weighted rank where some step of the chunk is wider than `width`; 0.5 for every other coordinate.

    The maximum over steps matters: where routes part late in a chunk (after a grasp), a mean over steps is narrow.
    Densities are scored on the wide coordinates alone, so that coordinates without a choice have no say in it.
    """

    width: float
    exponent: float = 2.0

    def __post_init__(self) -> None:
        for field in ("width", "exponent"):
            if not 0 <= getattr(self, field) < math.inf:
                raise ValueError(f"{field} must be finite and not negative; got {getattr(self, field)}")

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        wide = wide_coordinates(draw.quantiles, draw.motion, self.width)
        return torch.where(wide[:, None], self._density_ranks(draw, wide), 0.5)

    def _density_ranks(self, draw: ChunkDraw, wide: Bool[Tensor, "b d"]) -> Float[Tensor, "b t d"]:
        quantiles = draw.quantiles
        weight = wide[:, None, :, None].to(quantiles.levels)
        total = (quantiles.interval_densities() * weight).sum(dim=(1, 2))
        score = torch.where(wide.any(-1, keepdim=True), total, 1.0)
        edges, probability = interval_probabilities(score, quantiles.levels, self.exponent)
        return invert_interval_cdf(phi(draw.latent), edges, probability)


@dataclass(frozen=True)
class Tracked(WhereChoice):
    """As `WhereChoice` in the first chunk; from then on the rank whose chunk goes on as the last executed action went.

    The misfit of a rank is the distance of its first action to the last executed one, mean over the wide coordinates,
    plus `HOLD` times the distance to the rank that was followed so far: where all ranks fit alike (a second fork),
    the route is kept.
    """

    @override
    def ranks(self, draw: ChunkDraw) -> Float[Tensor, "b t d"]:
        wide = wide_coordinates(draw.quantiles, draw.motion, self.width)
        drawn = self._density_ranks(draw, wide)[:, 0, draw.motion[0]]
        rows = []
        for row, episode in enumerate(draw.episodes):
            if bool(wide[row].any()):
                episode.rank = self._follow(episode, draw.quantiles, row, wide[row], float(drawn[row]))
            rows.append(0.5 if episode.rank is None else episode.rank)
        followed = draw.latent.new_tensor(rows).view(-1, 1, 1).expand_as(draw.latent)
        return torch.where(wide[:, None], followed, 0.5)

    def _follow(
        self, episode: Episode, quantiles: QuantileFunction, row: int, wide: Bool[Tensor, " d"], drawn: float
    ) -> float:
        if episode.rank is None or episode.executed is None:
            return drawn
        candidates = torch.cat([quantiles.levels, quantiles.levels.new_tensor([episode.rank])])
        first = QuantileFunction(quantiles.levels, quantiles.quantiles[row, 0])(candidates[:, None])
        last = episode.executed[-1].to(first)
        misfit = (first - last)[:, wide].abs().mean(-1) + HOLD * (candidates - episode.rank).abs()
        return float(candidates[misfit.argmin()])


def wide_coordinates(quantiles: QuantileFunction, motion: Sequence[int], width: float) -> Bool[Tensor, "b d"]:
    """Motion coordinates whose central 80 % is wider than `width` at some step of the chunk (normalised units)."""
    chosen = torch.zeros(quantiles.shape[-1], dtype=torch.bool, device=quantiles.levels.device)
    chosen[list(motion)] = True
    wide: Tensor = (quantiles.width(0.8).amax(dim=1) > width) & chosen
    return wide
