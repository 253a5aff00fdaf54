"""How smoothly chunks join where answers take time: seams, jerk, standing still, from the rows' side files.

Axes: n step, d action dim.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import PairedDifference, mean_over_seeds, wilson
from lerobot_policy_quantile.evaluation.tables.pairing import Episode
from lerobot_policy_quantile.util.tables import aligned

HAND = slice(0, 3)
"""Of a robot state: the hand's position in metres."""
NOTE = (
    "# seam: mean |new chunk's first executed action - the old chunk's for that step| over motion coordinates, action"
    " units\n# action jerk: mean squared third difference of executed actions; path jerk: of the hand's path, m^2/s^6\n"
    "# means over episodes with 95 % t intervals; success: Wilson\n"
)


@dataclass(frozen=True)
class EpisodeMotion:
    """How one episode moved; NaN where nothing could be measured."""

    seam: float
    action_jerk: float
    path_jerk: float
    standing: float
    seconds: float
    surprise: float


MEASURES: dict[str, Callable[[EpisodeMotion], float]] = {
    "seam": lambda motion: motion.seam,
    "action jerk": lambda motion: motion.action_jerk,
    "path jerk": lambda motion: motion.path_jerk,
    "standing": lambda motion: motion.standing,
    "seconds": lambda motion: motion.seconds,
    "surprise": lambda motion: motion.surprise,
}


def motion_of(row: Row, files: SideFiles) -> EpisodeMotion | None:
    """Of an episode whose answers took time; None for any other, and where its side file is missing."""
    if "handover" not in row.versions or row.status == "error" or not files.path(row.key).is_file():
        return None
    arrays = files.read(row.key)
    motion = np.delete(np.arange(arrays["actions"].shape[1]), arrays["grippers"])
    rate = row.steps / row.simulated_seconds if row.simulated_seconds else math.nan
    return EpisodeMotion(
        seam=_mean(arrays["seam_jumps"][:, motion]),
        action_jerk=_mean(np.diff(arrays["actions"][:, motion], n=3, axis=0) ** 2),
        path_jerk=_mean((rate**3 * np.diff(arrays["states"][:, HAND], n=3, axis=0)) ** 2),
        standing=float(arrays["standing"]),
        seconds=row.simulated_seconds,
        surprise=_mean(arrays["surprises"][np.isfinite(arrays["surprises"])]),
    )


def motion_table(rows: Sequence[Row], files: SideFiles | None) -> str:
    """One line per scene, policy and decoder whose answers took time; empty where there is none."""
    found = [(row, motion) for row in sorted(rows, key=_group) if files and (motion := motion_of(row, files))]
    if not found:
        return ""
    lines: list[tuple[str, ...]] = [("scene", "policy", "decoder", "episodes", "success", *MEASURES)]
    for group, members in groupby(found, lambda item: _group(item[0])):
        judged = list(members)
        rate = wilson(sum(row.status == "success" for row, _ in judged) / len(judged), len(judged))
        success = f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
        cells = (spelled([measure(motion) for _, motion in judged]) for measure in MEASURES.values())
        lines.append((*group, str(len(judged)), success, *cells))
    return aligned(lines, left=3) + NOTE


def _group(row: Row) -> tuple[str, str, str]:
    return row.key.scene, row.key.policy, row.key.decoder


def paired_motion(a: Mapping[Episode, EpisodeMotion], b: Mapping[Episode, EpisodeMotion]) -> list[str]:
    """Differences A - B of every measure on the episodes that both have, in words."""
    shared = sorted(a.keys() & b.keys())
    found = []
    for name, measure in MEASURES.items():
        values = [(measure(a[key]), measure(b[key])) for key in shared]
        both = [(x, y) for x, y in values if math.isfinite(x) and math.isfinite(y)]
        if both:
            means = [math.fsum(side) / len(both) for side in zip(*both, strict=True)]
            found.append(
                f"{name}: A {means[0]:.4g}, B {means[1]:.4g}; A - B {spelled([x - y for x, y in both])} on"
                f" {len(both)} episodes"
            )
    return found


def interval(values: Sequence[float]) -> PairedDifference | None:
    """Mean of the finite values with Student's t interval; None without any."""
    finite = [value for value in values if math.isfinite(value)]
    return mean_over_seeds(finite) if finite else None


def spelled(values: Sequence[float]) -> str:
    """Such as `0.012 [0.01, 0.014]`, or `-`."""
    found = interval(values)
    if found is None:
        return "-"
    ends = f" [{found.low:.3g}, {found.high:.3g}]" if math.isfinite(found.low) else ""
    return f"{found.value:.3g}{ends}"


def _mean(values: Float[Array, "..."]) -> float:
    return float(values.mean()) if values.size else math.nan
