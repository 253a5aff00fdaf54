"""One episode's side file as the explorer shows it: what fits together, and in words what does not.

Axes: t control step, d action dim, s state, q query (replan), h chunk step, k level.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.drawing.ranges import DIMENSIONS
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.explorer.run_reading import ExploredRun, PolicyUnits, alteration
from lerobot_policy_quantile.explorer.safe_arrays import read_arrays
from lerobot_policy_quantile.serving.spread import spread
from lerobot_policy_quantile.util.quantiles import Array, levels_of

PER_QUERY = {"surprise": "surprise", "surprises": "surprise", "alarm": "alarm"}
"""Arrays with one number per replan that are drawn where a side file has them -> the names they are drawn under."""
MOST_DIMENSIONS = 64
ArrayReader = Callable[["EpisodeRecord", Array], None]
"""Puts an array into a record; ValueError says why it does not fit."""


@dataclass
class EpisodeRecord:
    """An episode; what is None was not written or cannot be used, and `problems` says which."""

    row: Row
    actions: Float[Array, "t d"] | None = None
    states: Float[Array, "u s"] | None = None
    """The start, then one per action."""
    contacts: Float[Array, " t"] | None = None
    query_steps: Int[Array, " q"] | None = None
    quantiles: Float[Array, "q h d k"] | None = None
    per_query: dict[str, Float[Array, " q"]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def levels(self) -> Float[Array, " k"] | None:
        """Of the quantiles; side files do not hold them."""
        return None if self.quantiles is None else levels_of(self.quantiles.shape[-1])


def read_episode(run: ExploredRun, row: Row) -> EpisodeRecord:
    """The arrays of an episode; a missing or damaged side file leaves a record with problems."""
    record = EpisodeRecord(row)
    if row.traceback is not None:
        record.problems.append(f"the episode ended in an error: {row.traceback.strip().splitlines()[-1][:300]}")
    try:
        path = run.side_file(row, ".npz")
        arrays, unreadable = read_arrays(path)
        record.problems += alteration(path, row) + unreadable
    except (ValueError, OSError) as error:
        record.problems.append(f"no actions or predictions: {error}")
        return record
    for name, reader in _READERS.items():
        if name in arrays:
            try:
                reader(record, np.asarray(arrays[name]))
            except ValueError as error:
                record.problems.append(f"{name}: {error}; left out")
        elif name in ("actions", "states", "query_steps"):
            record.problems.append(f"{name} are not in the side file")
        elif name == "quantiles" and not any("quantiles" in problem for problem in record.problems):
            record.problems.append("the policy predicted no quantiles: no fans, ranks, spread or decoders")
    return record


def executed_law(record: EpisodeRecord) -> Float[Array, "t d k"] | None:
    """The quantiles of every executed action, from the last replan before it; NaN beyond a chunk's end."""
    if record.quantiles is None or record.query_steps is None or record.actions is None:
        return None
    law = np.full((len(record.actions), *record.quantiles.shape[2:]), np.nan)
    ends = np.append(record.query_steps[1:], len(record.actions))
    for began, end, chunk in zip(record.query_steps, ends, record.quantiles, strict=True):
        count = min(int(end - began), len(chunk))
        law[began : began + count] = chunk[:count]
    return law


def motion_of(record: EpisodeRecord, run: ExploredRun) -> list[int]:
    """The dimensions that are not grippers; without the policy's folder the last one is taken for the gripper."""
    count = 0 if record.actions is None else record.actions.shape[1]
    units = _units(record, run)
    grippers = units.grippers if units is not None else (count - 1,) if count > 1 else ()
    return [d for d in range(count) if d not in grippers]


def known_scale(record: EpisodeRecord, run: ExploredRun) -> tuple[float, ...] | None:
    """Commands per normalised unit of every dimension, where the policy's folder was given."""
    units = _units(record, run)
    return None if units is None else units.scale


def _units(record: EpisodeRecord, run: ExploredRun) -> PolicyUnits | None:
    units = run.units.get(record.row.key.policy)
    fits = units is not None and record.actions is not None and len(units.scale) == record.actions.shape[1]
    return units if fits else None


def dimension_names(record: EpisodeRecord) -> list[str]:
    """Of the action dimensions: those of an arm with seven, numbers otherwise."""
    count = 0 if record.actions is None else record.actions.shape[1]
    return list(DIMENSIONS) if count == len(DIMENSIONS) else [f"action {d}" for d in range(count)]


