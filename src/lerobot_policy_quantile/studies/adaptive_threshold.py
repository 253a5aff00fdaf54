"""Which spread adaptive replanning should stop at, so that chunks are followed for so many steps on average.

Axes: n chunk, h chunk step.
"""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import Array


def matching_threshold(spreads: Float[Array, "n h"], steps: float, least: int) -> float:
    """The smallest spread at which the chunks seen would have been followed for `steps` per look or more."""
    candidates = np.unique(spreads.round(4))
    per_look = np.array([steps_per_look(spreads, threshold, least) for threshold in candidates])
    return float(candidates[np.argmax(per_look >= steps)])


def steps_per_look(spreads: Float[Array, "n h"], threshold: float, least: int) -> float:
    """Steps over looks if every chunk stood for as many steps as any other: the harmonic mean of their lengths."""
    over, longest = spreads > threshold, spreads.shape[1]
    steps = np.where(over.any(axis=1), over.argmax(axis=1), longest).clip(least, longest)
    return float(1 / (1 / steps).mean())
