"""Figures of the closed loop: paths of the hand, first actions, the sweep of intervals."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import BOTTOM, PERCENT, RIGHT, TOP, WIDTH, Axis, Panel, data_range
from lerobot_policy_quantile.studies.two_demo.records import Arm, Places, RolloutRecord
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.studies.two_demo.result import Result

Array = np.ndarray[Any, Any]

OUTCOMES = [LegendEntry("circle", "success", "success"), LegendEntry("cross", "failure", "failure")]
ROUTES = [LegendEntry("dashes", "left", "left demonstration"), LegendEntry("dashes", "right", "right demonstration")]


def setting_name(arm: Arm) -> str:
    """Where an arm was run, in words."""
    scene = arm.name.removesuffix("+obstacle")
    return f"{scene}, {'with' if arm.obstacle else 'without'} obstacle"


def illustrated(arm: Arm) -> int | None:
    """The training seed whose episodes are drawn: the first that has any."""
    return min((rollout.training_seed for rollout in arm.rollouts), default=None)


def results_of(arm: Arm) -> list[Result]:
    """An arm's results, the quantile head's decoders first, then the other heads."""
    order = list(HEADS)
    return sorted(arm.results(), key=lambda r: order.index(r.head) if r.head in order else len(order))


def by_decoder(arm: Arm, seed: int | None) -> dict[tuple[str, str], list[RolloutRecord]]:
    """One training seed's judged episodes, per head and decoder, in the order of the results."""
    groups: dict[tuple[str, str], list[RolloutRecord]] = {(r.head, r.decoder): [] for r in results_of(arm)}
    for rollout in arm.rollouts:
        if rollout.training_seed == seed and rollout.status != "error":
            groups[rollout.head, rollout.decoder].append(rollout)
    return {pair: members for pair, members in groups.items() if members}


def on_the_table(places: Places, path: Float[Array, "n 3"]) -> Float[Array, "n 2"]:
    """A path from above in centimetres: to the right of the way from start to object, and along it."""
    away = path[:, :2] - places.start[:2]
    return np.stack([-100 * (away @ places.left), 100 * (away @ places.ahead)], axis=1)


def paths_figure(arm: Arm) -> Figure | None:
    """Paths of the hand from above, one panel per decoder, coloured by outcome."""
    seed = illustrated(arm)
    groups = by_decoder(arm, seed)
    if arm.places is None or not groups:
        return None
    panels = []
    for (head, decoder), members in groups.items():
        panel = table_panel(arm, decoder_name(head, decoder), _tally(members), _spoken_group(head, decoder, members))
        panel.colour = head
        for rollout in sorted(members, key=lambda r: r.success):
            path = on_the_table(arm.places, rollout.path)
            if len(path):
                _draw_outcome(panel, path, rollout)
        panels.append(panel)
    return Figure(
        name=f"paths-{arm.name}",
        title=f"Paths of the hand, {setting_name(arm)}",
        caption=f"Seen from above, all episodes of training seed {seed}; the robot starts at the ring and goes up to"
        " the object (star), then to the basket (square). Dashed: the two demonstrations. Paths that leave the frame"
        " are cut. Left and right count the successes by the side on which the hand first passed the"
        f" {'obstacle' if arm.obstacle else 'plane where the obstacle would stand'}.",
        panels=panels,
        legend=[
            LegendEntry("line", "success", "success"),
            LegendEntry("line", "failure", "failure, ends at the cross"),
            *ROUTES,
        ],
    )


def _draw_outcome(panel: Panel, path: Float[Array, "n 2"], rollout: RolloutRecord) -> None:
    name = "success" if rollout.success else "failure"
    panel.line(path[:, 0], path[:, 1], name, width=1.1, opacity=0.55 if rollout.success else 0.5)
    if not rollout.success and _inside(panel, path[-1]):
        panel.points(path[-1:, 0], path[-1:, 1], name, "cross", size=2.6)


def _inside(panel: Panel, point: Float[Array, "2"]) -> bool:
    return bool(0 <= panel.x.place(point[0]) <= 1 and 0 <= panel.y.place(point[1]) <= 1)


