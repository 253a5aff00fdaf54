"""Conformal bounds of a policy: fitted on held-out episodes, and judged on others.

Axes: f judged frame, m mass, h chunk step, d action dim, e episode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.calibration.held_out import DatasetFacts, data_digest
from lerobot_policy_quantile.calibration.policy_facts import PolicyFacts
from lerobot_policy_quantile.calibration.predictions import EpisodeLaw
from lerobot_policy_quantile.calibration.scores import Bootstrap, rounded
from lerobot_policy_quantile.core.conformal import (
    conformal_bounds,
    conformal_margin,
    conformity_scores,
    episodes_needed,
)
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.policy.bounds_file import REFIT, ConformalBounds
from lerobot_policy_quantile.util.quantiles import Array


def parse_masses(text: str | None) -> tuple[float, ...]:
    """The masses of a text such as `0.9` or `0.5,0.8,0.95`, in order; none without one."""
    if text is None:
        return ()
    try:
        masses = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        masses = ()
    if not masses or not (masses[0] > 0 and masses[-1] < 1):
        raise ValueError(f"--conformal must be masses between 0 and 1, such as 0.9 or 0.5,0.8,0.95; got {text!r}")
    return masses


def require_enough(masses: Sequence[float], episodes: int) -> None:
    """Refuse a number of episodes from which no finite margin follows."""
    for mass in masses:
        if episodes < (needed := episodes_needed(mass)):
            raise ValueError(
                f"--conformal {mass:g} needs at least {needed} episodes, so that ceil((n + 1) {mass:g}) <= n; got"
                f" {episodes}: name more with --episodes, or ask for a smaller mass"
            )


class BoundsFit:
    """Collects scores episode by episode."""

    def __init__(self, masses: Sequence[float], levels: Float[Tensor, " k"]) -> None:
        self._masses, self._levels = tuple(masses), levels
        self._scores: list[list[Float[Tensor, "f h d"]]] = [[] for _ in self._masses]
        self._valid: list[Bool[Tensor, "f h d"]] = []

    def add(self, law: EpisodeLaw) -> None:
        """One held-out episode."""
        quantiles, target, valid = _tensors(law, self._levels)
        for own, mass in zip(self._scores, self._masses, strict=True):
            own.append(conformity_scores(quantiles, target, mass))
        self._valid.append(valid)

    def margins(self) -> Float[Tensor, "m h d"]:
        """Of every mass."""
        found = [conformal_margin(own, self._valid, mass) for own, mass in zip(self._scores, self._masses, strict=True)]
        return torch.stack(found).float()


class BoundsCheck:
    """Shares inside bounds that were fitted before, and widths, before and after the correction."""

    def __init__(self, bounds: ConformalBounds, levels: Float[Tensor, " k"]) -> None:
        self._bounds, self._levels = bounds, levels
        self._sums: list[Float[Array, "m 5"]] = []

    def add(self, law: EpisodeLaw) -> None:
        """One episode: valid coordinates; inside before and after; widths before and after."""
        quantiles, target, valid = _tensors(law, self._levels)
        rows = []
        for mass, margin in zip(self._bounds.masses, self._bounds.margins, strict=True):
            there = valid & margin.isfinite()
            row = [float(there.sum())]
            ends = [conformal_bounds(quantiles, m, mass) for m in (torch.zeros_like(margin), margin)]
            row += [float(((low <= target) & (target <= high) & there).sum()) for low, high in ends]
            row += [float(torch.where(there, high - low, 0.0).sum()) for low, high in ends]
            rows.append(row)
        self._sums.append(np.array(rows))

    def record(self, bootstrap: Bootstrap) -> list[dict[str, Any]]:
        """One entry per mass, with intervals over episodes."""
        sums = np.stack(self._sums)
        names = ("coverage_before", "coverage", "width_before", "width")
        found = []
        for number, mass in enumerate(self._bounds.masses):
            count = sums[:, number, 0]
            ratios = {
                name: bootstrap.ratio(sums[:, number, place], count).record() for place, name in enumerate(names, 1)
            }
            found.append({"mass": mass, **ratios})
        return found


def describe_bounds(bounds: ConformalBounds) -> dict[str, Any]:
    """JSON form of what was fitted: mean margins per mass and dimension, in normalised units."""
    finite = np.where(np.isfinite(bounds.margins.numpy()), bounds.margins.numpy(), np.nan)
    with np.errstate(invalid="ignore"):
        means = [rounded(np.nanmean(margin, axis=0)) for margin in finite]
    return {
        "masses": list(bounds.masses),
        "margin_by_dimension": means,
        "steps_without_bounds": int(np.isnan(finite).any(axis=(0, 2)).sum()),
        "weights": bounds.weights,
        "data": bounds.data,
        "dataset": bounds.dataset,
        "episodes": list(bounds.episodes),
    }


def require_current(bounds: ConformalBounds, policy: PolicyFacts, data: DatasetFacts, dataset: Any) -> None:
    """Refuse bounds whose calibration data, if it is the dataset at hand, is no longer what it was."""
    if bounds.dataset != data.label or not set(bounds.episodes) <= set(range(data.episodes)):
        return
    if (now := data_digest(dataset, bounds.episodes)) not in ("", bounds.data):
        raise ValueError(
            f"bounds of policy {policy.name} were fitted on episodes of {bounds.dataset} with the digest {bounds.data};"
            f" these episodes now have {now}; {REFIT}"
        )


def calibrated_on(bounds: ConformalBounds, policy: PolicyFacts, data: DatasetFacts, episodes: Sequence[int]) -> str:
    """A sentence if bounds are judged on the episodes that they were fitted on; else nothing."""
    shared = set(bounds.episodes) & set(episodes) if bounds.dataset == data.label else set()
    if not shared:
        return ""
    return (
        f"The bounds of policy {policy.name} were fitted on {len(shared)} of the {len(episodes)} episodes: the share"
        " inside them says nothing about new ones."
    )


def _tensors(law: EpisodeLaw, levels: Float[Tensor, " k"]) -> tuple[QuantileFunction, Tensor, Bool[Tensor, "f h d"]]:
    target = torch.from_numpy(law.actions).double()
    knots = torch.from_numpy(np.ascontiguousarray(law.quantiles)).double()
    valid = torch.from_numpy(law.valid)[..., None].expand(target.shape)
    return QuantileFunction(levels.double(), knots), target, valid
