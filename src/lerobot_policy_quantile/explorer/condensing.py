"""The quantiles of an episode in less room, for a page in one file.

Executed steps keep every digit: the page reads its numbers from them. The later steps of a chunk, which the next replan
overtook, are only drawn: they take eight bits, of their chunk's range in that dimension. What density-weighted and
tracking ranks need of them, sums of densities and largest widths, is stored beside them in full.

Axes: q query, h chunk step, d action dim, k level, j interval between levels, e executed step, l later step.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from lerobot_policy_quantile.explorer.episode_reading import EpisodeRecord
from lerobot_policy_quantile.serving.spread import spread
from lerobot_policy_quantile.util.quantiles import Array, interval_densities

STEPS_OF_RANGE = 255


def condensed(record: EpisodeRecord, scale: Sequence[float] | None) -> dict[str, Array]:
    """Arrays from which the page restores the quantiles; `scale` are commands per normalised unit, where known."""
    if record.quantiles is None or record.levels is None:
        return {}
    later = ~_executed(record)
    there, quantiles = later[:, :, None], record.quantiles.astype(float)
    normalised = quantiles if scale is None else quantiles / np.asarray(scale)[:, None]
    low = quantiles[..., 0].min(axis=1, where=there, initial=np.inf)
    high = quantiles[..., -1].max(axis=1, where=there, initial=-np.inf)
    none = ~later.any(axis=1)  # chunks that were executed to their end
    low[none], high[none] = 0, 0
    span = np.where(high > low, high - low, 1)
    share = (quantiles - low[:, None, :, None]) / span[:, None, :, None]
    densities = interval_densities(normalised, record.levels)
    full = {
        "executed": record.quantiles[~later],
        "later_range": np.stack([low, low + span], axis=-1),
        "later_densities": densities.sum(axis=1, where=there[..., None]),
        "later_widths": spread(normalised, list(record.levels)).max(axis=1, where=there, initial=0),
    }
    rounded = np.rint(share[later] * STEPS_OF_RANGE).astype(np.uint8)
    return {"later": rounded} | {name: array.astype(np.float32) for name, array in full.items()}


def _executed(record: EpisodeRecord) -> Bool[Array, "q h"]:
    """Which steps of which chunks were executed, or would have been."""
    if record.quantiles is None or record.query_steps is None or record.actions is None:
        raise ValueError("quantiles need actions and query_steps; got none")
    followed = np.diff(np.append(record.query_steps, len(record.actions)))
    executed: Bool[Array, "q h"] = np.arange(record.quantiles.shape[1]) < followed[:, None]
    return executed
