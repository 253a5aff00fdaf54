"""Panels of a predicted range around its median over an episode: the mean over motion, then each dimension."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.drawing.marks import Array
from lerobot_policy_quantile.drawing.svg import NARROW, Axis, Panel, data_range

DIMENSIONS = ("dx", "dy", "dz", "rotation x", "rotation y", "rotation z", "gripper")
"""Of an arm that is commanded in end-effector steps, as LIBERO's is."""
ROTATIONS = (3, 4, 5)
ROTATION_MAGNIFIED = 5
"""The paper's figure draws rotations so many times larger."""


@dataclass(frozen=True)
class Range:
    """Ends of a range, relative to the median: `below` is negative, `above` positive."""

    below: Float[Array, "q *d"]
    above: Float[Array, "q *d"]

    def scaled(self, scale: Float[Array, " d"]) -> "Range":
        """In units of which one of these is so many."""
        return Range(self.below * scale, self.above * scale)

    def mean(self) -> "Range":
        """Over the dimensions."""
        return Range(self.below.mean(axis=-1), self.above.mean(axis=-1))

    def of(self, d: int) -> "Range":
        """One dimension."""
        return Range(self.below[:, d], self.above[:, d])

    @property
    def width(self) -> Float[Array, "q *d"]:
        """From end to end."""
        return np.asarray(self.above - self.below)

    def joined(self, other: "Range") -> "Range":
        """Both along time."""
        return Range(np.concatenate([self.below, other.below]), np.concatenate([self.above, other.above]))


@dataclass(frozen=True)
class Timeline:
    """What a panel's x axis is."""

    places: Float[Array, " q"]
    axis: Axis
    word: str = "step"
    moves: Sequence[tuple[float, str]] = ()
    """Where the gripper closes and opens."""


def dimension_panels(
    names: Sequence[str], inner: Range, time: Timeline, outer: Range | None = None, colour: str = "quantile"
) -> list[Panel]:
    """One panel per motion dimension on one scale; where all six of an arm are there, rotations are magnified."""
    turns = ROTATIONS if len(names) == len(DIMENSIONS) - 1 else ()
    magnified = np.array([ROTATION_MAGNIFIED if d in turns else 1 for d in range(len(names))])
    whole = inner if outer is None else inner.joined(outer)
    reach = np.abs(np.stack([whole.below, whole.above])).max(axis=(0, 1))
    widest = 1.05 * float((reach * magnified).max()) or 1.0
    panels = []
    for d, name in enumerate(names):
        times = int(magnified[d])
        title = f"{name} (x{times})" if times > 1 else name
        own = None if outer is None else outer.of(d)
        panels.append(range_panel(title, inner.of(d), time, "command", own, widest / times, colour))
    return panels


def range_panel(
    title: str,
    inner: Range,
    time: Timeline,
    unit: str,
    outer: Range | None = None,
    limit: float | None = None,
    colour: str = "quantile",
) -> Panel:
    """A range over time; `outer` is a paler one behind it."""
    shown = inner if outer is None else outer
    y = (-limit, limit) if limit else data_range(shown.below, shown.above, margin=0.08, least=0.02)
    width, steps = inner.width, time.places
    panel = Panel(
        title,
        time.axis,
        Axis(*y, unit),
        alt=f"{title}: range {width.min():.3g} to {width.max():.3g} ({unit}) over {len(steps)} predictions",
        subtitle=f"widest {width.max():.2g} at {time.word} {float(steps[width.argmax()]):g}",
        height=200,
        width=NARROW,
    )
    if outer is not None:
        panel.band(steps, outer.below, outer.above, colour, opacity=0.13)
    panel.band(steps, inner.below, inner.above, colour, opacity=0.3)
    panel.line(steps, inner.below, colour, width=1.2)
    panel.line(steps, inner.above, colour, width=1.2)
    panel.rule(y=0.0, colour_name="ink", dash="")
    for place, word in time.moves:
        panel.rule(x=float(place), colour_name="muted", dash="1 3")
        panel.text(float(place), y[1], word, "muted", dx=3, dy=10)
    return panel


def gripper_moves(commands: Float[Array, " t"]) -> list[tuple[int, str]]:
    """The first steps at which the gripper is told to close, and to open again."""
    closing = np.asarray(commands) > 0
    turns = np.flatnonzero(np.diff(closing.astype(int))) + 1
    return [(int(step), "closes" if closing[step] else "opens") for step in turns[:2]]
