"""From tallies to scores with 95 % intervals: a bootstrap over episodes, whose frames are not independent.

Every score is a ratio of sums. Whole episodes are drawn with replacement, as many as there are, and the ratio is taken
again; the interval holds the middle 95 % of the ratios. A single episode has no interval.

Axes: e episode, r resample, h chunk step, d action dim, k level.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.calibration.tallies import BINS, MASSES, Tally
from lerobot_policy_quantile.util.quantiles import Array

LEVEL = 0.95
RESAMPLES = 2000
DIGITS = 6
"""Significant ones of the numbers in a record."""


@dataclass(frozen=True)
class Estimates:
    """Values with the ends of their intervals; None where one episode cannot give any."""

    value: Float[Array, "*s"]
    low: Float[Array, "*s"] | None
    high: Float[Array, "*s"] | None

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {name: rounded(getattr(self, name)) for name in ("value", "low", "high")}


class Bootstrap:
    """Ratios of sums over episodes, and what they are when episodes are drawn again."""

    def __init__(self, episodes: int, resamples: int = RESAMPLES, seed: int = 0) -> None:
        if resamples < 100:
            raise ValueError(f"resamples must be at least 100 for an interval of 95 %; got {resamples}")
        self._weights: Float[Array, "r e"] | None = None
        if episodes > 1:
            drawn = np.random.default_rng(seed).multinomial(episodes, np.full(episodes, 1 / episodes), resamples)
            self._weights = drawn.astype(np.float64)

    def ratio(self, top: Float[Array, "e *s"], bottom: Float[Array, "e *s"]) -> Estimates:
        """sum(top) / sum(bottom), per entry of *s."""
        return self._estimates(lambda sums: sums[0] / sums[1], top, bottom)

    def skill(self, ours: Float[Array, " e"], reference: Float[Array, " e"]) -> Estimates:
        """1 - sum(ours) / sum(reference)."""
        return self._estimates(lambda sums: 1 - sums[0] / sums[1], ours, reference)

    def _estimates(self, of: Any, *parts: Float[Array, "e *s"]) -> Estimates:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.asarray(of([part.sum(0) for part in parts]))
            if self._weights is None:
                return Estimates(value, None, None)
            again = of([np.tensordot(self._weights, part, axes=1) for part in parts])
        with warnings.catch_warnings():  # a chunk step that no episode reaches has no number at all
            warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
            low, high = np.nanquantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return Estimates(value, low, high)


def score_record(
    tally: Tally,
    references: Mapping[str, Tally],
    scale: Float[Array, " d"],
    bootstrap: Bootstrap,
    *,
    distribution: bool,
) -> dict[str, Any]:
    """The scores of one law in JSON form. A point has errors and skill; coverage, width and PIT would say nothing.

    `scale`: the robot's units per normalised unit of each dimension.
    """
    count = tally.count
    record: dict[str, Any] = {
        "crps": _of(bootstrap, tally.crps, count),
        "crps_fair": rounded(tally.fair_crps.sum() / count.sum()),
        "absolute_error": _of(bootstrap, tally.distance, count),
        "pinball": _of(bootstrap, tally.pinball, count),
        "skill": {
            name: bootstrap.skill(tally.pinball.sum((1, 2)), other.pinball.sum((1, 2))).record()
            for name, other in references.items()
        },
    }
    if distribution:
        record["coverage"] = _coverage(tally, bootstrap)
        record["intervals"] = [_interval(tally, number, scale, bootstrap) for number in range(len(MASSES))]
        record["pit"] = _pit(tally, bootstrap)
    return record


def _of(bootstrap: Bootstrap, sums: Float[Array, "e h d"], count: Float[Array, "e h d"]) -> dict[str, Any]:
    """Mean over all valid coordinates with its interval, and means per dimension and per chunk step."""
    return {
        **bootstrap.ratio(sums.sum((1, 2)), count.sum((1, 2))).record(),
        "by_dimension": bootstrap.ratio(sums.sum(1), count.sum(1)).record(),
        "by_step": bootstrap.ratio(sums.sum(2), count.sum(2)).record(),
    }


def _coverage(tally: Tally, bootstrap: Bootstrap) -> dict[str, Any]:
    count = tally.count[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        cells = tally.hits.sum(0) / count.sum(0)
    return {
        **bootstrap.ratio(tally.hits.sum((1, 2)), count.sum((1, 2))).record(),
        "by_dimension": bootstrap.ratio(tally.hits.sum(1), count.sum(1)).record(),
        "by_step": bootstrap.ratio(tally.hits.sum(2), count.sum(2)).record(),
        "by_step_and_dimension": rounded(cells),
    }


def _interval(tally: Tally, number: int, scale: Float[Array, " d"], bootstrap: Bootstrap) -> dict[str, Any]:
    width = _of(bootstrap, tally.width[:, number], tally.count)
    robot = tally.width[:, number].sum((0, 1)) / tally.count.sum((0, 1)) * scale
    return {
        "mass": MASSES[number],
        "coverage": _of(bootstrap, tally.inside[:, number], tally.count),
        "width": width,
        "width_in_robot_units": rounded(robot),
    }


def _pit(tally: Tally, bootstrap: Bootstrap) -> dict[str, Any]:
    """Densities: 1 in every bin if the law is calibrated."""
    counts = BINS * tally.pit
    whole = tally.pit.sum(-1, keepdims=True)
    return {
        "bins": BINS,
        **bootstrap.ratio(counts.sum(1), whole.sum(1)).record(),
        "by_dimension": bootstrap.ratio(counts, whole).record(),
    }


def rounded(values: Any) -> Any:
    """Numbers as JSON takes them: few digits, None where there is none."""
    if values is None:
        return None
    if isinstance(values, np.ndarray) and values.ndim:
        return [rounded(value) for value in values]
    number = float(values)
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None
