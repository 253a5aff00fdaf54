"""A small drawing kit: panels with axes, as SVG text.

Panels are narrow enough for a phone and stand side by side where there is room, so a figure of twenty panels stays
readable at any width; their text is text and their colours follow the page (light, dark, print).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.drawing.marks import Array, mark, simplified, text
from lerobot_policy_quantile.drawing.palette import colour

WIDTH = 320
"""Of a panel, in its own units: about the pixels of a phone's column."""
NARROW = 280
"""Of a panel that stands with three others in a row."""
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 38
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


@dataclass(frozen=True)
class Axis:
    """One direction of a panel: its range, what it measures and in which unit."""

    low: float
    high: float
    label: str = ""
    ticks: tuple[tuple[float, str], ...] | None = None
    """Values and their texts; round numbers if left out."""
    log: bool = False
    count: int = 5
    """About how many ticks."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)) or self.low == self.high:
            raise ValueError(f"low and high must be finite and differ; got {self.low} and {self.high}")
        if self.log and min(self.low, self.high) <= 0:
            raise ValueError(f"low and high of a logarithmic axis must be positive; got {self.low} and {self.high}")

    def place(self, values: Any) -> Array:
        """0 at the low end, 1 at the high end; low may be the larger number."""
        values = np.asarray(values, dtype=float)
        if self.log:
            logs = np.log(np.maximum(values, 1e-300))
            return np.asarray((logs - math.log(self.low)) / (math.log(self.high) - math.log(self.low)))
        return np.asarray((values - self.low) / (self.high - self.low))

    def marks(self) -> tuple[tuple[float, str], ...]:
        """Where ticks are and what they say."""
        if self.ticks is not None:
            return self.ticks
        low, high = sorted((self.low, self.high))
        values = _decades(low, high) if self.log else round_numbers(low, high, self.count)
        return tuple((value, f"{value:g}".replace("-", "\N{MINUS SIGN}")) for value in values)


PERCENT = Axis(0, 100, "success (%)", ticks=tuple((v, str(v)) for v in (0, 25, 50, 75, 100)))
"""Success rates."""


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten inside the range, as many of them as come closest to `count`."""
    power = math.floor(math.log10((high - low) / count))
    steps = [m * 10.0**p for p in (power, power + 1) for m in (1, 2, 5)]
    found = [_multiples(low, high, step) for step in steps]
    return min(found, key=lambda ticks: abs(len(ticks) - count))


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [10.0**p for p in powers if low <= 10.0**p <= high]
    if len(inside) > 2:
        return inside
    finer = [float(f"{m * 10.0**p:.6g}") for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return finer if len(finer) > 2 else round_numbers(low, high, 4)


def data_range(*values: Any, margin: float = 0.05, least: float = 1e-3) -> tuple[float, float]:
    """Smallest and largest finite value of all arrays, with a margin; never narrower than `least`."""
    flat = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in values] or [np.zeros(0)])
    flat = flat[np.isfinite(flat)]
    low, high = (float(flat.min()), float(flat.max())) if len(flat) else (0.0, 1.0)
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    pad = margin * (high - low)
    return low - pad, high + pad


