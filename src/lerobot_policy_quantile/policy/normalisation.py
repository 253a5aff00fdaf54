"""Exact q01 and q99 of a LeRobot dataset's states and actions, from its data.

The quantiles that LeRobot 0.6.1 keeps in a dataset's metadata are means of per-episode quantiles: two
episodes that live in different places give a range that neither has. Later versions keep the widest
of them, which one episode decides. Normalisation is affine between these two numbers (App. B), so they
are read from all frames instead.

New processors take them from `exact_quantiles_of`, which changes nothing of its caller's. The processors of a saved
policy that LeRobot's trainer fine-tunes are filled by the trainer itself, straight from the metadata in memory; there
`put_statistics` must come first.
"""

import json
import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lerobot.configs import NormalizationMode
from lerobot.utils.constants import ACTION, OBS_STATE
from numpy.typing import NDArray

from lerobot_policy_quantile.configuration_quantile import BASE
from lerobot_policy_quantile.policy.base_checkpoint import base_statistics

NORMALISED_KEYS = (OBS_STATE, ACTION)

SMALLEST_RANGE = 1e-4
"""A dimension that moves less than this between q01 and q99 is near-constant, in the data's units."""

_logger = logging.getLogger(__name__)


def exact_statistics(root: Path, keys: tuple[str, ...] = NORMALISED_KEYS) -> dict[str, dict[str, NDArray[np.float32]]]:
    """`q01` and `q99` over every frame stored under a dataset's folder, one pair per key.

    Refuses NaN and infinities, naming key, episode and frame.
    """
    files = _data_files(root)
    if not files:
        raise ValueError(f"root must be a LeRobot dataset with data/*/*.parquet; got {root}")
    stamps = tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return {key: dict(_exact_range(stamps, key)) for key in keys}


@cache
def _exact_range(files: tuple[tuple[Path, int, int], ...], key: str) -> dict[str, NDArray[np.float32]]:
    """Policy and processors of a run ask one after the other; the data is read once, unless a file has changed."""
    values, episodes, frames = _column([file for file, *_ in files], key)
    require_finite_frames(key, values, episodes, frames)
    return normalisation_range(values)


