"""The figure of success rates: a row per decoder with its 95 % interval, the paper's number, single training seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import BOTTOM, PERCENT, TOP, WIDTH, Axis, Panel
from lerobot_policy_quantile.studies.two_demo.report.names import decoder_name
from lerobot_policy_quantile.studies.two_demo.result import Result, is_deterministic

CAPTION = (
    "Dots: our success rate, with its 95 % interval over training seeds and episodes, and the counts at the right."
    " Upright bars: the paper's number where it has one. Deterministic decoders have no interval: their repeats are not"
    " independent of each other."
)
LEGEND = (
    LegendEntry("circle", "quantile", "this study, 95 % interval (colour: head)"),
    LegendEntry("tick", "ink", "paper"),
)
SINGLE_SEEDS = LegendEntry("ring", "quantile", "one training seed")


@dataclass(frozen=True)
class Rates:
    """Results of one arm, for one panel."""

    title: str
    results: Sequence[Result]


def rates_figure(name: str, title: str, arms: Sequence[Rates]) -> Figure:
    """Success per decoder with its 95 % interval, the paper's number beside it."""
    seeds = any(len(result.by_seed) > 1 for arm in arms for result in arm.results)
    return Figure(
        name=f"success-{name}",
        title=title,
        caption=CAPTION + (" Rings: training seeds by themselves." if seeds else ""),
        panels=[_panel(arm) for arm in arms],
        columns=2,
        legend=[*LEGEND, SINGLE_SEEDS] if seeds else [*LEGEND],
    )


def _panel(arm: Rates) -> Panel:
    count = len(arm.results)
    panel = Panel(
        arm.title,
        PERCENT,
        Axis(count, 0, ticks=()),
        alt="; ".join(_spoken(result) for result in arm.results),
        height=int(TOP + BOTTOM + 25 * count),
        left=146,
        gutter=46,
        width=WIDTH + 50,
    )
    for row, result in enumerate(arm.results):
        _row(panel, row + 0.5, result)
    return panel


def _row(panel: Panel, y: float, result: Result) -> None:
    place = float(panel.py(y))
    panel.at(panel.left - 10, place + 3.5, decoder_name(result.head, result.decoder), result.head, anchor="end")
    if not result.episodes:
        panel.at(panel.left + 6, place + 3.5, "no episode yet", "muted")
        return
    if not is_deterministic(result.head, result.decoder):
        panel.line(list(result.interval), [y, y], result.head, width=2.2)
        if len(result.by_seed) > 1:
            panel.points(result.seed_rates, [y] * len(result.by_seed), result.head, "ring", size=3)
    panel.points([result.rate], [y], result.head, size=4.6)
    panel.at(panel.right + 8, place + 3.5, f"{result.success}/{result.episodes}")
    if result.paper is not None:
        panel.points([result.paper], [y], "ink", "tick")


def _spoken(result: Result) -> str:
    name = decoder_name(result.head, result.decoder)
    paper = "" if result.paper is None else f", paper {result.paper:g} %"
    if not result.episodes:
        return f"{name}: no episode yet{paper}"
    return f"{name}: {result.success} of {result.episodes} succeed, {result.rate:.0f} %{paper}"
