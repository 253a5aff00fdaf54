"""The smallest parts of a figure as SVG text: marks, words, and lines with no more points than the eye needs."""

import math
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.drawing.palette import colour

Array = np.ndarray[Any, Any]

SIZES = {"title": 13, "label": 11.5, "tick": 10.5, "note": 10.5}


def mark(x: float, y: float, colour_name: str, shape: str, size: float = 3.2) -> str:
    """One mark with its middle at a place."""
    if shape not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}; got {shape!r}")
    return SHAPES[shape](x, y, colour(colour_name), size)


def _circle(x: float, y: float, shade: str, r: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" fill="{shade}" fill-opacity="0.75"/>'


def _ring(x: float, y: float, shade: str, r: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" fill="var(--ground)" stroke="{shade}" stroke-width="1.6"/>'


def _cross(x: float, y: float, shade: str, r: float) -> str:
    d = f"M{x - r:.1f},{y - r:.1f}l{2 * r:g},{2 * r:g}m0,{-2 * r:g}l{-2 * r:g},{2 * r:g}"
    return f'<path d="{d}" fill="none" stroke="{shade}" stroke-width="1.5" stroke-opacity="0.85"/>'


def _diamond(x: float, y: float, shade: str, size: float, fill: str = "") -> str:
    r = 1.35 * size
    d = f"M{x:.1f},{y - r:.1f}l{r:.1f},{r:.1f}l{-r:.1f},{r:.1f}l{-r:.1f},{-r:.1f}z"
    return f'<path d="{d}" fill="{fill or shade}" stroke="{shade}" stroke-width="1.4"/>'


def _open_diamond(x: float, y: float, shade: str, size: float) -> str:
    return _diamond(x, y, shade, size, "var(--ground)")


def _star(x: float, y: float, shade: str, size: float) -> str:
    turns = [math.pi * (i / 5 - 0.5) for i in range(10)]
    radii = [1.8 * size if i % 2 == 0 else 0.75 * size for i in range(10)]
    corners = [(x + r * math.cos(turn), y + r * math.sin(turn)) for turn, r in zip(turns, radii, strict=True)]
    return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" fill="{shade}"/>'


def _tick(x: float, y: float, shade: str, size: float) -> str:
    return f'<path d="M{x:.1f},{y - 2 * size:.1f}v{4 * size:g}" stroke="{shade}" stroke-width="2.4"/>'


def _line(x: float, y: float, shade: str, size: float, dashes: str = "") -> str:
    return f'<path d="M{x - 2 * size:.1f},{y:.1f}h{4 * size:g}" stroke="{shade}" stroke-width="1.9"{dashes}/>'


def _dashes(x: float, y: float, shade: str, size: float) -> str:
    return _line(x, y, shade, size, ' stroke-dasharray="4 3"')


SHAPES: dict[str, Callable[[float, float, str, float], str]] = {
    "circle": _circle,
    "ring": _ring,
    "cross": _cross,
    "diamond": _diamond,
    "open diamond": _open_diamond,
    "star": _star,
    "tick": _tick,
    "line": _line,
    "dashes": _dashes,
}


def text(
    x: float,
    y: float,
    words: str,
    colour_name: str,
    size: str,
    *,
    anchor: str = "start",
    bold: bool = False,
    halo: bool = False,
) -> str:
    """Words at a place; with a halo they can be read on top of marks."""
    weight = ' font-weight="600"' if bold else ""
    around = ' paint-order="stroke" stroke="var(--ground)" stroke-width="3"' if halo else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{SIZES[size]:g}" fill="{colour(colour_name)}"'
        f"{side}{weight}{around}>{escape(words)}</text>"
    )


def simplified(points: Float[Array, "n 2"], tolerance: float = 0.35) -> Float[Array, "m 2"]:
    """The same line with fewer points, nowhere further than `tolerance` pixels away (Douglas and Peucker)."""
    points = np.asarray(points[np.isfinite(points).all(axis=1)])
    if len(points) < 3:
        return points
    keep = np.zeros(len(points), dtype=bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        inside, way = points[first + 1 : last] - points[first], points[last] - points[first]
        along = np.clip(inside @ way / max(float(way @ way), 1e-12), 0, 1)
        away = np.linalg.norm(inside - along[:, None] * way, axis=1)
        worst = int(away.argmax())
        if away[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            spans += [(first, middle), (middle, last)]
    return np.asarray(points[keep])
