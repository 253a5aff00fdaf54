"""How well a score tells failures from successes: the share of pairs in which the failure scores higher.

Episodes may belong to groups (scenes, tasks): then only pairs of one group count, so that a score that tells groups
apart and nothing else has 0.5.

Axes: e episode.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from lerobot_policy_quantile.calibration.scores import LEVEL, rounded
from lerobot_policy_quantile.util.quantiles import Array

RESAMPLES = 2000

Scores = Float[Array, " e"]
Failed = Bool[Array, " e"]
Groups = Int[Array, " e"]


def auroc(scores: Scores, failed: Failed, groups: Groups | None = None) -> float:
    """Probability that a failure scores above a success of its group, ties counted half; NaN without such a pair."""
    won, pairs = 0.0, 0
    for members in _members(len(scores), groups):
        own, bad = scores[members], failed[members]
        lost, good = np.sort(own[bad]), own[~bad]
        above = len(lost) - np.searchsorted(lost, good, side="right")
        ties = np.searchsorted(lost, good, side="right") - np.searchsorted(lost, good, side="left")
        won, pairs = won + float((above + ties / 2).sum()), pairs + len(lost) * len(good)
    return won / pairs if pairs else float("nan")


def auroc_interval(scores: Scores, failed: Failed, groups: Groups | None = None, seed: int = 0) -> dict[str, Any]:
    """With its 95 % interval by bootstrap over the failures and over the successes of every group."""
    drawn = (
        auroc(scores[own], failed[own], None if groups is None else groups[own])
        for own in _resamples(failed, groups, seed)
    )
    return _estimate(auroc(scores, failed, groups), drawn)


def auroc_difference(
    ours: Scores, theirs: Scores, failed: Failed, groups: Groups | None = None, seed: int = 0
) -> dict[str, Any]:
    """AUROC of one score minus that of another on the same episodes, drawn again together."""

    def difference(own: Any) -> float:
        there = None if groups is None else groups[own]
        return auroc(ours[own], failed[own], there) - auroc(theirs[own], failed[own], there)

    return _estimate(difference(slice(None)), map(difference, _resamples(failed, groups, seed)))


def _estimate(value: float, drawn: Iterator[float]) -> dict[str, Any]:
    if np.isnan(value):
        return {"value": None, "low": None, "high": None}
    low, high = np.quantile(list(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)}


def _resamples(failed: Failed, groups: Groups | None, seed: int) -> Iterator[Int[Array, " e"]]:
    """Places of episodes drawn with replacement: as many failures and successes of every group as there are."""
    draw = np.random.default_rng(seed)
    cells = [
        cell
        for members in _members(len(failed), groups)
        for cell in (members[failed[members]], members[~failed[members]])
        if len(cell)
    ]
    for _ in range(RESAMPLES):
        yield np.concatenate([draw.choice(cell, len(cell)) for cell in cells])


def _members(count: int, groups: Groups | None) -> list[Int[Array, " e"]]:
    if groups is None:
        return [np.arange(count)]
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]
