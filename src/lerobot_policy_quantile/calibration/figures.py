"""Figures of a calibration record: reliability diagrams, PIT histograms, scores along the chunk."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lerobot_policy_quantile.calibration.tables import WIDTH_MASS, law_name
from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.marks import Array
from lerobot_policy_quantile.drawing.svg import NARROW, Axis, Panel, data_range

Law = Mapping[str, Any]
Record = Mapping[str, Any]

TENTHS = tuple((value, f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1))
LINE = 13
"""Pixels between names below each other."""
DASHES = {"constant": "2 3", "gaussian": "6 3", "persistence": "9 3 2 3"}
BAND = LegendEntry("line", "quantile", "measured; band: 95 % interval over episodes")
IDEAL = LegendEntry("dashes", "ink", "calibrated")


def distributions(record: Record) -> list[Law]:
    """Laws that are more than a point, baselines left out."""
    return [law for law in record["laws"] if "coverage" in law and not law["baseline"]]


def fullest(record: Record) -> list[Law]:
    """Of each policy the law from the most samples."""
    found = {law["policy"]: law for law in sorted(distributions(record), key=lambda law: law["samples"] or 0)}
    return [law for law in distributions(record) if found[law["policy"]] is law]


def levels_of(law: Law, record: Record) -> list[float]:
    """The levels of a law's quantiles."""
    levels: list[float] = next(policy["levels"] for policy in record["policies"] if policy["name"] == law["policy"])
    return levels


def reliability_figure(record: Record) -> Figure | None:
    """One panel per law, all dimensions and chunk steps together."""
    laws = distributions(record)
    if not laws:
        return None
    return Figure(
        "reliability",
        "Reliability",
        "Share of actions at or below each predicted quantile, over its level. On the diagonal the law is calibrated;"
        " steeper than it in the middle, the law is too wide, flatter, too narrow; above it throughout, actions lie"
        " lower than predicted.",
        [_reliability(law_name(law, record), law, law["coverage"], levels_of(law, record)) for law in laws],
        legend=[BAND, IDEAL],
    )


def dimension_reliability(law: Law, record: Record) -> Figure:
    """One panel per action dimension."""
    parts = _parts(law["coverage"]["by_dimension"], len(record["dimensions"]))
    return Figure(
        f"reliability-{law['policy']}",
        f"Reliability per dimension: {law_name(law, record)}",
        "As above, one action dimension per panel.",
        [
            _reliability(name, law, part, levels_of(law, record))
            for name, part in zip(record["dimensions"], parts, strict=True)
        ],
        legend=[BAND, IDEAL],
    )


def _reliability(title: str, law: Law, shares: Mapping[str, Any], levels: Sequence[float]) -> Panel:
    worst = int(np.argmax(np.abs(np.asarray(shares["value"]) - levels)))
    panel = Panel(
        shortened(title),
        Axis(0, 1, "level", ticks=TENTHS),
        Axis(0, 1, "share at or below", ticks=TENTHS),
        alt=f"{title}: furthest from the diagonal at level {levels[worst]:g}, where {shares['value'][worst]:.2f} of the"
        " actions are at or below the quantile",
        subtitle=f"furthest at level {levels[worst]:.3g}: {shares['value'][worst]:.3f}",
        height=270,
        width=NARROW,
    )
    if shares["low"] is not None:
        panel.band(levels, shares["low"], shares["high"], law["head"])
    panel.line([0, 1], [0, 1], "ink", dash="4 3", width=1.1)
    panel.line(levels, shares["value"], law["head"], width=2)
    panel.points(levels, shares["value"], law["head"], size=2)
    return panel


def pit_figure(record: Record) -> Figure | None:
    """One histogram per law."""
    laws = distributions(record)
    if not laws:
        return None
    return Figure(
        "pit",
        "PIT histograms",
        "Rank of each action in its predicted law, as a density: 1 everywhere if calibrated. A hump in the middle: the"
        " law is too wide. High ends: too narrow, actions fall outside it. A slope: its middle is off to one side."
        " Thin lines: 95 % interval over episodes.",
        [_histogram(law_name(law, record), law, law["pit"]) for law in laws],
        legend=[IDEAL],
    )


def dimension_pit(law: Law, record: Record) -> Figure:
    """One histogram per action dimension."""
    parts = _parts(law["pit"]["by_dimension"], len(record["dimensions"]))
    return Figure(
        f"pit-{law['policy']}",
        f"PIT per dimension: {law_name(law, record)}",
        "As above, one action dimension per panel.",
        [_histogram(name, law, part) for name, part in zip(record["dimensions"], parts, strict=True)],
        legend=[IDEAL],
    )


