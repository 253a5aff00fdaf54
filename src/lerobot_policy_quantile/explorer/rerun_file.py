"""An episode as a Rerun recording, with a blueprint that arranges its views."""

import io
from pathlib import Path

import numpy as np
import rerun as rr
import rerun.blueprint as rrb
from jaxtyping import Float, Int
from PIL import Image

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.explorer.episode_reading import (
    EpisodeRecord,
    dimension_names,
    executed_law,
    motion_of,
    read_episode,
)
from lerobot_policy_quantile.explorer.frames import JPEG_QUALITY, Frames, read_frames
from lerobot_policy_quantile.explorer.run_reading import ExploredRun
from lerobot_policy_quantile.serving.spread import spread
from lerobot_policy_quantile.util.quantiles import Array, quantile_at, rank_of

APPLICATION = "qhead"
STEP = "step"
"""Name of the timeline: control steps."""
FAN = {"0.025": 0.025, "0.1": 0.1, "0.25": 0.25, "median": 0.5, "0.75": 0.75, "0.9": 0.9, "0.975": 0.975}
"""Ends of the central 95, 80 and 50 %, and the median."""
_CAMERAS = ("external", "wrist")


def write_recording(run: ExploredRun, row: Row, out: Path) -> list[str]:
    """Write an episode; what is missing of it is returned in words. ValueError without any actions."""
    record = read_episode(run, row)
    if record.actions is None:
        raise ValueError(f"episode {row.key.text} must have actions; {'; '.join(record.problems)}")
    frames, missing = read_frames(run, row, record.query_steps)
    with rr.RecordingStream(APPLICATION, recording_id=row.key.digest) as recording:
        recording.save(out, default_blueprint=_blueprint(record))
        recording.log("episode", rr.TextDocument(f"{row.key.text}: {row.status}"), static=True)
        _log_actions(recording, record, motion_of(record, run))
        _log_path(recording, record)
        if frames is not None:
            _log_frames(recording, frames)
    return record.problems + missing


def _log_series(
    recording: rr.RecordingStream, entity: str, steps: Int[Array, " n"], values: Float[Array, " n"]
) -> None:
    kept = np.isfinite(values)
    time = rr.TimeColumn(STEP, sequence=steps[kept])
    recording.send_columns(entity, indexes=[time], columns=rr.Scalars.columns(scalars=values[kept].astype(float)))


def _log_actions(recording: rr.RecordingStream, record: EpisodeRecord, motion: list[int]) -> None:
    assert record.actions is not None
    steps, law, names = np.arange(len(record.actions)), executed_law(record), _entities(record)
    for d, name in enumerate(names):
        _log_series(recording, f"actions/{name}/executed", steps, record.actions[:, d])
        if law is not None and record.levels is not None:
            for label, rank in FAN.items():
                _log_series(recording, f"actions/{name}/{label}", steps, quantile_at(law[:, d], record.levels, rank))
            if d in motion:
                _log_series(recording, f"ranks/{name}", steps, rank_of(law[:, d], record.levels, record.actions[:, d]))
    if law is not None and record.levels is not None:
        widths = spread(law, list(record.levels))[:, motion]
        _log_series(recording, "spread", steps, widths.mean(axis=1))
    for name, values in record.per_query.items():
        if record.query_steps is not None:
            _log_series(recording, name, record.query_steps, values)
    if record.contacts is not None:
        _log_series(recording, "contacts", steps, record.contacts)


def _log_path(recording: rr.RecordingStream, record: EpisodeRecord) -> None:
    if record.states is None or record.states.shape[1] < 3:
        return
    path = record.states[:, :3]
    recording.log("hand/path", rr.LineStrips3D([path]), static=True)
    if record.query_steps is not None:
        recording.log("hand/replans", rr.Points3D(path[record.query_steps], radii=0.003), static=True)
    time = rr.TimeColumn(STEP, sequence=np.arange(len(path)))
    recording.send_columns("hand/now", indexes=[time], columns=rr.Points3D.columns(positions=path))


def _log_frames(recording: rr.RecordingStream, frames: Frames) -> None:
    for step, picture in zip(frames.steps, frames.pictures, strict=True):
        recording.set_time(STEP, sequence=step)
        for name, view in zip(_names(frames.cameras), np.array_split(picture, frames.cameras, axis=1), strict=True):
            buffer = io.BytesIO()
            Image.fromarray(view).save(buffer, "jpeg", quality=JPEG_QUALITY)
            recording.log(f"cameras/{name}", rr.EncodedImage(contents=buffer.getvalue(), media_type="image/jpeg"))


def _entities(record: EpisodeRecord) -> list[str]:
    """Names of the dimensions as parts of a path."""
    return [name.replace(" ", "_") for name in dimension_names(record)]


def _names(cameras: int) -> list[str]:
    return list(_CAMERAS[:cameras]) if cameras <= len(_CAMERAS) else [f"camera {n}" for n in range(cameras)]


def _blueprint(record: EpisodeRecord) -> rrb.Blueprint:
    """Cameras and path at the left, one series per dimension at the right, ranks, spread and the rest below."""
    views = [rrb.TimeSeriesView(origin=f"/actions/{name}", name=name) for name in _entities(record)]
    rest = ["ranks", "spread", *record.per_query, "contacts"]
    below = [rrb.TimeSeriesView(origin=f"/{name}", name=name) for name in rest]
    cameras = rrb.Horizontal(*(rrb.Spatial2DView(origin=f"/cameras/{name}", name=name) for name in _CAMERAS))
    path = rrb.Spatial3DView(origin="/hand", name="path of the hand")
    right = rrb.Vertical(rrb.Grid(*views), rrb.Horizontal(*below), row_shares=[3, 1])
    return rrb.Blueprint(rrb.Horizontal(rrb.Vertical(cameras, path), right, column_shares=[2, 3]))