def mean_spread(record: EpisodeRecord, run: ExploredRun) -> float | None:
    """Mean over replans of the first step's central 80 %, mean over motion dimensions; normalised if units are known.

    In commands otherwise.
    """
    if record.quantiles is None or record.levels is None or not len(record.quantiles):
        return None
    widths = spread(record.quantiles[:, 0].astype(float), list(record.levels))[:, motion_of(record, run)]
    if (scale := known_scale(record, run)) is not None:
        widths = widths / np.asarray(scale)[motion_of(record, run)]
    return float(widths.mean())


def first_alarm(record: EpisodeRecord) -> int | None:
    """The control step of the first replan at which the alarm was raised."""
    alarm = record.per_query.get("alarm")
    if alarm is None or record.query_steps is None or not (alarm > 0).any():
        return None
    return int(record.query_steps[int(np.argmax(alarm > 0))])


# --- one array after the other ----------------------------------------------------------------


def _actions(record: EpisodeRecord, array: Array) -> None:
    if array.ndim != 2 or not 1 <= array.shape[1] <= MOST_DIMENSIONS:
        raise ValueError(f"must have axes (t, d) with d in 1..{MOST_DIMENSIONS}; got shape {array.shape}")
    record.actions = _with_gaps(record, "actions", array)
    if len(array) != record.row.steps:
        record.problems.append(f"actions: the journal counts {record.row.steps} steps, the side file {len(array)}")


def _states(record: EpisodeRecord, array: Array) -> None:
    if array.ndim != 2 or array.shape[1] > 1024:
        raise ValueError(f"must have axes (t, s); got shape {array.shape}")
    if record.actions is not None and len(array) != len(record.actions) + 1:
        raise ValueError(f"must be one more than the {len(record.actions)} actions; got {len(array)}")
    record.states = _with_gaps(record, "states", array)


def _contacts(record: EpisodeRecord, array: Array) -> None:
    if record.actions is None or array.shape != (len(record.actions),):
        raise ValueError(f"must be one number per action; got shape {array.shape}")
    record.contacts = _finite(array)


def _query_steps(record: EpisodeRecord, array: Array) -> None:
    steps = _finite(array) if array.ndim == 1 else array
    if record.actions is None:
        raise ValueError("need the actions, which cannot be read")
    if array.ndim != 1 or (np.diff(steps) <= 0).any() or (len(steps) and not 0 <= steps[0] <= steps[-1] <= 2**30):
        raise ValueError(f"must be a vector of increasing steps from 0 on; got shape {array.shape}")
    if len(steps) and steps[-1] > len(record.actions):
        raise ValueError(f"must lie within the {len(record.actions)} actions; got {steps[-1]:g}")
    record.query_steps = steps.astype(np.int32)


def _quantiles(record: EpisodeRecord, array: Array) -> None:
    if record.query_steps is None or record.actions is None:
        raise ValueError("need actions and query_steps, which cannot be read")
    wanted = (len(record.query_steps), record.actions.shape[1])
    if array.ndim != 4 or (array.shape[0], array.shape[2]) != wanted or not array.shape[1]:
        raise ValueError(f"must have axes (q, h, d, k) with q = {wanted[0]}, d = {wanted[1]}; got shape {array.shape}")
    if array.shape[3] < 3 or array.shape[3] % 2 == 0:
        raise ValueError(f"must have an odd number of levels, 3 or more; got {array.shape[3]}")
    numbers = _finite(array)
    if (np.diff(numbers, axis=-1) < 0).any():
        raise ValueError("must not decrease along the levels")
    record.quantiles = numbers


def _per_query(name: str) -> "ArrayReader":
    def read(record: EpisodeRecord, array: Array) -> None:
        if record.query_steps is None or array.shape != record.query_steps.shape:
            raise ValueError(f"must be one number per query; got shape {array.shape}")
        record.per_query[name] = np.ascontiguousarray(array, dtype=np.float32)  # NaN: nobody could say

    return read


def _with_gaps(record: EpisodeRecord, name: str, array: Array) -> Array:
    """Numbers that are not finite stay, and are drawn as gaps."""
    numbers = np.ascontiguousarray(array, dtype=np.float32)
    if bad := int((~np.isfinite(numbers)).sum()):
        record.problems.append(f"{name}: {bad} of {numbers.size} numbers are not finite")
    return numbers


def _finite(array: Array) -> Array:
    numbers = np.ascontiguousarray(array, dtype=np.float32)
    if bad := int((~np.isfinite(numbers)).sum()):
        raise ValueError(f"{bad} of {numbers.size} numbers are not finite")
    return numbers


_READERS: Mapping[str, ArrayReader] = {  # in the order in which they need each other
    "actions": _actions,
    "states": _states,
    "contacts": _contacts,
    "query_steps": _query_steps,
    "quantiles": _quantiles,
    **{name: _per_query(shown) for name, shown in PER_QUERY.items()},
}