def table_panel(arm: Arm, title: str, subtitle: str, alt: str) -> Panel:
    """The table from above with start, object, goal, obstacle and the demonstrations, one scale in both directions."""
    places = arm.places
    if places is None:
        raise ValueError(f"places must be known to draw {arm.name} from above; got None")
    known = np.stack([places.start, places.object, places.goal, places.plane])
    demos = [on_the_table(places, demo.path) for demo in arm.demonstrations]
    corners = np.concatenate([on_the_table(places, known), *demos])
    x_low, x_high = data_range(corners[:, 0], margin=0.12)
    y_low, y_high = data_range(corners[:, 1], margin=0.12)
    plot = WIDTH - 46 - RIGHT
    wish = plot * (y_high - y_low) / (x_high - x_low)
    tall = float(np.clip(wish, 150, 330))
    if wish > tall:  # taller than there is room: the same scale needs more to the sides
        extra = (plot * (y_high - y_low) / tall - (x_high - x_low)) / 2
        x_low, x_high = x_low - extra, x_high + extra
    else:
        extra = (tall * (x_high - x_low) / plot - (y_high - y_low)) / 2
        y_low, y_high = y_low - extra, y_high + extra
    head = TOP + (14 if subtitle else 0)
    panel = Panel(
        title, Axis(x_low, x_high, "to the right (cm)", count=6), Axis(y_low, y_high, "ahead (cm)"), alt=alt,
        height=round(tall + head + BOTTOM), subtitle=subtitle,
    )  # fmt: skip
    if places.obstacle_size is not None:
        panel.area(_footprint(places), "ink")
    for demo, path in zip(arm.demonstrations, demos, strict=True):
        panel.line(path[:, 0], path[:, 1], demo.route, width=1.4, dash="4 3")
    for place, shape in ((places.start, "ring"), (places.object, "star")):
        spot = on_the_table(places, place[None])
        panel.points(spot[:, 0], spot[:, 1], "ink", shape, size=3.6)
    panel.area(_square(on_the_table(places, places.goal[None])[0], 2.2), "ink", opacity=0)
    return panel


def _footprint(places: Places) -> Float[Array, "4 2"]:
    """The obstacle's corners; its first size lies across the way, its second along it."""
    across, along = 100 * np.asarray(places.obstacle_size)[:2] / 2
    middle = on_the_table(places, places.plane[None])[0]
    return np.asarray(middle + np.array([[-across, -along], [across, -along], [across, along], [-across, along]]))


def _square(middle: Float[Array, "2"], half: float) -> Float[Array, "4 2"]:
    return np.asarray(middle + half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]))


def _tally(members: Sequence[RolloutRecord]) -> str:
    won = [rollout for rollout in members if rollout.success]
    sides = [rollout.side for rollout in won]
    by_side = f": {sides.count('left')} left, {sides.count('right')} right" if won else ""
    return f"{len(won)} of {len(members)} succeed{by_side}"


def _spoken_group(head: str, decoder: str, members: Sequence[RolloutRecord]) -> str:
    return f"{decoder_name(head, decoder)}: {_tally(members)}"


def first_actions_figure(arm: Arm, everyone: Iterable[Arm]) -> Figure | None:
    """The first executed command (dx, dy) of every episode, coloured by how the episode ended."""
    seed = illustrated(arm)
    swept = _swept(arm)
    panels = [
        scatter_panel(arm, head, decoder_name(head, decoder), members, everyone)
        for (head, decoder), members in by_decoder(arm, seed).items()
        if any(rollout.first_action for rollout in members)
        and not (swept and 0 < (interval_of(decoder) or 0) < 0.5)  # these have a figure of their own
    ]
    if not panels:
        return None
    return Figure(
        name=f"first-actions-{arm.name}",
        title=f"First action and outcome, {setting_name(arm)}",
        caption=f"One mark per episode of training seed {seed}: the first executed command, all from the same"
        " observation; colour and shape tell how the whole episode ended. Commands are in controller units, not in"
        " metres; all panels of this study share their axes; no jitter is added, so equal commands coincide.",
        panels=panels,
        legend=[
            *OUTCOMES,
            LegendEntry("diamond", "left", "left demonstration"),
            LegendEntry("diamond", "right", "right"),
        ],
    )


