"""Spread over episodes as an SVG figure, JSON and CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.calibration.scores import rounded
from lerobot_policy_quantile.calibration.spread import GRID, EpisodeSpread, averaged, motion_names, on_grid
from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.drawing.ranges import (
    DIMENSIONS,
    ROTATION_MAGNIFIED,
    Range,
    Timeline,
    dimension_panels,
    gripper_moves,
    range_panel,
)
from lerobot_policy_quantile.drawing.svg import Axis
from lerobot_policy_quantile.util.files import write_json, write_text
from lerobot_policy_quantile.util.tables import aligned, csv_text

FIGURE, NUMBERS, TABLE = "spread.svg", "spread.json", "spread.csv"
SHOWN = 20
"""Episodes in the printed table."""


def write_spread(episodes: Sequence[EpisodeSpread], folder: Path) -> None:
    """Write all three files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FIGURE, spread_figure(episodes).svg_file())
    write_json(folder / NUMBERS, spread_record(episodes))
    write_text(folder / TABLE, csv_text(spread_lines(episodes)))


# --- figure -----------------------------------------------------------------------------------


def spread_figure(episodes: Sequence[EpisodeSpread]) -> Figure:
    """One episode over its control steps; several on average over normalised time, with a band over episodes."""
    alone = len(episodes) == 1
    time, commands, mean = _single(episodes[0]) if alone else _average(episodes)
    names = motion_names(episodes[0].commands.below.shape[1])
    panels = []
    if mean is not None:
        title = "mean over six" if len(names) == 6 else f"mean over {len(names)}"
        panels.append(range_panel(title, mean[0], time, "normalised units", mean[1]))
    panels += dimension_panels(names, commands[0], time, commands[1])
    key = episodes[0].row.key
    who = f"{key.policy}, decoder {key.decoder}, {key.scene}"
    which = (
        f"task {key.task}, index {key.index}, seed {key.seed}: {episodes[0].row.status}"
        if alone
        else f"{len(episodes)} episodes on average, paler: 10 % of them begin lower or end higher"
    )
    rotations = f" Rotations are magnified {ROTATION_MAGNIFIED} times." if len(names) == len(DIMENSIONS) - 1 else ""
    return Figure(
        name="spread",
        title=f"Predicted spread, {who}",
        caption=f"Q(0) to Q(1) around the median for the first step of each prediction; {who}, {which}.{rotations} The"
        " mean is of marginal ranges, not the range of a mean.",
        panels=panels,
        columns=4,
    )


Pair = tuple[Range, Range | None]


def _single(episode: EpisodeSpread) -> tuple[Timeline, Pair, Pair | None]:
    moves = [] if episode.gripper is None else gripper_moves(episode.gripper)
    axis = Axis(0, max(float(episode.row.steps), 1.0) * 1.02, "control step")
    time = Timeline(episode.steps, axis, moves=moves)
    return time, (episode.commands, None), None if episode.mean is None else (episode.mean, None)


def _average(episodes: Sequence[EpisodeSpread]) -> tuple[Timeline, Pair, Pair | None]:
    time = Timeline(np.linspace(0, 1, GRID), Axis(0, 1, "normalised episode time"), word="time")
    commands = averaged([on_grid(episode, episode.commands) for episode in episodes])
    means = [on_grid(episode, episode.mean) for episode in episodes if episode.mean is not None]
    return time, commands, averaged(means) if means else None


# --- numbers ----------------------------------------------------------------------------------


def spread_record(episodes: Sequence[EpisodeSpread]) -> dict[str, Any]:
    """Everything in the figure, in JSON form."""
    names = motion_names(episodes[0].commands.below.shape[1])
    key = episodes[0].row.key
    record: dict[str, Any] = {
        "format": 1,
        "scene": key.scene,
        "policy": key.policy,
        "decoder": key.decoder,
        "dimensions": names,
        "units": {"dimensions": "commands", "mean": "normalised"},
        "episodes": [
            {
                "key": episode.row.key.text,
                "status": episode.row.status,
                "steps": episode.row.steps,
                "query_steps": [int(step) for step in episode.steps],
                "mean": None if episode.mean is None else _ends(episode.mean),
                "by_dimension": {name: _ends(episode.commands.of(d)) for d, name in enumerate(names)},
            }
            for episode in episodes
        ],
    }
    if len(episodes) > 1:
        _, commands, mean = _average(episodes)
        record["average"] = {
            "time": rounded(np.linspace(0, 1, GRID)),
            "mean": None if mean is None else _both(mean),
            "by_dimension": {
                name: _both((commands[0].of(d), commands[1] and commands[1].of(d))) for d, name in enumerate(names)
            },
        }
    return record


def _ends(found: Range) -> dict[str, Any]:
    return {"below": rounded(found.below), "above": rounded(found.above), "width": rounded(found.width)}


def _both(pair: Pair) -> dict[str, Any]:
    inner, outer = pair
    assert outer is not None
    return {**_ends(inner), "band_below": rounded(outer.below), "band_above": rounded(outer.above)}


def spread_lines(episodes: Sequence[EpisodeSpread]) -> list[list[str]]:
    """One line per prediction, under a header."""
    names = motion_names(episodes[0].commands.below.shape[1])
    ends = [f"{name.replace(' ', '_')}_{end}" for name in names for end in ("below", "above")]
    lines = [["task", "index", "seed", "status", "step", "time", "mean_below", "mean_above", "mean_width", *ends]]
    for episode in episodes:
        key = episode.row.key
        head = [str(key.task), str(key.index), str(key.seed), episode.row.status]
        for number, (step, time) in enumerate(zip(episode.steps, episode.time, strict=True)):
            mean = episode.mean
            cells = [mean.below[number], mean.above[number], mean.width[number]] if mean is not None else [None] * 3
            cells += [end[number, d] for d in range(len(names)) for end in _pair(episode.commands)]
            numbers = ["" if cell is None else f"{cell:.6g}" for cell in cells]
            lines.append([*head, str(int(step)), f"{time:.4f}", *numbers])
    return lines


def _pair(found: Range) -> tuple[Any, Any]:
    return found.below, found.above


def spread_table(episodes: Sequence[EpisodeSpread]) -> str:
    """Width of each episode in numbers, for a terminal."""
    normalised = episodes[0].mean is not None
    unit = "normalised" if normalised else "command"
    lines = [["task", "index", "seed", "outcome", "steps", "replans", f"mean width, {unit}", "widest", "at step"]]
    for episode in episodes[:SHOWN]:
        width = episode.mean.width if episode.mean is not None else episode.commands.mean().width
        key, widest = episode.row.key, int(width.argmax())
        cells = [str(key.task), str(key.index), str(key.seed), episode.row.status, str(episode.row.steps)]
        cells += [str(len(width)), f"{width.mean():.4g}", f"{width.max():.4g}", str(int(episode.steps[widest]))]
        lines.append(cells)
    more = f"... and {len(episodes) - SHOWN} more\n" if len(episodes) > SHOWN else ""
    return aligned(lines, left=4) + more
