"""A decoder: rank law x coupling x temporal process x marginal x gripper rule.

Axes: b batch (one episode per row), h chunk step, d action dim, k level.
A decoder is a value: it holds settings only. Latents and generators live in the episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_between, require_choice, require_shape
from lerobot_policy_quantile.core._normal import phi, phi_inverse
from lerobot_policy_quantile.core.conformal import conformal_bounds
from lerobot_policy_quantile.core.decoders.copula import CopulaLatents
from lerobot_policy_quantile.core.decoders.rank_laws import ChunkDraw, RankLaw
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

Coupling = Literal["independent", "shared"]
Marginal = Literal["quantile", "gaussian"]
Gripper = Literal["median", "rank"]


@dataclass(frozen=True)
class PerStep:
    """Fresh latents at every step of the chunk."""

    def latents(self, episode: Episode, chunk_size: int, action_dim: int) -> Float[Tensor, "h d"]:
        """The next chunk's latents, one row per step; nothing is remembered."""
        return episode.normal(chunk_size, action_dim)


@dataclass(frozen=True)
class PerChunk:
    """One latent per coordinate, held over the chunk; from chunk to chunk a Gaussian AR(rho)."""

    rho: float = 0.0

    def __post_init__(self) -> None:
        require_between("rho", self.rho, 0.0, 1.0)

    def latents(self, episode: Episode, chunk_size: int, action_dim: int) -> Float[Tensor, "1 d"]:
        """The next chunk's latents; every coordinate draws, used or not.

        So decoders given the same seed see the same noise.
        """
        return episode.next_latent(self.rho, episode.normal(action_dim))[None]


class Decoded(NamedTuple):
    """A chunk of actions and the rank each coordinate was read at."""

    actions: Float[Tensor, "b h d"]
    ranks: Float[Tensor, "b h d"]