def scatter_panel(arm: Arm, head: str, title: str, members: Sequence[RolloutRecord], everyone: Iterable[Arm]) -> Panel:
    """First commands of some episodes, in the axes of the whole study."""
    x_range, y_range = _command_ranges(everyone)
    panel = Panel(
        title, Axis(*x_range, "first dx (command)"), Axis(*y_range, "first dy (command)"),
        alt=f"{title}: first commands of {len(members)} episodes, {_tally(members)}", subtitle=_tally(members),
        height=270, colour=head,
    )  # fmt: skip
    for demo in arm.demonstrations:
        panel.points(demo.actions[:1, 0], demo.actions[:1, 1], demo.route, "diamond", size=4)
    for rollout in sorted(members, key=lambda r: r.success):
        if rollout.first_action is not None:
            name, shape = ("success", "circle") if rollout.success else ("failure", "cross")
            panel.points(rollout.first_action[:1], rollout.first_action[1:2], name, shape)
    return panel


def _command_ranges(arms: Iterable[Arm]) -> tuple[tuple[float, float], tuple[float, float]]:
    arms = list(arms)
    firsts = [rollout.first_action[:2] for arm in arms for rollout in arm.rollouts if rollout.first_action]
    firsts += [tuple(demo.actions[0, :2]) for arm in arms for demo in arm.demonstrations]
    values = np.array(firsts)
    x, y = (data_range(values[:, d], margin=0.1, least=0.2) for d in (0, 1))
    return x, y


def interval_of(decoder: str) -> float | None:
    """The lower end l of a shared rank's interval; 0.5 for the median; None for other decoders."""
    if decoder == "median":
        return 0.5
    match = re.fullmatch(r"shared\(l=([\d.]+), rho=0\.9\)", decoder)
    return float(match[1]) if match else None


def _swept(arm: Arm) -> list[tuple[float, Result]]:
    """Lower ends and results of the interval sweep; nothing if fewer than two intervals were run."""
    found = [(low, r) for r in arm.results() if (low := interval_of(r.decoder)) is not None and r.episodes]
    found.sort(key=lambda pair: pair[0])
    return found if sum(low < 0.5 for low, _ in found) > 1 else []


def intervals_figure(arm: Arm, everyone: Iterable[Arm]) -> Figure | None:
    """Success over the width of the sampling interval, and the first actions of each."""
    everyone = list(everyone)
    swept = _swept(arm)
    if not swept:
        return None
    lows, rates = [low for low, _ in swept], [result.rate for _, result in swept]
    panel = Panel(
        "Success over the interval", Axis(-0.03, 0.53, "lower end l of [l, 1 - l]; 0.5 is the median"),
        Axis(-3, 103, "success (%)", ticks=PERCENT.ticks),
        alt="; ".join(f"l = {low:g}: {rate:.0f} %" for low, rate in zip(lows, rates, strict=True)), height=270,
    )  # fmt: skip
    paper = [(low, result.paper) for low, result in swept if result.paper is not None]
    if paper:
        paper_lows, paper_rates = zip(*paper, strict=True)
        panel.line(paper_lows, paper_rates, "muted", dash="3 3", width=1.2)
        panel.points(paper_lows, paper_rates, "ink", "open diamond", size=3.6)
    panel.line(lows, rates, "quantile", width=2)
    for low, result in swept:
        panel.line([low, low], list(result.interval), "quantile", width=2, opacity=0.5)
    panel.points(lows, rates, "quantile", size=4.4)
    groups = by_decoder(arm, illustrated(arm))
    scatters = [
        scatter_panel(arm, "quantile", _interval_name(low), groups[result.head, result.decoder], everyone)
        for low, result in swept
        if (result.head, result.decoder) in groups
    ]
    return Figure(
        name=f"intervals-{arm.name}",
        title=f"Sampling interval, {setting_name(arm)}",
        caption="The shared rank is drawn uniformly from [l, 1 - l]; nothing is trained again. First panel: success"
        " over all training seeds with 95 % intervals, and the paper's numbers where it has them. Others: the first"
        f" command of each episode of training seed {illustrated(arm)}.",
        panels=[panel, *scatters],
        legend=[
            LegendEntry("circle", "quantile", "this study"),
            LegendEntry("open diamond", "ink", "paper"),
            *OUTCOMES,
        ],
    )


def _interval_name(low: float) -> str:
    return "median, rank 0.5" if low == 0.5 else f"rank in [{low:g}, {1 - low:g}]"
