"""The paper's verification steps as hard checks: a figure, a bound, and a study that stops when it does not hold.

Axes: b batch, h chunk step, d action dim.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.contract import CAMERA_KEYS, OWN_DECODER, Observation, Policy, World
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.scenes.demonstrations import Demonstration
from lerobot_policy_quantile.studies.two_demo.records import CHECKS, Check
from lerobot_policy_quantile.util.files import write_json

FULL_SIZE = "pi05"
OUTPUT_BOUND = 1e-5
"""Cached against full, largest difference of outputs (normalised units): float32 rounding of another batch shape."""
GRADIENT_BOUND = 1e-4
"""Cached against full, difference of all gradients relative to their norm."""
BATCH_BOUND = 2e-5
"""Eight rows against single ones, largest difference of actions and quantiles (action units)."""


LOOSER = 10.0
"""By how much these bounds are wider at pi0.5's widths, whose sums are longer (outputs differed by 1.8e-5 on a
CPU), and on a GPU, whose kernels add in another order for another batch shape."""


class CheckFailed(ValueError):  # noqa: N818
    """A verification does not hold: the study stops."""


def record_checks(folder: Path, checks: Iterable[Check]) -> None:
    """Add checks to an arm's list (a repeated one replaces its old entry), then stop if one failed."""
    path, checks = folder / CHECKS, list(checks)
    known = {
        (entry["stage"], entry["name"]): entry for entry in (json.loads(path.read_text()) if path.is_file() else ())
    }
    known |= {(check.stage, check.name): asdict(check) for check in checks}
    write_json(path, list(known.values()))
    failed = [f"{check.stage}: {check.name}: {check.figure}" for check in checks if not check.passed]
    if failed:
        raise CheckFailed(f"{folder.name}: verification failed: {'; '.join(failed)}")


def identical_starts(demonstrations: Sequence[Demonstration]) -> Check:
    """Pictures, robot state and simulator state of all starts are the same bits (App. B.3)."""
    first, *others = demonstrations
    pairs: dict[str, list[float]] = {}
    for other in others:
        for camera in CAMERA_KEYS:
            pairs.setdefault(f"{camera} picture", []).append(
                _distance(first.frames[0][camera], other.frames[0][camera])
            )
        pairs.setdefault("robot state", []).append(_distance(first.states[0], other.states[0]))
        pairs.setdefault("simulator state", []).append(_distance(first.start, other.start))
    figure = ", ".join(f"{what} differs by {max(found):g}" for what, found in pairs.items())
    return Check("demonstrations", "identical starts", figure, all(max(found) == 0 for found in pairs.values()))


def as_promised(demonstrations: Sequence[Demonstration], control: Demonstration | None) -> list[Check]:
    """Demonstrations succeed without a touch; the straight control fails (App. B.3)."""
    facts = [f"{d.route.side}: {len(d.actions)} actions, {d.contacts} steps with contact" for d in demonstrations]
    clean = all(d.success and not d.contacts for d in demonstrations)
    found = [Check("demonstrations", "both succeed without contact", "; ".join(facts), clean)]
    if control is not None:
        words = "succeeded" if control.success else "failed"
        figure = f"{words} after {len(control.actions)} actions, {control.contacts} steps with contact"
        found.append(Check("demonstrations", "the straight control fails", figure, not control.success))
    return found


def rounding(backbone: str, device: str) -> float:
    """Factor of the bounds on rounding."""
    return LOOSER if backbone == FULL_SIZE or device != "cpu" else 1.0


def cached_is_full(name: str, outputs: float, gradients: float, at_jumps: int, *, rounding: float = 1.0) -> Check:
    """A batch through cached prefixes gives the outputs and gradients of the whole model (App. B.3).

    Where a target meets an answer the slope of the loss jumps: such coordinates have no gradient to compare.
    """
    of_outputs, of_gradients = rounding * OUTPUT_BOUND, rounding * GRADIENT_BOUND
    passed = outputs <= of_outputs and gradients <= of_gradients
    figure = f"outputs differ by {outputs:.1e} (bound {of_outputs:g}), gradients by {gradients:.1e} of their norm"
    figure = f"{figure} (bound {of_gradients:g})" + (f", {at_jumps} coordinates at a jump left out" if at_jumps else "")
    return Check("training", f"{name}: cached = full", figure, passed)


def frozen_unchanged(name: str, before: str, after: str) -> Check:
    """The VLM's weights have the same hash before and after training (App. B.3)."""
    figure = f"sha256 {before} before, {after} after"
    return Check("training", f"{name}: frozen weights unchanged", figure, before == after)


def same_everywhere(what: str, hashes: Mapping[str, str]) -> Check:
    """One initialisation, one batch sequence: every head has the same hash (App. B.3)."""
    figure = ", ".join(f"{head} {value}" for head, value in hashes.items())
    return Check("training", f"one {what} for all heads", figure, len(set(hashes.values())) == 1)


def batch_is_single(
    name: str, policy: Policy, moments: Sequence[Observation], world: World | None = None, *, rounding: float = 1.0
) -> Check:
    """Eight episodes answered as one batch give what each gives alone, whoever is asked first (App. B.3).

    Two chunks per episode. The single pass asks in the opposite order: noise that episodes share would show.
    """
    seeds = [7001 + number for number in range(8)]
    place: Any = world
    together = [policy.begin(seed, place, OWN_DECODER) for seed in seeds]
    batched = [policy.act([moment] * len(seeds), together) for moment in moments[:2]]
    largest = 0.0
    for row in reversed(range(len(seeds))):
        memory = policy.begin(seeds[row], place, OWN_DECODER)
        for chunk, moment in zip(batched, moments[:2], strict=True):
            (alone,) = policy.act([moment], [memory])
            largest = max(largest, _distance(alone.actions, chunk[row].actions))
            if alone.quantiles is not None and (law := chunk[row].quantiles) is not None:
                largest = max(largest, _distance(alone.quantiles, law))
    bound = rounding * BATCH_BOUND
    figure = f"largest difference {largest:.1e} over two chunks (bound {bound:g})"
    return Check("closed loop", f"{name}: batch of 8 = single inference", figure, largest <= bound)


def identical_repeats(name: str, rows: Sequence[Row]) -> Check:
    """Repeated median episodes have the same actions and end in the same simulator state (App. B.3)."""
    hashes = {(row.hashes.get("actions", "?"), row.hashes.get("simulator", "?")) for row in rows}
    figure = f"{len(rows)} episodes, {len(hashes)} distinct (actions, final simulator state)"
    passed = len(rows) > 1 and len(hashes) == 1 and all(row.status != "error" for row in rows)
    return Check("closed loop", f"{name}: identical median repeats", figure, passed)


def _distance(one: Any, two: Any) -> float:
    """Largest absolute difference; infinite for different shapes."""
    one, two = np.asarray(one, dtype=np.float64), np.asarray(two, dtype=np.float64)
    return float(np.abs(one - two).max()) if one.shape == two.shape else float("inf")