@dataclass(frozen=True)
class Decoder:
    """Turns predicted quantiles into actions, one row per episode.

    coupling   "independent": each coordinate has its own latent; "shared": all follow the first
    marginal   "quantile": the predicted quantile function; "gaussian": its Gaussian surrogate
    gripper    "median": gripper coordinates stay at rank 0.5; "rank": they follow the law too
    grippers   indices of the gripper coordinates; the last one unless told otherwise
    inside     mass of the conformal bounds that actions are clipped to; None: not clipped
    """

    law: RankLaw
    temporal: PerStep | PerChunk | CopulaLatents = PerChunk()
    coupling: Coupling = "independent"
    marginal: Marginal = "quantile"
    gripper: Gripper = "median"
    grippers: tuple[int, ...] = (-1,)
    inside: float | None = None
    margin: Float[Tensor, "h d"] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_choice("coupling", self.coupling, ("independent", "shared"))
        require_choice("marginal", self.marginal, ("quantile", "gaussian"))
        require_choice("gripper", self.gripper, ("median", "rank"))
        if self.inside is not None and not 0 < self.inside < 1:
            raise ValueError(f"inside must lie strictly between 0 and 1, as in median inside 0.9; got {self.inside}")

    def __str__(self) -> str:
        """The composition, part by part: law | coupling | time | marginal | gripper."""
        parts = [self.law, self.coupling, self.temporal, self.marginal, f"gripper at {self.gripper}"]
        if self.inside is not None:
            parts.append(f"inside {self.inside:g}")
        return " | ".join(map(str, parts))

    def with_grippers(self, grippers: Sequence[int]) -> "Decoder":
        """The same decoder for a robot whose grippers are these action dimensions."""
        return replace(self, grippers=tuple(grippers))

    def with_copula(self, correlation: Float[Tensor, "c c"]) -> "Decoder":
        """The same decoder with this correlation, if it is one that needs it."""
        if not isinstance(self.temporal, CopulaLatents):
            return self
        return replace(self, temporal=replace(self.temporal, correlation=correlation))

    def with_margin(self, margin: Float[Tensor, "h d"]) -> "Decoder":
        """The same decoder with the margin of its conformal bounds."""
        return replace(self, margin=margin)

    def require_fits(self, chunk_size: int, action_dim: int) -> None:
        """Raise ValueError if chunks of this size cannot be decoded; better at an episode's start than in its midst."""
        self.gripper_indices(action_dim)
        if isinstance(self.temporal, CopulaLatents):
            require_shape("correlation", self.temporal.fitted(), (chunk_size * action_dim,) * 2)
        if self.inside is not None:
            require_shape("margin", self._fitted_margin(), (chunk_size, action_dim))

    def decode(self, quantiles: QuantileFunction, episodes: Sequence[Episode]) -> Decoded:
        """Actions for the next chunk of every episode. Advances the episodes' latents and routes, nothing else.

        `quantiles` has shape (b, h, d) and is in normalised action units.
        """
        if len(quantiles.shape) != 3:
            raise ValueError(f"quantiles must have axes (b, h, d, k); got {(*quantiles.shape, len(quantiles.levels))}")
        batch, chunk_size, action_dim = quantiles.shape
        if len(episodes) != batch:
            raise ValueError(f"episodes must match the batch, {batch} rows; got {len(episodes)}")
        grippers = self.gripper_indices(action_dim)
        motion = [d for d in range(action_dim) if d not in grippers]

        latent = torch.stack([self.temporal.latents(e, chunk_size, action_dim) for e in episodes])
        latent = latent.to(quantiles.levels)
        if self.coupling == "shared":
            latent = latent[..., motion[:1] or [0]].expand_as(latent)
        ranks = self.law.ranks(ChunkDraw(latent, quantiles, motion, episodes))
        if self.gripper == "median":
            ranks = ranks.index_fill(-1, torch.tensor(grippers, device=ranks.device, dtype=torch.long), 0.5)
        actions = self.read(quantiles, ranks)
        return Decoded(actions, ranks.expand_as(actions) if self.inside is None else self.rank_of(quantiles, actions))

    def _fitted_margin(self) -> Float[Tensor, "h d"]:
        if self.margin is None:
            raise ValueError(
                f"decoder with inside {self.inside:g} needs conformal bounds beside the checkpoint; fit them with qhead"
                f" calibrate --conformal {self.inside:g}"
            )
        return self.margin

    def read(self, quantiles: QuantileFunction, ranks: Float[Tensor, "b t d"]) -> Float[Tensor, "b h d"]:
        """Actions at these ranks of the decoder's marginal, inside the conformal bounds if it is told to stay there."""
        actions = quantiles(ranks) if self.marginal == "quantile" else gaussian_surrogate(quantiles, ranks)
        if self.inside is None:
            return actions
        return actions.clamp(*conformal_bounds(quantiles, self._fitted_margin(), self.inside))

    def rank_of(self, quantiles: QuantileFunction, actions: Float[Tensor, "b h d"]) -> Float[Tensor, "b h d"]:
        """The inverse of `read`: the ranks of these actions under the decoder's marginal."""
        return quantiles.cdf(actions) if self.marginal == "quantile" else surrogate_rank(quantiles, actions)

    def gripper_indices(self, action_dim: int) -> list[int]:
        """The gripper coordinates among this many, counted from the first."""
        for index in self.grippers:
            if not -action_dim <= index < action_dim:
                raise ValueError(f"grippers must index the {action_dim} action dimensions; got {index}")
        return [index % action_dim for index in self.grippers]


def gaussian_surrogate(quantiles: QuantileFunction, ranks: Float[Tensor, "b t d"]) -> Float[Tensor, "b h d"]:
    """m + sigma Phi^-1(u), sigma = (Q(0.9) - Q(0.1)) / (2 Phi^-1(0.9)). Paper eq. B.1.

    Keeps the predicted median and 10-90 % width and replaces the shape of the law by a normal one.
    """
    sigma = surrogate_sigma(quantiles)
    # Phi rounds to 0 or 1 beyond about five sigma; the surrogate must stay finite there.
    tiny = torch.finfo(ranks.dtype).eps / 2
    return quantiles(0.5) + sigma * phi_inverse(ranks.clamp(tiny, 1 - tiny))


def surrogate_rank(quantiles: QuantileFunction, actions: Float[Tensor, "b h d"]) -> Float[Tensor, "b h d"]:
    """The rank at which the Gaussian surrogate has these actions."""
    tiny = torch.finfo(quantiles.levels.dtype).tiny
    return phi((actions - quantiles(0.5)) / surrogate_sigma(quantiles).clamp_min(tiny))


def surrogate_sigma(quantiles: QuantileFunction) -> Float[Tensor, "b h d"]:
    """The standard deviation of a normal law with the predicted 10-90 % width."""
    return quantiles.width(0.8) / (2 * phi_inverse(quantiles.levels.new_tensor(0.9)))
