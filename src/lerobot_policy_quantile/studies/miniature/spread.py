"""Predicted spread over an episode (Sec. 4.4, Figs. 5 and 9): around grasp and release, and in transport.

The paper shows one rollout. Here every recorded episode gives two means of the range Q(0) to Q(1) at the first
predicted step: at replans within `NEAR` steps of a change of the gripper's command, and at replans with the gripper
closed and no change within `FAR`. Ranges are relative to the episode's mean in their dimension, then averaged over the
six motion dimensions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.aggregate import SEED_MARK
from lerobot_policy_quantile.studies.miniature.claims import Claim, Paired, seedwise
from lerobot_policy_quantile.util.quantiles import quantile_at

NEAR, FAR = 10, 20
"""Control steps."""
CONTACT, TRANSPORT = "contact", "transport"
MOTION, GRIPPER = 6, 6
"""LIBERO's action: six motion dimensions, then the gripper, which closes above 0."""
SIDE = "side"

Spreads = Mapping[str, Sequence[tuple[float, float]]]
"""Policy, as `quantile#0` -> contact and transport of every episode that has both."""


def spreads_in(rows: Sequence[Row], folder: Path) -> dict[str, list[tuple[float, float]]]:
    """From the side files of a run."""
    side = SideFiles(folder / SIDE)
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.status != "error" and side.path(row.key).is_file():
            both = episode_spread(side.read(row.key))
            if both is not None:
                found.setdefault(row.key.policy, []).append(both)
    return found


def episode_spread(arrays: Mapping[str, Any]) -> tuple[float, float] | None:
    """Relative spread at contact and in transport; None where an episode lacks either or has no quantiles."""
    if "quantiles" not in arrays:
        return None
    relative, steps = relative_spread(arrays["quantiles"]), arrays["query_steps"]
    closed = np.asarray(arrays["actions"])[:, GRIPPER] > 0
    changes = np.flatnonzero(closed[1:] != closed[:-1]) + 1
    if len(changes) == 0:
        return None
    away = np.abs(np.asarray(steps)[:, None] - changes[None]).min(axis=1)
    contact = away <= NEAR
    transport = (away > FAR) & closed[np.minimum(steps, len(closed) - 1)]
    if not contact.any() or not transport.any():
        return None
    return float(relative[contact].mean()), float(relative[transport].mean())


def relative_spread(quantiles: Float[Array, "n h d k"]) -> Float[Array, " n"]:
    """Range Q(0) to Q(1) of the first step at every replan, over the episode's mean, averaged over the motion."""
    now = np.asarray(quantiles, dtype=float)[:, 0, :MOTION]
    levels = quantile_levels(now.shape[-1]).tolist()
    ranges = quantile_at(now, levels, 1.0) - quantile_at(now, levels, 0.0)
    usual = np.maximum(ranges.mean(axis=0), np.finfo(float).tiny)
    relative: Float[Array, " n"] = (ranges / usual).mean(axis=1)
    return relative


def compared_spread(claim: Claim, spreads: Spreads) -> Paired | None:
    """Contact against transport, every training seed one mean of each; None without episodes."""
    mine = {seed: pairs for name, pairs in spreads.items() for variant, _, seed in [name.partition(SEED_MARK)]
            if variant == claim.a[0] and pairs}  # fmt: skip
    means = []
    for _, pairs in sorted(mine.items()):
        contact, transport = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        means.append((contact, transport))
    return seedwise(means, sum(map(len, mine.values())))
