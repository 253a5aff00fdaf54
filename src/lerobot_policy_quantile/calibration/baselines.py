"""What can be said about the next actions without looking: the references that skill is measured against.

All three are fitted on the very episodes that are judged, which favours them.

    constant      the quantiles of all actions, per dimension
    gaussian      a normal law with their mean and standard deviation
    persistence   the last action plus the quantiles of what came after it less it, per dimension and chunk step;
                  at the first frame of an episode, which has no last action, the constant law

Axes: t frame of an episode, f judged frame, h chunk step, d action dim, k level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.calibration.held_out import chunks
from lerobot_policy_quantile.calibration.predictions import EpisodeLaw
from lerobot_policy_quantile.core.calibration import climatology, gaussian_climatology
from lerobot_policy_quantile.util.quantiles import Array

BASELINES = ("constant", "gaussian", "persistence")


@dataclass(frozen=True)
class Baselines:
    """Knots of the three laws, in normalised units."""

    constant: Float[Array, "d k"]
    gaussian: Float[Array, "d k"]
    errors: Float[Array, "h d k"]
    """Of persistence."""

    def laws(self, law: EpisodeLaw, actions: Float[Array, "t d"]) -> dict[str, EpisodeLaw]:
        """The three laws of the frames of a policy's law; `actions` are those of the whole episode."""
        shape = (*law.actions.shape, self.constant.shape[-1])
        persistence = np.broadcast_to(self.constant, shape).copy()
        later = law.frames > 0
        persistence[later] = actions[law.frames[later] - 1][:, None, :, None] + self.errors
        knots = (np.broadcast_to(self.constant, shape), np.broadcast_to(self.gaussian, shape), persistence)
        return {
            name: EpisodeLaw(law.episode, law.frames, law.actions, values, law.valid)
            for name, values in zip(BASELINES, knots, strict=True)
        }


def fit_baselines(episodes: Sequence[Float[Array, "t d"]], chunk_size: int, levels: Float[Tensor, " k"]) -> Baselines:
    """The three laws of these episodes' actions, in normalised units."""
    every = torch.from_numpy(np.concatenate(episodes)).double()
    there = torch.ones_like(every, dtype=torch.bool)
    errors = _persistence_errors(episodes, chunk_size)
    steps = [
        climatology(torch.from_numpy(error), torch.from_numpy(np.isfinite(error)), levels.double()).quantiles[0]
        for error in errors
    ]
    return Baselines(
        climatology(every, there, levels.double()).quantiles[0].numpy(),
        gaussian_climatology(every, there, levels.double()).quantiles[0].numpy(),
        torch.stack(steps).numpy(),
    )


def _persistence_errors(episodes: Sequence[Float[Array, "t d"]], chunk_size: int) -> list[Float[Array, "t d"]]:
    """Per chunk step, what came less the last action; NaN where an episode was over, and one row of it at least."""
    found = []
    for actions in episodes:
        frames = np.arange(1, len(actions))
        target, valid = chunks(actions, frames, chunk_size)
        found.append(np.where(valid[..., None], target.astype(np.float64) - actions[frames - 1][:, None], np.nan))
    together = np.concatenate(found)
    if not len(together):
        together = np.full((1, *together.shape[1:]), np.nan)
    return list(together.transpose(1, 0, 2))
