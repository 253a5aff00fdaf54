"""Predicted spread over the episodes of a run, from its journal and side files (Fig. 5 and 9 of the paper).

At every replan: Q(0) and Q(1) of the first predicted action around its median, in commands; outer segments of the
quantile function go on in a straight line to the ends. With the policy's folder also the mean over motion dimensions
in normalised units, L(t), U(t) and W(t) of App. B.1.

Axes: q query (replan), h chunk step, d action dim, k level, t control step, g place on the grid of normalised time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.adapters.policy_folder import CONFIG, require_policy_folder
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.drawing.ranges import DIMENSIONS, Range
from lerobot_policy_quantile.evaluation.journal import Row, read_rows
from lerobot_policy_quantile.evaluation.naming import rows_named
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL
from lerobot_policy_quantile.policy.action_units import saved_units
from lerobot_policy_quantile.policy.bounds_file import folder_digest
from lerobot_policy_quantile.policy.grippers import gripper_indices
from lerobot_policy_quantile.util.names import nearest
from lerobot_policy_quantile.util.quantiles import Array, quantile_at

SIDE = "side"
GRID = 101
"""Places of normalised time, from the first step of an episode to its last."""
BAND = (0.1, 0.9)
"""Quantiles over episodes at the ends of the outer band."""


@dataclass(frozen=True)
class EpisodeChoice:
    """Which episodes of a run; None is any."""

    episode: str | None = None
    """A key as the journal spells it, or the sixteen digits that name its side files."""
    scene: str | None = None
    task: int | None = None
    policy: str | None = None
    decoder: str | None = None
    status: str | None = None


@dataclass(frozen=True)
class MotionUnits:
    """What a policy's folder tells: grippers, and normalised units per command of every motion dimension."""

    motion: tuple[int, ...]
    scale: Float[Array, " m"] | None


@dataclass(frozen=True)
class EpisodeSpread:
    """One episode; ranges of the motion dimensions only."""

    row: Row
    steps: Int[Array, " q"]
    """Control steps of the predictions."""
    commands: Range
    """Per motion dimension."""
    mean: Range | None
    """Over the motion dimensions, in normalised units; None without the policy's folder."""
    gripper: Float[Array, " t"] | None
    """Commands of the first gripper dimension."""

    @property
    def time(self) -> Float[Array, " q"]:
        """Of the predictions: 0 at the first step of the episode, 1 at its last."""
        return np.asarray(self.steps / max(self.row.steps - 1, 1))


def choose_rows(run: Path, choice: EpisodeChoice) -> list[Row]:
    """The rows that are meant: without errors, of one scene, policy and decoder."""
    journal = run / JOURNAL if run.is_dir() else run
    if not journal.is_file():
        raise ValueError(f"RUN must be a folder that qhead eval wrote, with {JOURNAL}; got {run}")
    rows = [row for row in read_rows(journal) if row.status != "error"]
    if choice.episode is not None:
        rows = rows_named(rows, choice.episode)
    for field in ("scene", "task", "policy", "decoder", "status"):
        wanted = getattr(choice, field)
        known = sorted({_field(row, field) for row in rows})
        if wanted is not None:
            rows = [row for row in rows if _field(row, field) == wanted]
            if not rows:
                hint = nearest(str(wanted), map(str, known))
                listed = ", ".join(map(str, known)) or "none"
                raise ValueError(f"--{field} must be one of the run's, {listed}; got {wanted!r}{hint}")
        elif field in ("scene", "policy", "decoder") and len(known) > 1:
            raise ValueError(f"--{field} must be given: the chosen episodes are of {', '.join(map(str, known))}")
    if not rows:
        raise ValueError(f"RUN must hold an episode that did not end in an error; got none in {run}")
    return rows


def _field(row: Row, name: str) -> Any:
    return row.status if name == "status" else getattr(row.key, name)


