"""Action heads behind one contract: quantile (with its ablations), L1, L2 and flow matching.

Axes: b batch, h chunk step, d action dim, w expert width, k level.
A head is given an `expert`: a callable that turns action tokens and a noise time into the features
of the h action tokens. The observation is already inside it. Direct heads call it once, with
all-zero queries at noise time zero; flow matching calls it once per integration step.

`model_dim` is the width of the action vectors the expert takes; dimensions beyond `action_dim`
exist only as model padding and never reach a loss or a caller.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from lerobot_policy_quantile.core._checks import require_choice, require_no_nan, require_shape
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.levels import check_median_levels, quantile_levels
from lerobot_policy_quantile.core.losses import (
    Reduction,
    absolute_loss,
    clean_target,
    keep_mask,
    masked_mean,
    quantile_loss,
    squared_loss,
)
from lerobot_policy_quantile.core.ordered import DELTA0, mirror_gaps, ordered_quantiles, positive_gaps
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

Supervise = Literal["all", "median"]
Gaps = Literal["separate", "symmetric"]
Anchor = Literal["shared", "detached"]
Norm = Literal["l1", "l2"]


@runtime_checkable
class Expert(Protocol):
    """The action expert, the observation already given."""

    def __call__(self, actions: Float[Tensor, "b h m"], noise_time: Float[Tensor, " b"]) -> Float[Tensor, "b h w"]:
        """Features of the h action tokens. `noise_time` is 1 at pure noise and 0 at data."""


@runtime_checkable
class DirectExpert(Expert, Protocol):
    """An expert that can be told that all queries and noise times are zero: to look, it would wait for the device."""

    def direct(self, queries: Float[Tensor, "b h m"]) -> Float[Tensor, "b h w"]:
        """Features of the h action tokens at noise time zero; the queries are zeros."""


def direct_features(expert: Expert, queries: Float[Tensor, "b h m"]) -> Float[Tensor, "b h w"]:
    """What any expert says to all-zero queries at noise time zero."""
    if isinstance(expert, DirectExpert):
        return expert.direct(queries)
    return expert(queries, queries.new_zeros(len(queries)))


@dataclass(frozen=True)
class Prediction:
    """What a head says about the next chunk, in normalised action units, on the CPU: one copy from the device.

    `actions` is its default answer: the median, the point, or the flow sample. `quantiles` is
    None for heads that predict no distribution.
    """

    actions: Float[Tensor, "b h d"]
    quantiles: QuantileFunction | None = None


@runtime_checkable
class Guide(Protocol):
    """Bends a flow's velocity at every integration step, towards the rest of an old chunk for example."""

    def __call__(
        self, actions: Float[Tensor, "b h m"], noise_time: float, velocity: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "b h m"]:
        """The velocity to follow at noisy actions; `velocity` is the flow's own."""


class Head(nn.Module, ABC):
    """The contract of all heads: a loss per element, and a prediction per episode."""

    expert_calls: ClassVar[int] = 1

    def __init__(self, width: int, chunk_size: int, action_dim: int, model_dim: int | None = None) -> None:
        super().__init__()
        self.chunk_size = chunk_size
        self.action_dim = action_dim
        self.model_dim = action_dim if model_dim is None else model_dim
        if not 0 < action_dim <= self.model_dim:
            raise ValueError(f"action_dim must lie in [1, model_dim = {self.model_dim}]; got {action_dim}")
        self.projection = nn.Linear(width, self.model_dim)

    @abstractmethod
    def loss(
        self, expert: Expert, target: Float[Tensor, "b h d"], *, generator: torch.Generator
    ) -> Float[Tensor, "b h d"]:
        """Loss per coordinate, unmasked. `generator` feeds whatever the loss draws."""

    @abstractmethod
    def predict(self, expert: Expert, episodes: Sequence[Episode]) -> Prediction:
        """The next chunk of every episode; what it draws, it draws from the episodes."""

    def _direct_features(self, expert: Expert, batch: int) -> Float[Tensor, "b h w"]:
        """One expert pass on all-zero queries at noise time zero."""
        weight = self.projection.weight
        queries = torch.zeros(batch, self.chunk_size, self.model_dim, dtype=weight.dtype, device=weight.device)
        return direct_features(expert, queries)

    def _check_target(self, target: Tensor) -> None:
        require_shape("target", target, (len(target), self.chunk_size, self.action_dim))


