"""The figure of a plan: success of every variant with its 95 % interval, the paper's number or range beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import BOTTOM, PERCENT, TOP, WIDTH, Axis, Panel

CAPTION = "Dots: our success rate with its 95 % interval. Upright bars: the paper's number, two where it gives a range."
LEGEND = (LegendEntry("circle", "quantile", "ours, 95 % interval"), LegendEntry("tick", "ink", "paper"))
LONGEST_NAME = 48


@dataclass(frozen=True)
class Bar:
    """One variant, in per cent."""

    name: str
    ours: tuple[float, float, float] | None
    """Rate, low and high end; None where nothing was judged."""
    episodes: int
    paper: tuple[float, float] | None
    """Low and high end of what the paper says; the same number twice where it says one."""


def plan_figure(name: str, title: str, bars: Sequence[Bar]) -> Figure:
    """One panel, a row per variant, the paper's numbers beside ours."""
    return Figure(name, title, CAPTION, [rates_panel(title, bars)], columns=1, legend=[*LEGEND])


def rates_panel(title: str, bars: Sequence[Bar]) -> Panel:
    """A row per variant."""
    left = 24 + int(6.2 * min(LONGEST_NAME, max(len(bar.name) for bar in bars)))
    panel = Panel(
        title,
        PERCENT,
        Axis(len(bars), 0, ticks=()),
        alt="; ".join(map(_spoken, bars)),
        height=int(TOP + BOTTOM + 22 * len(bars)),
        left=left,
        gutter=46,
        width=WIDTH + left,
    )
    for row, bar in enumerate(bars):
        y = row + 0.5
        place = float(panel.py(y))
        panel.at(left - 10, place + 3.5, bar.name[:LONGEST_NAME], "ink", anchor="end")
        if bar.ours is not None:
            rate, low, high = bar.ours
            panel.line([low, high], [y, y], "quantile", width=2.2)
            panel.points([rate], [y], "quantile", size=4.6)
            panel.at(panel.right + 8, place + 3.5, str(bar.episodes))
        if bar.paper is not None:
            ends = sorted(set(bar.paper))
            panel.points(ends, [y] * len(ends), "ink", "tick")
    return panel


def _spoken(bar: Bar) -> str:
    ours = "no episode yet" if bar.ours is None else f"{bar.ours[0]:.1f} % of {bar.episodes} episodes"
    paper = "" if bar.paper is None else f", paper {' to '.join(f'{end:g}' for end in sorted(set(bar.paper)))} %"
    return f"{bar.name}: {ours}{paper}"
