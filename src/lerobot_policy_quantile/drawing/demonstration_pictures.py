"""Pictures of demonstrations: the paths from above and the frames at their start and widest point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

COLOURS = {"left": "#0072B2", "right": "#D55E00", "straight": "#777777"}


@dataclass(frozen=True)
class Path3:
    """One path of the end effector (metres) and when its gripper first closed."""

    name: str
    positions: np.ndarray[Any, Any]  # (n, 3)
    grasp_step: int

    @property
    def lateral(self) -> np.ndarray[Any, Any]:
        """Signed distance from the line start -> grasp, seen from above, until the grasp (left is positive)."""
        approach = self.positions[: self.grasp_step + 1, :2]
        ahead = approach[-1] - approach[0]
        ahead = ahead / np.linalg.norm(ahead)
        away = approach - approach[0]
        lateral: np.ndarray[Any, Any] = ahead[0] * away[:, 1] - ahead[1] * away[:, 0]
        return lateral

    @property
    def widest_step(self) -> int:
        """Where the approach is furthest from the straight line."""
        return int(np.abs(self.lateral).argmax())

    @property
    def detour(self) -> float:
        """The lateral distance there."""
        return float(self.lateral[self.widest_step])


def draw_paths(paths: Sequence[Path3], file: Path, *, title: str, obstacle: Sequence[float] | None = None) -> None:
    """Paths from above, with start, grasp and widest point; the obstacle's centre as a square."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot()
    for path in paths:
        colour = COLOURS.get(path.name, "black")
        label = f"{path.name}: {len(path.positions)} steps, detour {100 * path.detour:+.1f} cm"
        axes.plot(path.positions[:, 1], path.positions[:, 0], color=colour, label=label)
        for step, marker in ((path.grasp_step, "v"), (path.widest_step, "o")):
            axes.plot(path.positions[step, 1], path.positions[step, 0], marker, color=colour)
    start = paths[0].positions[0]
    axes.plot(start[1], start[0], "k*", markersize=12, label="start")
    if obstacle is not None:
        axes.plot(obstacle[1], obstacle[0], "rs", markersize=14, fillstyle="none", label="obstacle")
    axes.set(xlabel="y (m)", ylabel="x (m)", title=title, aspect="equal")
    axes.invert_xaxis()
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)


def draw_frames(rows: Mapping[str, Sequence[np.ndarray[Any, Any]]], columns: Sequence[str], file: Path) -> None:
    """A grid of pictures: one row per demonstration, one column per moment and camera."""
    figure = Figure(figsize=(2.2 * len(columns), 2.4 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, (name, pictures) in zip(grid, rows.items(), strict=True):
        for axes, column, picture in zip(line, columns, pictures, strict=True):
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
            axes.set_title(f"{name}, {column}", fontsize="small")
    figure.savefig(file, dpi=120)
