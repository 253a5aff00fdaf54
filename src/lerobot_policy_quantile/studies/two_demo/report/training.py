"""Figures of training and of cost."""

from collections.abc import Sequence

import numpy as np

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import NARROW, Axis, Panel, data_range
from lerobot_policy_quantile.studies.two_demo.records import Arm, Cost
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS

LOSSES = {"quantile": "pinball loss", "l1": "absolute error", "l2": "squared error", "flow": "squared velocity error"}


def curves_figure(scene: str, arms: Sequence[Arm]) -> Figure | None:
    """Training loss of each head, one line per seed and setting."""
    found = [(arm, seed, head) for arm in arms for seed, curves in arm.curves.items() for head in curves]
    panels = [_curves_panel(head, arms) for head in HEADS if any(head == h for _, _, h in found)]
    if not panels:
        return None
    seeds = sorted({seed for _, seed, _ in found})
    return Figure(
        name=f"training-{scene}",
        title=f"Training loss, {scene}",
        caption="Loss on the training batches, logarithmic; each point is the mean since the one before. One line per"
        f" training seed ({', '.join(map(str, seeds))}); solid without, dashed with the obstacle. Each head has a loss"
        " of its own: heights cannot be compared between panels.",
        panels=panels,
        columns=4,
        legend=[LegendEntry("line", "ink", "without obstacle"), LegendEntry("dashes", "ink", "with obstacle")],
    )


def _curves_panel(head: str, arms: Sequence[Arm]) -> Panel:
    curves = [(arm, curves[head]) for arm in arms for curves in arm.curves.values() if head in curves]
    positive = [curve.losses[curve.losses > 0] for _, curve in curves]
    logs = np.log10(np.concatenate([p for p in positive if len(p)] or [np.ones(1)]))
    low, high = (10.0**v for v in data_range(logs, margin=0.05, least=0.3))
    last = max((int(curve.updates[-1]) for _, curve in curves if len(curve.updates)), default=1)
    ends = ", ".join(
        f"{'with' if arm.obstacle else 'without'} obstacle {curve.losses[-1]:.2g} after {int(curve.updates[-1]):,}"
        for arm, curve in curves
        if len(curve.updates)
    )
    panel = Panel(
        HEADS[head], Axis(0, last * 1.02, "update", count=4), Axis(low, high, log=True),
        alt=f"{HEADS[head]}: {LOSSES[head]} {ends}", height=220, colour=head, left=38, width=NARROW,
        subtitle=f"{LOSSES[head]}, {last:,} updates",
    )  # fmt: skip
    for arm, curve in curves:
        dash = "5 3" if arm.obstacle else ""
        panel.line(curve.updates, np.maximum(curve.losses, low), head, width=1.5, dash=dash, opacity=0.85)
    return panel


def mean_costs(arms: Sequence[Arm]) -> list[Cost]:
    """Per head, the median over arms and training seeds of what one replan costs."""
    found: dict[str, list[Cost]] = {}
    for arm in arms:
        for costs in arm.costs.values():
            for cost in costs:
                found.setdefault(cost.head, []).append(cost)
    return [
        Cost(
            head=head,
            expert_passes=costs[0].expert_passes,
            prefix_ms=float(np.median([cost.prefix_ms for cost in costs])),
            expert_ms=float(np.median([cost.expert_ms for cost in costs])),
            decode_ms=float(np.median([cost.decode_ms for cost in costs])),
            repeats=sum(cost.repeats for cost in costs),
        )
        for head, costs in found.items()
    ]


def cost_figure(scene: str, costs: Sequence[Cost]) -> Figure | None:
    """Milliseconds per replan of each head, split into what all share and the expert's part."""
    if not costs:
        return None
    longest = max(cost.total_ms for cost in costs)
    panel = Panel(
        "Time per replan", Axis(0, 1.75 * longest, "milliseconds"), Axis(0, len(costs), ticks=()),
        alt="; ".join(
            f"{HEADS.get(c.head, c.head)}: {c.prefix_ms:.1f} ms prefix, {c.expert_ms:.1f} ms expert,"
            f" {c.expert_passes} passes" for c in costs
        ),
        height=72 + 34 * len(costs), left=92, width=360,
    )  # fmt: skip
    for row, cost in enumerate(reversed(costs)):
        place = float(panel.py(row + 0.5))
        panel.at(panel.left - 6, place + 3.5, HEADS.get(cost.head, cost.head), cost.head, anchor="end")
        panel.bars([0, cost.prefix_ms], [0.5], row + 0.25, "muted", opacity=0.5)
        panel.bars([cost.prefix_ms, cost.total_ms], [0.5], row + 0.25, cost.head)
        words = f"{cost.total_ms:.1f} ms, {cost.expert_passes} pass{'es' if cost.expert_passes != 1 else ''}"
        panel.text(cost.total_ms, row + 0.5, words, dx=6, dy=3.5)
    return Figure(
        name=f"cost-{scene}",
        title=f"Cost per replan, {scene}",
        caption="Grey: processor and VLM prefix, the same for all heads. Coloured: expert passes, head and decoder."
        " Measured in turns in one run, so that a busy machine slows all of them alike.",
        panels=[panel],
        columns=1,
    )
