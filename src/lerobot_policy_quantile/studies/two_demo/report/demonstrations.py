"""The figure of the demonstrations: their paths from above and from the side, and their first commands."""

import numpy as np

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import Axis, Panel, data_range
from lerobot_policy_quantile.studies.two_demo.records import Arm
from lerobot_policy_quantile.studies.two_demo.report.closed_loop import on_the_table, setting_name, table_panel

FIRST = 10
"""Commands that are drawn: the first chunk."""


def demonstration_figure(arm: Arm) -> Figure | None:
    """Paths from above, heights over time, and the first ten commands."""
    if not arm.demonstrations:
        return None
    panels = [_heights_panel(arm), commands_panel(arm)]
    if arm.places is not None:
        panels.insert(0, _from_above(arm))
    return Figure(
        name=f"demonstrations-{arm.name}",
        title=f"The two demonstrations, {setting_name(arm)}",
        caption="From above: start (ring), object (star), basket (square)"
        f"{', footprint of the obstacle' if arm.obstacle else ''}"
        f"{' and the straight control, which is not trained on' if arm.control else ''}. Commands: stars are the first"
        " ones, small dots the others of the first ten, hollow diamonds their mean.",
        panels=panels,
        legend=[LegendEntry("line", "left", "left"), LegendEntry("line", "right", "right")]
        + ([LegendEntry("line", "muted", "straight control")] if arm.control else []),
    )


def _from_above(arm: Arm) -> Panel:
    lengths = ", ".join(f"{demo.route} {len(demo.actions)} actions" for demo in arm.demonstrations)
    panel = table_panel(arm, "From above", lengths, f"Paths of the hand from above: {lengths}")
    places = arm.places
    if places is None:
        return panel
    if arm.control is not None:
        path = on_the_table(places, arm.control.path)
        panel.line(path[:, 0], path[:, 1], "muted", width=1.4)
    for demo in arm.demonstrations:
        path = on_the_table(places, demo.path)
        panel.line(path[:, 0], path[:, 1], demo.route, width=2.2)
    return panel


def _heights_panel(arm: Arm) -> Panel:
    heights = [100 * demo.path[:, 2] for demo in arm.demonstrations]
    longest = max(len(z) for z in heights)
    panel = Panel(
        "Height of the hand", Axis(0, longest, "control step"), Axis(*data_range(*heights, margin=0.08), "height (cm)"),
        alt="; ".join(
            f"{demo.route}: between {z.min():.0f} and {z.max():.0f} cm"
            for demo, z in zip(arm.demonstrations, heights, strict=True)
        ),
        height=270,
        subtitle="markers: the gripper closes, then opens",
    )  # fmt: skip
    for demo, z in zip(arm.demonstrations, heights, strict=True):
        panel.line(np.arange(len(z)), z, demo.route, width=1.8)
        closing = demo.actions[:, -1] > 0
        turns = np.flatnonzero(np.diff(closing.astype(int)))[:2] + 1
        panel.points(turns, z[np.minimum(turns, len(z) - 1)], demo.route, "circle", size=4)
    return panel


def commands_panel(arm: Arm) -> Panel:
    """The first ten commands in the plane of the table."""
    firsts = [demo.actions[:FIRST, :2] for demo in arm.demonstrations]
    joined = np.concatenate(firsts)
    panel = Panel(
        "First ten commands", Axis(*data_range(joined[:, 0], margin=0.15, least=0.2), "dx (command)"),
        Axis(*data_range(joined[:, 1], margin=0.15, least=0.2), "dy (command)"),
        alt="; ".join(
            f"{demo.route}: first command dx {a[0, 0]:.2f}, dy {a[0, 1]:.2f}"
            for demo, a in zip(arm.demonstrations, firsts, strict=True)
        ),
        height=270,
        subtitle="; ".join(
            f"{demo.route} ({a[0, 0]:+.2f}, {a[0, 1]:+.2f})" for demo, a in zip(arm.demonstrations, firsts, strict=True)
        ),
    )  # fmt: skip
    for demo, a in zip(arm.demonstrations, firsts, strict=True):
        panel.line(a[:, 0], a[:, 1], demo.route, width=1, opacity=0.5)
        panel.points(a[1:, 0], a[1:, 1], demo.route, "circle", size=2.2)
        panel.points(a[:1, 0], a[:1, 1], demo.route, "star", size=4)
        panel.points([a[:, 0].mean()], [a[:, 1].mean()], demo.route, "open diamond", size=3.6)
    return panel
