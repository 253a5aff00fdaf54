"""Figures of the three pages: shares and CRPS, AUROC over the episode, success over expert passes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import PERCENT, Axis, Panel, data_range

Estimate = Mapping[str, Any]
"""Value, low and high end."""

LABELS = 150
"""Room for names at the right of a panel."""
LINE = 13
"""Pixels between names below each other."""


def bounds_figure(record: Mapping[str, Any]) -> Figure:
    """Shares inside before and after the correction; CRPS over what it costs."""
    rows = record["laws"][0]["conformal"]
    shares = Panel(
        "Actions inside",
        Axis(0, 100, "nominal, %"),
        Axis(0, 100, "measured, %"),
        alt="; ".join(
            f"nominal {100 * row['mass']:g} %: {100 * row['coverage_before']['value']:.0f} % inside before the"
            f" correction, {100 * row['coverage']['value']:.0f} % after it"
            for row in rows
        ),
        height=270,
    )
    shares.line([0, 100], [0, 100], "ink", dash="4 3", width=1.1)
    for name, shade, shape in (("coverage_before", "l2", "diamond"), ("coverage", "quantile", "circle")):
        for row in rows:
            _whisker(shares, 100 * row["mass"], row[name], shade, shape, scale=100)
    laws = [law for law in record["laws"] if not law["baseline"] and law["crps"]["value"] is not None]
    passes = [law["expert_passes"] for law in laws]
    costs = Panel(
        "CRPS",
        Axis(min(passes) / 1.6, 1.6 * max(passes), "expert passes", log=True),
        Axis(*data_range([0.0], [_ends(law["crps"])[1] for law in laws]), "CRPS, normalised"),
        alt="; ".join(f"{law['policy']} by {law['law']}: {law['crps']['value']:.3g}" for law in laws),
        height=270,
    )
    for law in laws:
        shade = "quantile" if law["policy"] == "quantile" else "flow"
        _whisker(costs, law["expert_passes"], law["crps"], shade, "circle")
    legend = [
        LegendEntry("diamond", "l2", "before"),
        LegendEntry("circle", "quantile", "after; quantile head"),
        LegendEntry("circle", "flow", "flow samples"),
    ]
    return Figure(
        "bounds", "Bounds", "Shares inside intervals, and CRPS over expert passes.", [shares, costs], 2, legend
    )


def alarm_figure(lines: Iterable[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> Figure:
    """AUROC of every way to announce failures, its colour and its scores at shares of the limit."""
    lines = [
        (name, shade, [at for at in points if at["share"] < 1 and at["auroc"]["value"] is not None])
        for name, shade, points in lines
    ]
    panel = Panel(
        "AUROC among episodes still running",
        Axis(0.2, 0.8, "share of the limit", ticks=tuple((x, f"{x:g}") for x in (0.25, 0.5, 0.75))),
        Axis(0.3, 1.0, "AUROC"),
        alt="; ".join(
            f"{name}: " + ", ".join(f"{at['auroc']['value']:.2f} at {at['share']:g}" for at in points)
            for name, _, points in lines
        ),
        height=290,
        width=520,
        gutter=LABELS,
    )
    panel.rule(y=0.5, colour_name="ink", dash="4 3")
    lowest = panel.bottom
    known = [line for line in lines if line[2]]
    for name, shade, points in sorted(known, key=lambda line: float(line[2][-1]["auroc"]["value"])):
        shares, values = [at["share"] for at in points], [at["auroc"]["value"] for at in points]
        low, high = zip(*(_ends(at["auroc"]) for at in points), strict=True)
        panel.band(shares, low, high, shade, opacity=0.12)
        panel.line(shares, values, shade, width=2)
        panel.points(shares, values, shade)
        lowest = min(float(panel.py(values[-1])), lowest - LINE)
        panel.at(panel.right + 6, lowest + 3.5, name, shade)
    return Figure("alarm", "Alarms", "AUROC over the share of the limit that has passed; bands: 95 %.", [panel], 1)


def acting_figure(arms: Iterable[tuple[str, float, Estimate]]) -> Figure:
    """Success of every arm over its expert passes per episode."""
    arms = list(arms)
    panel = Panel(
        "Success over expert passes",
        Axis(*data_range([passes for _, passes, _ in arms], margin=0.2), "expert passes per episode"),
        PERCENT,
        alt="; ".join(f"{name}: {100 * rate['value']:.0f} % with {passes:.1f}" for name, passes, rate in arms),
        height=290,
        width=520,
    )
    for number, (name, passes, rate) in enumerate(sorted(arms, key=lambda arm: arm[1])):
        _whisker(panel, passes, rate, "quantile", "circle", scale=100)
        low, high = (100 * end for end in _ends(rate))
        above = number % 2 == 0  # neighbours' names would overlap
        panel.text(passes, high if above else low, name, anchor="middle", dy=-6 if above else LINE)
    return Figure("acting", "Acting", "Success with its 95 % interval over expert passes per episode.", [panel], 1)


def _whisker(panel: Panel, x: float, estimate: Estimate, shade: str, shape: str, scale: float = 1.0) -> None:
    """A point with its interval."""
    low, high = _ends(estimate)
    panel.line([x, x], [scale * low, scale * high], shade, width=1.4)
    panel.points([x], [scale * estimate["value"]], shade, shape, size=4)


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Of its interval; the value itself where there is none."""
    value = float(estimate["value"])
    low, high = (value if estimate[end] is None else float(estimate[end]) for end in ("low", "high"))
    return low, high