def motion_units(folder: Path | None, action_dim: int, rows: Sequence[Row]) -> MotionUnits:
    """Of the policy that the rows were made with; without its folder the last dimension is taken for the gripper."""
    if folder is None:
        grippers = gripper_indices(None, action_dim)
        return MotionUnits(tuple(d for d in range(action_dim) if d not in grippers), None)
    require_policy_folder(folder)
    made = {row.versions.get("policy") for row in rows}
    if made != {folder_digest(folder)}:
        raise ValueError(
            f"--policy must be the folder that the run was made with, whose files have the digest"
            f" {', '.join(map(str, sorted(map(str, made))))}; got {folder_digest(folder)} in {folder}"
        )
    config: Mapping[str, Any] = json.loads((folder / CONFIG).read_bytes())
    grippers = gripper_indices(config.get("grippers"), action_dim)
    motion = tuple(d for d in range(action_dim) if d not in grippers)
    return MotionUnits(motion, 1 / saved_units(folder, action_dim).scale[list(motion)])


def own_folder(rows: Sequence[Row]) -> Path | None:
    """The folder that a policy without a name of its own is called by, if it still holds what the run was made with."""
    (name,) = {row.key.policy for row in rows}
    folder = Path(name)
    if not (folder / CONFIG).is_file() or {row.versions.get("policy") for row in rows} != {folder_digest(folder)}:
        return None
    return folder


def read_spread(run: Path, rows: Sequence[Row], folder: Path | None) -> list[EpisodeSpread]:
    """The spread of every row, from its side file."""
    files = SideFiles((run if run.is_dir() else run.parent) / SIDE)
    found, units = [], None
    for row in rows:
        if not files.path(row.key).is_file():
            raise ValueError(
                f"episode {row.key.text} has no side file {files.path(row.key)}: run qhead eval without"
                " --no-side-files, or choose others with --episode or --task"
            )
        arrays = files.read(row.key)
        if "quantiles" not in arrays:
            raise ValueError(f"--policy must predict quantiles; {row.key.policy!r} has none in {files.path(row.key)}")
        units = units or motion_units(folder, arrays["quantiles"].shape[2], rows)
        found.append(_episode(row, arrays, units))
    return found


def _episode(row: Row, arrays: Mapping[str, Array], units: MotionUnits) -> EpisodeSpread:
    now = np.asarray(arrays["quantiles"][:, 0], dtype=float)
    levels = quantile_levels(now.shape[-1]).numpy().astype(float)
    low, middle, high = (quantile_at(now, levels, rank)[:, list(units.motion)] for rank in (0.0, 0.5, 1.0))
    commands = Range(low - middle, high - middle)
    mean = None if units.scale is None else commands.scaled(units.scale).mean()
    grippers = [d for d in range(now.shape[1]) if d not in units.motion]
    gripper = arrays["actions"][:, grippers[0]] if grippers and len(arrays["actions"]) else None
    return EpisodeSpread(row, arrays["query_steps"], commands, mean, gripper)


def motion_names(count: int) -> list[str]:
    """Names of the motion dimensions: those of an arm with six, numbers otherwise."""
    return list(DIMENSIONS[:count]) if count == len(DIMENSIONS) - 1 else [f"motion {d}" for d in range(count)]


# --- averages ---------------------------------------------------------------------------------


def on_grid(episode: EpisodeSpread, found: Range) -> Range:
    """A range at equal places of normalised time: linear between predictions, the last one held to the end."""
    grid = np.linspace(0, 1, GRID)

    def placed(values: Array) -> Array:
        columns = values.reshape(len(values), -1).T
        lines = [np.interp(grid, episode.time, column) for column in columns]
        return np.stack(lines, axis=-1).reshape(GRID, *values.shape[1:])

    return Range(placed(found.below), placed(found.above))


def averaged(ranges: Sequence[Range]) -> tuple[Range, Range]:
    """The mean over episodes, and a band: a tenth of them go below its lower end, a tenth above its upper end."""
    below, above = (np.stack([getattr(r, name) for r in ranges]) for name in ("below", "above"))
    outer = Range(np.quantile(below, BAND[0], axis=0), np.quantile(above, BAND[1], axis=0))
    return Range(below.mean(axis=0), above.mean(axis=0)), outer