def _histogram(title: str, law: Law, densities: Mapping[str, Any]) -> Panel:
    heights = np.asarray(densities["value"], dtype=float)
    top = 1.1 * max(2.0, float(np.nanmax(heights)))
    edges = np.linspace(0, 1, len(heights) + 1)
    panel = Panel(
        shortened(title),
        Axis(0, 1, "rank of the action", ticks=TENTHS),
        Axis(0, top, "density"),
        alt=f"{title}: densities from {heights.min():.2f} to {heights.max():.2f}; first bin {heights[0]:.2f}, last"
        f" {heights[-1]:.2f}",
        subtitle=f"outermost bins {heights[0]:.2f} and {heights[-1]:.2f}",
        height=220,
        width=NARROW,
    )
    panel.bars(edges, heights, 0.0, law["head"], opacity=0.6)
    if densities["low"] is not None:
        for middle, low, high in zip((edges[1:] + edges[:-1]) / 2, densities["low"], densities["high"], strict=True):
            panel.line([middle, middle], [low, high], "ink", width=1, opacity=0.7)
    panel.rule(y=1.0, colour_name="ink", dash="4 3")
    return panel


def steps_figure(record: Record) -> Figure:
    """CRPS along the chunk, and coverage and width of the 80 % interval of each law."""
    panels = [_crps_panel(record)]
    for law in distributions(record):
        middle = next(i for i in law["intervals"] if i["mass"] == WIDTH_MASS)
        name = law_name(law, record)
        shares, widths = middle["coverage"]["by_step"], middle["width"]["by_step"]
        panels.append(_step_panel(name, law, shares, Axis(0, 1, "share inside 80 %", ticks=TENTHS), ideal=WIDTH_MASS))
        known = [_reached(widths[end]) for end in ("value", "high") if widths[end] is not None]
        panels.append(_step_panel(name, law, widths, Axis(0, data_range(*known)[1], "width of 80 %")))
    return Figure(
        "steps",
        "Along the chunk",
        "Chunk step 1 is the action that follows the observation at once. CRPS: lower is better, of a point it is the"
        " absolute error. Coverage without width says little: a law as wide as the data is always covered.",
        panels,
        legend=[LegendEntry("dashes", "muted", "baselines"), LegendEntry("line", "ink", "policies")],
    )


def _crps_panel(record: Record) -> Panel:
    """All laws in one panel, their names at the right where their lines end."""
    lines = [(law, _reached(law["crps"]["by_step"]["value"])) for law in record["laws"]]
    spoken = "; ".join(f"{law_name(law, record)} {law['crps']['value']:.3g}" for law, _ in lines)
    panel = Panel(
        "CRPS",
        Axis(1, max(2, *(len(values) for _, values in lines)), "chunk step"),
        Axis(0, 1.08 * max(float(values.max()) for _, values in lines) or 1.0, "CRPS, normalised"),
        alt=f"CRPS along the chunk; means: {spoken}",
        height=270,
        gutter=112,
    )
    lowest = panel.bottom
    for law, values in sorted(lines, key=lambda line: float(line[1][-1])):
        colour, dash = ("muted", DASHES[law["law"]]) if law["baseline"] else (law["head"], "")
        steps = np.arange(1, len(values) + 1)
        panel.line(steps, values, colour, dash=dash, width=1.3 if law["baseline"] else 2)
        lowest = min(float(panel.py(values[-1])), lowest - LINE)
        panel.at(panel.right + 5, lowest + 3.5, shortened(law_name(law, record), 20), colour)
    return panel


def _reached(values: Sequence[float | None]) -> Array:
    """Without the last chunk steps, where they lie beyond the end of every episode."""
    return np.array([value for value in values if value is not None], dtype=float)


def shortened(name: str, longest: int = 38) -> str:
    """The end of a name that is too long for its place."""
    return name if len(name) <= longest else f"...{name[3 - longest :]}"


def _step_panel(name: str, law: Law, values: Mapping[str, Any], y: Axis, ideal: float | None = None) -> Panel:
    numbers = _reached(values["value"])
    steps = np.arange(1, len(numbers) + 1)
    panel = Panel(
        shortened(name),
        Axis(1, max(len(numbers), 2), "chunk step"),
        y,
        alt=f"{name}, {y.label}: {numbers[0]:.3g} at the first chunk step, {numbers[-1]:.3g} at the last",
        height=220,
        width=NARROW,
    )
    if values["low"] is not None:
        panel.band(steps, _reached(values["low"]), _reached(values["high"]), law["head"])
    if ideal is not None:
        panel.rule(y=ideal, colour_name="ink", dash="4 3")
    panel.line(steps, numbers, law["head"], width=2)
    return panel


def _parts(estimates: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Estimates of several dimensions -> one record each."""
    names = ("value", "low", "high")
    return [{name: None if estimates[name] is None else estimates[name][d] for name in names} for d in range(count)]
