"""What the page gets: the index of all episodes as JSON, and one episode as a header with arrays behind it."""

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.explorer.condensing import condensed
from lerobot_policy_quantile.explorer.episode_reading import (
    dimension_names,
    first_alarm,
    known_scale,
    mean_spread,
    read_episode,
)
from lerobot_policy_quantile.explorer.frames import frame_sheet, read_frames
from lerobot_policy_quantile.explorer.run_reading import ExploredRun
from lerobot_policy_quantile.util.quantiles import Array

COLUMNS = (
    "run", "id", "scene", "task", "index", "seed", "policy", "decoder", "status", "steps", "seconds", "contacts",
    "noise",
)  # fmt: skip
"""Of the index, in this order."""
_ALIGNED = 8
_TYPES = {"float32": "f4", "int32": "i4", "uint8": "u1"}


def index_of(runs: Sequence[ExploredRun]) -> dict[str, Any]:
    """Every episode of every run, without looking at side files."""
    return {
        "columns": COLUMNS,
        "rows": [_line(number, row) for number, run in enumerate(runs) for row in run.rows],
        "runs": [
            {
                "name": run.name,
                "problems": list(run.problems[:100]),
                "more_problems": max(0, len(run.problems) - 100),
                "units": {policy: asdict(units) for policy, units in run.units.items()},
            }
            for run in runs
        ],
    }


def _line(number: int, row: Row) -> list[Any]:
    key = row.key
    # torch's generator reads the lower half of a seed on the CPU.
    noise = key.noise_seed & 0xFFFFFFFF
    return [
        number, key.digest, key.scene, key.task, key.index, key.seed, key.policy, key.decoder, row.status, row.steps,
        row.simulated_seconds, row.contacts, noise,
    ]  # fmt: skip


def summary_of(run: ExploredRun, row: Row) -> dict[str, Any]:
    """What the table shows of a side file."""
    record = read_episode(run, row)
    return {"id": row.key.digest, "spread": mean_spread(record, run), "alarm": first_alarm(record)}


def packed_episode(run: ExploredRun, row: Row, *, small: bool = False) -> bytes:
    """Header length, header as JSON, arrays as the header places them; all little-endian, in multiples of eight.

    `small` is for a page in one file: WebP for JPEG, condensed quantiles (`condensing.py`).
    """
    record = read_episode(run, row)
    frames, missing = read_frames(run, row, record.query_steps)
    problems = record.problems + missing
    arrays = {
        "actions": record.actions,
        "states": record.states,
        "contacts": record.contacts,
        "query_steps": record.query_steps,
        **(condensed(record, known_scale(record, run)) if small else {"quantiles": record.quantiles}),
        **record.per_query,
    }
    header: dict[str, Any] = {"key": row.key.text, "problems": problems, "names": dimension_names(record)}
    if record.quantiles is not None and record.levels is not None:
        header |= {"levels": record.levels.tolist(), "law_shape": record.quantiles.shape}
    if frames is not None:
        sheet = frame_sheet(frames, "webp" if small else "jpeg")
        arrays["sheet"] = np.frombuffer(sheet.content, np.uint8)
        header["frames"] = {name: value for name, value in vars(sheet).items() if name != "content"}
    return packed(header, {name: array for name, array in arrays.items() if array is not None})


def packed(header: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """A header and arrays of float32, int32 or uint8 in one piece."""
    places, pieces, offset = {}, [], 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array, dtype=f"<{_TYPES[array.dtype.name]}").tobytes()
        places[name] = {"type": array.dtype.name, "shape": array.shape, "offset": offset}
        pieces.append(_filled(content))
        offset += len(pieces[-1])
    text = _filled(json.dumps({**header, "arrays": places}, allow_nan=False).encode(), b" ", 4)
    return struct.pack("<I", len(text)) + text + b"".join(pieces)


def _filled(content: bytes, by: bytes = b"\0", before: int = 0) -> bytes:
    return content + by * (-(len(content) + before) % _ALIGNED)