@dataclass
class Panel:
    """One small plot. Marks are drawn in the order they are added; the plot area clips them."""

    title: str
    x: Axis
    y: Axis
    alt: str
    """What a reader who does not see it should know."""
    height: int = 220
    subtitle: str = ""
    left: float = LEFT
    """Room for the y axis."""
    gutter: float = RIGHT
    """Room at the right of the plot area."""
    width: int = WIDTH
    colour: str = "ink"
    """Of the title."""
    _marks: list[str] = field(default_factory=list)
    _over: list[str] = field(default_factory=list)

    @property
    def top(self) -> float:
        """Where the plot area begins."""
        return TOP + (14 if self.subtitle else 0)

    @property
    def bottom(self) -> float:
        """Where the plot area ends."""
        return self.height - (BOTTOM if self.x.label else 24)

    @property
    def right(self) -> float:
        """Where the plot area ends."""
        return self.width - self.gutter

    def px(self, values: Any) -> Array:
        """Horizontal places of x values."""
        return np.asarray(self.left + self.x.place(values) * (self.right - self.left))

    def py(self, values: Any) -> Array:
        """Vertical places of y values."""
        return np.asarray(self.bottom + self.y.place(values) * (self.top - self.bottom))

    def line(
        self, x: Any, y: Any, colour_name: str, *, width: float = 1.6, dash: str = "", opacity: float = 1.0
    ) -> None:
        """A line through points."""
        points = simplified(np.stack([self.px(x), self.py(y)], axis=1))
        if len(points) < 2:
            return
        path = "M" + " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        self._marks.append(
            f'<path d="{path}" fill="none" stroke="{colour(colour_name)}" stroke-width="{width:g}"'
            f' stroke-linejoin="round"{_dash(dash)}{_opacity(opacity)}/>'
        )

    def band(self, x: Any, low: Any, high: Any, colour_name: str, *, opacity: float = 0.22) -> None:
        """The area between two lines."""
        right, left = (np.stack([self.px(x), self.py(edge)], axis=1) for edge in (high, low))
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in np.concatenate([right, left[::-1]]))
        self._marks.append(f'<polygon points="{path}" fill="{colour(colour_name)}"{_opacity(opacity)}/>')

    def points(self, x: Any, y: Any, colour_name: str, shape: str = "circle", *, size: float = 3.2) -> None:
        """One mark per point: circle, cross, diamond, star or ring."""
        for a, b in zip(np.ravel(self.px(x)), np.ravel(self.py(y)), strict=True):
            self._over.append(mark(float(a), float(b), colour_name, shape, size))

    def bars(self, edges: Any, heights: Any, base: float, colour_name: str, *, opacity: float = 0.85) -> None:
        """A histogram standing on `base`; bars of no height are left out."""
        places, foot = self.px(edges), float(self.py(base))
        for a, b, height in zip(places[:-1], places[1:], np.asarray(heights, dtype=float), strict=True):
            if height > 0:
                top = float(self.py(base + height))
                self._marks.append(
                    f'<rect x="{min(a, b):.1f}" y="{top:.1f}" width="{max(abs(b - a), 0.6):.1f}"'
                    f' height="{max(foot - top, 0.6):.1f}" fill="{colour(colour_name)}"{_opacity(opacity)}/>'
                )

    def rule(
        self, *, x: float | None = None, y: float | None = None, colour_name: str = "muted", dash: str = "3 3"
    ) -> None:
        """A straight line across the plot area."""
        (x1, x2), (y1, y2) = (self.left, self.right), (self.top, self.bottom)
        if x is not None:
            x1 = x2 = float(self.px(x))
        else:
            y1 = y2 = float(self.py(y))
        self._marks.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            f' stroke="{colour(colour_name)}" stroke-width="1.2"{_dash(dash)}/>'
        )

    def area(self, corners: Float[Array, "n 2"], colour_name: str, *, opacity: float = 0.18) -> None:
        """A filled outline, such as the footprint of a box."""
        places = zip(self.px(corners[:, 0]), self.py(corners[:, 1]), strict=True)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        shade = colour(colour_name)
        self._marks.append(
            f'<polygon points="{points}" fill="{shade}" fill-opacity="{opacity:g}" stroke="{shade}" stroke-width="1"/>'
        )

    def text(
        self, x: float, y: float, words: str, colour_name: str = "ink", *, anchor: str = "start", dx: float = 0,
        dy: float = 0, bold: bool = False,
    ) -> None:  # fmt: skip
        """A label at a point, moved by some pixels."""
        place = (float(self.px(x)) + dx, float(self.py(y)) + dy)
        self._over.append(text(*place, words, colour_name, "note", anchor=anchor, bold=bold, halo=True))

    def at(self, x: float, y: float, words: str, colour_name: str = "ink", *, anchor: str = "start") -> None:
        """A label at a place of the panel itself, outside the plot area too."""
        self._over.append(text(x, y, words, colour_name, "note", anchor=anchor, halo=True))

    def inner(self) -> str:
        """What is inside the `svg` element; an inner one clips the marks to the plot area."""
        x, y, width, height = self.left, self.top, self.right - self.left, self.bottom - self.top
        area = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" viewBox="{x:g} {y:g} {width:g} {height:g}"'
        return f"{self._frame()}<svg {area}>{''.join(self._marks)}</svg>{''.join(self._over)}"

    def svg(self) -> str:
        """The panel, as it stands in a page."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.alt)}"'
            f' style="{FONT}">{self.inner()}</svg>'
        )

    def _frame(self) -> str:
        parts = [text(0.5, 14, self.title, self.colour, "title", bold=True)]
        if self.subtitle:
            parts.append(text(0.5, 30, self.subtitle, "muted", "note"))
        for value, words in self.x.marks():
            place = float(self.px(value))
            parts.append(_stroke(place, self.top, place, self.bottom))
            parts.append(text(place, self.bottom + 13, words, "muted", "tick", anchor="middle"))
        for value, words in self.y.marks():
            place = float(self.py(value))
            parts.append(_stroke(self.left, place, self.right, place))
            parts.append(text(self.left - 5, place + 3.6, words, "muted", "tick", anchor="end"))
        if self.x.label:
            middle = (self.left + self.right) / 2
            parts.append(text(middle, self.height - 7, self.x.label, "muted", "label", anchor="middle"))
        if self.y.label:
            middle = (self.top + self.bottom) / 2
            parts.append(
                f'<g transform="translate(11 {middle:.0f}) rotate(-90)">'
                f"{text(0, 0, self.y.label, 'muted', 'label', anchor='middle')}</g>"
            )
        return "".join(parts)


def sheet(panels: Sequence[Panel], columns: int, legend: str = "", gap: int = 14) -> str:
    """All panels of a figure in one SVG file of its own, on white, with values for its colours left to the caller."""
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    cell = max(panel.width for panel in panels)
    width = columns * cell + (columns + 1) * gap
    parts, y = [], gap + (24 if legend else 0)
    for row in rows:
        for number, panel in enumerate(row):
            x = gap + number * (cell + gap)
            parts.append(f'<g transform="translate({x} {y})">{panel.inner()}</g>')
        y += max(panel.height for panel in row) + gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}"'
        f' style="{FONT}"><rect width="{width}" height="{y}" fill="var(--ground)"/>'
        f'<g transform="translate({gap} {gap})">{legend}</g>{"".join(parts)}</svg>\n'
    )


def _stroke(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--grid)"/>'


def _dash(pattern: str) -> str:
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _opacity(value: float) -> str:
    return "" if value == 1 else f' opacity="{value:g}"'