class QuantileHead(Head):
    """Median and positive gaps from two linear projections of the action features: K ordered quantiles.

    The paper's ablations are settings of it:
    supervise  "all": pinball on K levels; "median": Median-Only, 0.5 |e|, gaps get no gradient
    gaps       "separate" on the two sides; "symmetric": Symmetric Quantiles
    anchor     "shared"; "detached": Detached Median Anchor
    """

    levels: Tensor

    def __init__(
        self,
        width: int,
        chunk_size: int,
        action_dim: int,
        model_dim: int | None = None,
        *,
        levels: Float[Tensor, " k"] | None = None,
        delta0: float = DELTA0,
        supervise: Supervise = "all",
        gaps: Gaps = "separate",
        anchor: Anchor = "shared",
    ) -> None:
        super().__init__(width, chunk_size, action_dim, model_dim)
        levels = quantile_levels() if levels is None else levels
        check_median_levels(levels)
        require_choice("supervise", supervise, ("all", "median"))
        require_choice("gaps", gaps, ("separate", "symmetric"))
        require_choice("anchor", anchor, ("shared", "detached"))
        if not delta0 > 0:
            raise ValueError(f"delta0 must be positive; got {delta0}")
        self.register_buffer("levels", levels.to(self.projection.weight.device), persistent=False)
        self.host_levels = levels
        """The same, wherever the head goes: nobody has to ask a device for them."""
        self.delta0, self.supervise, self.gaps, self.anchor = delta0, supervise, gaps, anchor
        c = len(levels) // 2
        self.gaps_per_dim = c if gaps == "symmetric" else 2 * c
        self.gap_projection = nn.Linear(width, self.model_dim * self.gaps_per_dim)
        # Raw gaps start at zero: every gap is delta0 before the first update.
        nn.init.zeros_(self.gap_projection.weight)
        nn.init.zeros_(self.gap_projection.bias)

    def _apply(self, *arguments: Any, **settings: Any) -> "QuantileHead":
        """Another device or precision. Levels are no weights: a head that was built on meta gets them back here."""
        from_meta = self.levels.is_meta
        moved: QuantileHead = super()._apply(*arguments, **settings)  # type: ignore[no-untyped-call]
        if from_meta and not self.levels.is_meta:
            self.levels.copy_(self.host_levels)
        return moved

    def loss(
        self, expert: Expert, target: Float[Tensor, "b h d"], *, generator: torch.Generator
    ) -> Float[Tensor, "b h d"]:
        """Pinball loss, mean over the supervised levels."""
        self._check_target(target)
        features = self._direct_features(expert, len(target))
        if self.supervise == "median":
            median = self._median(features)
            require_no_nan("prediction", median)
            return quantile_loss(median[..., None], target, self.levels.new_full((1,), 0.5))
        quantiles = self.quantiles(features)
        require_no_nan("prediction", quantiles)
        return quantile_loss(quantiles, target, self.levels)

    def predict(self, expert: Expert, episodes: Sequence[Episode]) -> Prediction:
        """The median chunk and the quantile function of every coordinate."""
        features = self._direct_features(expert, len(episodes))
        gaps = self._gaps(features)
        both = torch.cat([self._ordered(features, gaps), gaps], dim=-1).cpu()  # one copy from the device
        quantiles, gaps = both[..., : len(self.levels)].contiguous(), both[..., len(self.levels) :]
        median = quantiles[..., len(self.levels) // 2]
        return Prediction(median, QuantileFunction(self.host_levels, quantiles, gaps))

    def quantiles(self, features: Float[Tensor, "b h w"]) -> Float[Tensor, "b h d k"]:
        """Ordered quantiles of the action features."""
        return self._ordered(features, self._gaps(features))

    def _gaps(self, features: Float[Tensor, "b h w"]) -> Float[Tensor, "b h d g"]:
        raw = self.gap_projection(features).unflatten(-1, (self.model_dim, self.gaps_per_dim))
        gaps = positive_gaps(raw[..., : self.action_dim, :], delta0=self.delta0)
        return mirror_gaps(gaps) if self.gaps == "symmetric" else gaps

    def _ordered(self, features: Float[Tensor, "b h w"], gaps: Float[Tensor, "b h d g"]) -> Float[Tensor, "b h d k"]:
        return ordered_quantiles(self._median(features), gaps, detach_anchor=self.anchor == "detached")

    def _median(self, features: Float[Tensor, "b h w"]) -> Float[Tensor, "b h d"]:
        median: Tensor = self.projection(features)[..., : self.action_dim]
        return median


class PointHead(Head):
    """One value per coordinate, by |e| (L1, the conditional median) or e^2 (L2, the mean)."""

    def __init__(
        self, width: int, chunk_size: int, action_dim: int, model_dim: int | None = None, *, norm: Norm
    ) -> None:
        super().__init__(width, chunk_size, action_dim, model_dim)
        require_choice("norm", norm, ("l1", "l2"))
        self.norm = norm

    def loss(
        self, expert: Expert, target: Float[Tensor, "b h d"], *, generator: torch.Generator
    ) -> Float[Tensor, "b h d"]:
        """|e| or e^2."""
        self._check_target(target)
        prediction = self._point(expert, len(target))
        require_no_nan("prediction", prediction)
        return (absolute_loss if self.norm == "l1" else squared_loss)(prediction, target)

    def predict(self, expert: Expert, episodes: Sequence[Episode]) -> Prediction:
        """The point chunk; every episode gets the same answer to the same observation."""
        return Prediction(self._point(expert, len(episodes)).cpu())

    def _point(self, expert: Expert, batch: int) -> Float[Tensor, "b h d"]:
        point: Tensor = self.projection(self._direct_features(expert, batch))[..., : self.action_dim]
        return point


class FlowHead(Head):
    """Flow matching: the expert's features give a velocity; ten Euler steps carry noise to an action."""

    expert_calls: ClassVar[int] = 10

    def loss(
        self, expert: Expert, target: Float[Tensor, "b h d"], *, generator: torch.Generator
    ) -> Float[Tensor, "b h d"]:
        """Squared error of the velocity at a random point of the path from action to noise."""
        self._check_target(target)
        data = functional.pad(target, (0, self.model_dim - self.action_dim))
        place = generator.device
        noise = send(torch.randn(data.shape, generator=generator, device=place), data.device, data.dtype)
        noise_time = self.noise_times(torch.rand(len(data), generator=generator, device=place))
        noise_time = send(noise_time, data.device, data.dtype)
        noisy, velocity = flow_path(data, noise, noise_time)
        prediction = self._velocity(expert, noisy, noise_time)[..., : self.action_dim]
        require_no_nan("prediction", prediction)
        return squared_loss(prediction, velocity[..., : self.action_dim])

    def predict(self, expert: Expert, episodes: Sequence[Episode], guide: Guide | None = None) -> Prediction:
        """One sample per episode: Euler steps from noise time 1 to 0 on the episode's own noise."""
        weight = self.projection.weight
        noise = torch.stack([e.normal(self.chunk_size, self.model_dim) for e in episodes])
        actions = send(noise, weight.device, weight.dtype)
        step = 1.0 / self.expert_calls
        for i in range(self.expert_calls):
            velocity = partial(self._velocity, expert, noise_time=actions.new_full((len(actions),), 1.0 - i * step))
            v = velocity(actions) if guide is None else guide(actions, 1.0 - i * step, velocity)
            actions = actions - step * v
        return Prediction(actions[..., : self.action_dim].cpu())

    @staticmethod
    def noise_times(uniform: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Noise times of training, from uniforms."""
        return sample_noise_time(uniform)

    def _velocity(self, expert: Expert, actions: Tensor, noise_time: Tensor) -> Float[Tensor, "b h m"]:
        velocity: Tensor = self.projection(expert(actions, noise_time))
        return velocity


class OneStepFlowHead(FlowHead):
    """Flow matching trained at high noise only, sampled by a single Euler step. Not in the paper; a baseline after
    Chen et al., arXiv 2606.05737.

    At noise time 1 the noisy action holds nothing of the action, so the best velocity there is noise - E[a | o]: the
    single step then gives the conditional mean whatever the noise. Samples differ as far as training falls short of it.
    """

    expert_calls: ClassVar[int] = 1

    @staticmethod
    def noise_times(uniform: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """t uniform in [0.8, 1]."""
        return 0.8 + 0.2 * uniform


def flow_path(
    data: Float[Tensor, "b *s"], noise: Float[Tensor, "b *s"], noise_time: Float[Tensor, " b"]
) -> tuple[Float[Tensor, "b *s"], Float[Tensor, "b *s"]]:
    """Point x_t = (1 - t) a + t noise and velocity noise - a of the straight path. Paper eq. A.2.

    The paper's alpha is 1 - t: noise time is 1 at noise and 0 at data, as in pi0.5.
    """
    t = noise_time.view(-1, *[1] * (data.ndim - 1))
    return (1 - t) * data + t * noise, noise - data


def sample_noise_time(uniform: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """t = 0.001 + 0.999 Beta(1.5, 1), from uniforms: Beta(1.5, 1) has the CDF x^1.5."""
    return 0.001 + 0.999 * uniform ** (1 / 1.5)


def training_loss(
    head: Head,
    expert: Expert,
    target: Float[Tensor, "b h d"],
    valid: Bool[Tensor, "b h d"],
    *,
    drop_ratio: float,
    generator: torch.Generator,
    reduction: Reduction = "mean",
) -> Float[Tensor, "..."]:
    """The training objective of any head: per-element loss, label dropping, one masked reduction.

    `drop_ratio=0` is the evaluation loss: all valid coordinates, nothing dropped.
    """
    keep = keep_mask(valid, drop_ratio, generator=generator)
    loss = head.loss(expert, clean_target(target, valid), generator=generator)
    return masked_mean(loss, keep, reduction=reduction)
