"""Figures of what the heads predict: draws at the shared start and the predicted spread over a rollout (App. B)."""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.ranges import (
    DIMENSIONS,
    ROTATION_MAGNIFIED,
    Range,
    Timeline,
    dimension_panels,
    gripper_moves,
    range_panel,
)
from lerobot_policy_quantile.drawing.svg import Axis, Panel, data_range
from lerobot_policy_quantile.studies.two_demo.records import MOTION, Arm, FirstDraws, RolloutRecord
from lerobot_policy_quantile.studies.two_demo.report.closed_loop import setting_name
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.util.quantiles import Array, quantile_at

BINS = 32
_ROW = 0.74
"""Height of a histogram in its row; the rest is for its label."""


def histograms_figure(arm: Arm) -> Figure | None:
    """First actions drawn at the shared start: six dimensions, the four heads below each other on the same bins."""
    if not arm.draws:
        return None
    seed = min(arm.draws)
    draws = arm.draws[seed]
    counts = {len(values) for values in draws.actions.values()}
    return Figure(
        name=f"heads-{arm.name}",
        title=f"What each head predicts at the shared start, {setting_name(arm)}",
        caption=f"First predicted action, {' or '.join(f'{n:,}' for n in sorted(counts))} draws per head, training seed"
        f" {seed}. The four heads of a panel share {BINS} bins; each is scaled to its tallest bin, whose share of the"
        " draws is written beside it; a stem is a constant output. Dashed: the first actions of the two"
        " demonstrations, grey where they coincide. Draws beyond the outermost bins are counted in them. Marginals"
        " alone do not show how coordinates hang together.",
        panels=[_dimension_panel(draws, d, arm) for d in range(MOTION)],
        legend=[
            LegendEntry("dashes", "left", "left demonstration"),
            LegendEntry("dashes", "right", "right demonstration"),
        ],
    )


def _dimension_panel(draws: FirstDraws, d: int, arm: Arm) -> Panel:
    heads = [head for head in HEADS if head in draws.actions]
    firsts = {head: np.asarray(draws.actions[head])[:, 0, d] for head in heads}
    targets = np.asarray(draws.demonstrations)[:, 0, d]
    ends = [np.quantile(values, (0.005, 0.995)) for values in firsts.values()]
    low, high = data_range(*ends, targets, margin=0.06, least=0.02)
    edges = np.linspace(low, high, BINS + 1)
    words = [f"{HEADS[head]} {_spoken(values)}" for head, values in firsts.items()]
    panel = Panel(
        DIMENSIONS[d], Axis(low, high, f"{DIMENSIONS[d]} (command)"), Axis(0, len(heads), ticks=()),
        alt=f"{DIMENSIONS[d]}: " + "; ".join(words), height=300, left=8,
    )  # fmt: skip
    for row, head in enumerate(reversed(heads)):
        _histogram(panel, edges, firsts[head], float(row), head)
    _target_rules(panel, targets, [demo.route for demo in arm.demonstrations])
    return panel


def _histogram(panel: Panel, edges: Float[Array, " e"], values: Float[Array, " n"], base: float, head: str) -> None:
    panel.rule(y=base, colour_name="grid", dash="")
    if float(np.ptp(values)) == 0:
        panel.line([values[0], values[0]], [base, base + _ROW], head, width=2.4)
        panel.points(values[:1], [base + _ROW], head, size=3.4)
        share = "constant"
    else:
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        panel.bars(edges, _ROW * counts / counts.max(), base, head)
        share = f"tallest bin {100 * counts.max() / len(values):.0f} %"
    panel.at(panel.left + 3, float(panel.py(base + 1)) + 11, HEADS[head], head)
    panel.at(panel.right - 3, float(panel.py(base + 1)) + 11, share, "muted", anchor="end")


def _target_rules(panel: Panel, targets: Float[Array, " m"], routes: list[str]) -> None:
    if len(targets) and float(np.ptp(targets)) < 1e-6:
        panel.rule(x=float(targets[0]), colour_name="muted", dash="5 3")
        return
    for value, route in zip(targets, routes, strict=False):
        panel.rule(x=float(value), colour_name=route, dash="5 3")


def _spoken(values: Float[Array, " n"]) -> str:
    if float(np.ptp(values)) == 0:
        return f"constant at {values[0]:.2f}"
    return f"from {np.quantile(values, 0.05):.2f} to {np.quantile(values, 0.95):.2f} (5 to 95 %)"


def units_per_command(draws: FirstDraws) -> Float[Array, " d"]:
    """How many normalised units one unit of command is, per dimension, read off the draws; nan where none differ."""
    raw = np.concatenate([np.asarray(v).reshape(-1, np.shape(v)[-1]) for v in draws.actions.values()])
    norm = np.concatenate([np.asarray(draws.normalised[h]).reshape(-1, raw.shape[-1]) for h in draws.actions])
    high, low = raw.argmax(axis=0), raw.argmin(axis=0)
    d = np.arange(raw.shape[-1])
    span = raw[high, d] - raw[low, d]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(span > 0, (norm[high, d] - norm[low, d]) / span, np.nan)


def choose_rollout(arm: Arm) -> RolloutRecord | None:
    """The episode whose spread is drawn: a success with the obstacle passed if there is one, of the quantile head."""
    own = [rollout for rollout in arm.rollouts if rollout.head == "quantile" and rollout.status != "error"]
    for rollout in sorted(own, key=lambda r: (not r.success, r.decoder == "median", r.training_seed)):
        if rollout.array("quantiles") is not None:
            return rollout
    return None


def spread_figure(arm: Arm) -> Figure | None:
    """Predicted range over one rollout: the mean over six dimensions, then each of them, rotations magnified."""
    rollout = choose_rollout(arm)
    if rollout is None or rollout.levels is None:
        return None
    quantiles, steps = rollout.array("quantiles"), rollout.array("query_steps")
    if quantiles is None or steps is None:
        return None
    now = np.asarray(quantiles, dtype=float)[:, 0, :MOTION]
    low, high = (quantile_at(now, rollout.levels, end) for end in (0.0, 1.0))
    median = now[..., now.shape[-1] // 2]
    found = Range(low - median, high - median)
    axis = Axis(0, max(float(steps[-1]), 1.0) * 1.02, "control step")
    actions = rollout.array("actions")
    moves = [] if actions is None or not len(actions) else gripper_moves(actions[:, DIMENSIONS.index("gripper")])
    time = Timeline(steps, axis, moves=moves)
    panels = []
    draws = arm.draws.get(rollout.training_seed)
    scale = None if draws is None else units_per_command(draws)[:MOTION]
    if scale is not None and np.isfinite(scale).all():
        panels.append(range_panel("mean over six", found.scaled(scale).mean(), time, "normalised units"))
    panels += dimension_panels(DIMENSIONS[:MOTION], found, time)
    left_out = "" if len(panels) > MOTION else " The mean over normalised dimensions needs draws at the start: missing."
    return Figure(
        name=f"spread-{arm.name}",
        title=f"Predicted spread over a rollout, {setting_name(arm)}",
        caption=f"Q(0) to Q(1) around the median for the first step of each prediction, outer segments carried on in a"
        f" straight line; {decoder_name(rollout.head, rollout.decoder)}, training seed {rollout.training_seed}, episode"
        f" {rollout.episode}: {rollout.status}. Rotations are magnified {ROTATION_MAGNIFIED} times. Dotted: the gripper"
        f" closes or opens. The mean is of marginal ranges, not the range of a mean.{left_out}",
        panels=panels,
        columns=4,
    )
