"""Sums over the frames of one episode: everything that scores and their intervals need, and no more.

Axes: e episode, f judged frame, h chunk step, d action dim, k level, m mass of an interval, i bin of a histogram.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.calibration.predictions import EpisodeLaw
from lerobot_policy_quantile.core.calibration import covered, crps, inside_interval, pit
from lerobot_policy_quantile.core.losses import quantile_loss
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.util.quantiles import Array

MASSES = (0.5, 0.8, 0.9, 0.95)
"""Of the central intervals whose coverage and width are told."""
BINS = 20
"""Of PIT histograms."""


@dataclass(frozen=True)
class Tally:
    """Sums over the valid coordinates; of several episodes, with a leading axis e."""

    count: Float[Array, "*e h d"]
    crps: Float[Array, "*e h d"]
    fair_crps: Float[Array, "*e h d"]
    """Equal to `crps` where there is no unbiased one."""
    pinball: Float[Array, "*e h d"]
    """Mean over the levels."""
    distance: Float[Array, "*e h d"]
    """Of what was done from the median."""
    hits: Float[Array, "*e h d k"]
    """Targets at or below each quantile."""
    inside: Float[Array, "*e m h d"]
    width: Float[Array, "*e m h d"]
    pit: Float[Array, "*e d i"]

    @classmethod
    def stacked(cls, parts: Sequence["Tally"]) -> "Tally":
        """One tally per episode -> one with a leading axis."""
        return cls(**{field.name: np.stack([getattr(part, field.name) for part in parts]) for field in fields(cls)})


def tally(law: EpisodeLaw, levels: Float[Tensor, " k"]) -> Tally:
    """The sums of one law over one episode."""
    target = torch.from_numpy(law.actions).double()
    quantiles = QuantileFunction(levels.double(), torch.from_numpy(np.ascontiguousarray(law.quantiles)).double())
    valid = torch.from_numpy(law.valid)[..., None].expand(target.shape)

    def total(values: Tensor) -> Float[Array, "..."]:
        """Over frames, padding left out."""
        kept = valid.reshape(*valid.shape, *[1] * (values.ndim - valid.ndim))
        return torch.where(kept, values.double(), 0.0).sum(0).numpy()

    own = crps(quantiles, target) if law.crps is None else torch.from_numpy(law.crps)
    fair = own if law.fair_crps is None else torch.from_numpy(law.fair_crps)
    return Tally(
        count=valid.double().sum(0).numpy(),
        crps=total(own),
        fair_crps=total(fair),
        pinball=total(quantile_loss(quantiles.quantiles, target, quantiles.levels)),
        distance=total((quantiles(0.5) - target).abs()),
        hits=total(covered(quantiles, target)),
        inside=np.stack([total(inside_interval(quantiles, target, mass)) for mass in MASSES]),
        width=np.stack([total(quantiles.width(mass)) for mass in MASSES]),
        pit=np.stack([_histogram(quantiles, target, valid, d) for d in range(target.shape[-1])]),
    )


def _histogram(quantiles: QuantileFunction, target: Tensor, valid: Tensor, d: int) -> Float[Array, " i"]:
    """Counts of the probability integral transform of one dimension."""
    of_one = QuantileFunction(quantiles.levels, quantiles.quantiles[:, :, d])
    ranks = pit(of_one, target[..., d], valid[..., d])
    return torch.histc(ranks, BINS, 0.0, 1.0).numpy()