def normalisation_range(values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """q01 and q99 of each column, widened where a column is near-constant.

    A column that rests (a gripper that closes in one frame of two hundred) gets its full range; one
    that never moves gets `SMALLEST_RANGE` around its value, so that noise is not blown up.
    """
    low, high = np.quantile(values.astype(np.float64), [0.01, 0.99], axis=0)
    resting = high - low < SMALLEST_RANGE
    low, high = np.where(resting, values.min(0), low), np.where(resting, values.max(0), high)
    constant = high - low < SMALLEST_RANGE
    middle = (low + high) / 2
    low = np.where(constant, middle - SMALLEST_RANGE / 2, low)
    high = np.where(constant, middle + SMALLEST_RANGE / 2, high)
    return {"q01": low.astype(np.float32), "q99": high.astype(np.float32)}


def require_finite_frames(
    key: str, values: NDArray[np.float32], episodes: NDArray[np.int64], frames: NDArray[np.int64]
) -> None:
    """Refuse NaN and infinities in a dataset column, naming the first frame that holds one."""
    holes = np.argwhere(~np.isfinite(values))
    if len(holes):
        row, dimension = holes[0]
        raise ValueError(
            f"{key} must be finite; episode {episodes[row]}, frame {frames[row]}, dimension {dimension} holds"
            f" {values[row, dimension]} ({len(np.unique(holes[:, 0]))} such frames);"
            " repair these frames or leave the episode out of the dataset"
        )


def exact_quantiles_of(dataset_meta: Any) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Exact q01 and q99 of a dataset with LeRobot's metadata; nothing, and a warning, where its data is streamed."""
    root = Path(dataset_meta.root)
    if not _data_files(root):
        _warn_of_streaming(root)
        return {}
    return exact_statistics(root, tuple(key for key in NORMALISED_KEYS if key in dataset_meta.features))


def with_exact_quantiles(statistics: Mapping[str, Mapping[str, Any]], dataset_meta: Any) -> dict[str, dict[str, Any]]:
    """A copy of a dataset's statistics with exact q01 and q99 in place of its metadata's.

    Statistics that are not the metadata's own were chosen by the caller and stay.
    """
    found = {key: dict(values) for key, values in statistics.items()}
    for key, exact in exact_quantiles_of(dataset_meta).items():
        ours: dict[str, Any] = found.get(key, {})
        theirs: dict[str, Any] = (dataset_meta.stats or {}).get(key, {})
        if all(np.array_equal(ours.get(name, ()), theirs.get(name, ())) for name in exact):
            found[key] = {**ours, **exact}
    return found


def put_statistics(dataset_meta: Any, config: Any) -> None:
    """Give a dataset's metadata, in memory, the statistics that the policy normalises by; its old ones are not written
    to.
    """
    stats = dataset_meta.stats or {}
    if config.normalise_by == BASE:
        ours = {key: {**stats.get(key, {}), **ends} for key, ends in base_statistics(config).items()}
        dataset_meta.stats = {**stats, **ours}
    else:
        dataset_meta.stats = with_exact_quantiles(stats, dataset_meta)


def needed_statistics(
    modes: Mapping[str, NormalizationMode], stats: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The statistics that normalisation reads; refuses a fresh pipeline that would not normalise at all."""
    needed = {
        NormalizationMode.QUANTILES: ("q01", "q99"),
        NormalizationMode.QUANTILE10: ("q10", "q90"),
        NormalizationMode.MIN_MAX: ("min", "max"),
        NormalizationMode.MEAN_STD: ("mean", "std"),
    }
    chosen: dict[str, dict[str, Any]] = {}
    for key, kind in ((OBS_STATE, "STATE"), (ACTION, "ACTION")):
        names = needed.get(modes.get(kind, NormalizationMode.IDENTITY), ())
        missing = [name for name in names if name not in stats.get(key, {})]
        if missing:
            raise ValueError(
                f"dataset_stats must hold {', '.join(missing)} of {key}; got {sorted(stats.get(key, {}))};"
                " give a dataset's statistics or load saved processors"
            )
        if names:
            chosen[key] = {name: stats[key][name] for name in names}
    return chosen


def write_exact_statistics(root: Path) -> Path:
    """Write exact q01 and q99 into a dataset's `meta/stats.json`; the other statistics stay."""
    path = root / "meta" / "stats.json"
    stored = json.loads(path.read_text())
    for key, exact in exact_statistics(root, tuple(k for k in NORMALISED_KEYS if k in stored)).items():
        stored[key] |= {name: value.tolist() for name, value in exact.items()}
    path.write_text(json.dumps(stored, indent=4))
    return path


def _data_files(root: Path) -> list[Path]:
    return sorted((root / "data").glob("*/*.parquet"))


@cache
def _warn_of_streaming(root: Path) -> None:
    _logger.warning(
        "%s has no local data files (a streamed dataset): normalising by the metadata's q01 and q99, which are not"
        " those of all frames",
        root,
    )


def _column(files: list[Path], key: str) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """All rows of a vector column with their episode and frame numbers."""
    tables = [pq.read_table(file, columns=[key, "episode_index", "frame_index"]) for file in files]
    values = np.concatenate([_matrix(table[key]) for table in tables])
    episodes, frames = (
        np.concatenate([table[name].to_numpy() for table in tables]) for name in ("episode_index", "frame_index")
    )
    return values, episodes, frames


def _matrix(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Rows of a vector column; a vector of one dimension is stored as a plain number."""
    array = column.combine_chunks()
    flat = array.flatten() if pa.types.is_nested(array.type) else array
    values: NDArray[np.float32] = flat.to_numpy(zero_copy_only=False).astype(np.float32)
    return values.reshape(len(array), -1)
