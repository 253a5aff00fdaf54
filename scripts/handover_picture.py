"""Draws docs/explanation/handover.svg: two chunks, one coordinate, and the ranks by which one takes over."""

from pathlib import Path

import numpy as np
import torch

from lerobot_policy_quantile.core.decoders import Decoded, Handover, hand_over, parse_decoder
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import Axis, Panel

PICTURE = Path(__file__).parents[1] / "docs" / "explanation" / "handover.svg"
CHUNK, LEFT, DELAY = 10, 8, 3


def example() -> tuple[QuantileFunction, Decoded, Handover]:
    """A law that widens and turns over the chunk, the median's chunk, and an old plan at its upper edge."""
    step = torch.arange(CHUNK, dtype=torch.float32)
    centre, width = 0.25 * torch.sin(step / 4), 0.2 + 0.03 * step
    levels = quantile_levels()
    quantiles = (centre[:, None] + width[:, None] * (levels - 0.5))[None, :, None]
    law = QuantileFunction(levels, quantiles)
    decoded = parse_decoder("median").with_grippers([]).decode(law, episodes_from_seeds([0]))
    left = (centre + 0.38 * width + 0.02 * torch.cos(step))[:LEFT, None]
    return law, decoded, Handover(left, DELAY)


def picture() -> str:
    """The whole SVG."""
    law, decoded, handover = example()
    joined = hand_over(decoded, law, [handover], parse_decoder("median").with_grippers([]))
    step, old = np.arange(CHUNK), np.arange(LEFT)
    low, high = (law.quantiles[0, :, 0, k].numpy() for k in (0, -1))
    x = Axis(-0.4, CHUNK - 0.6, "chunk step", ticks=tuple((float(n), str(n)) for n in range(CHUNK)))
    actions = Panel(
        "Actions of one coordinate",
        x,
        Axis(-0.25, 0.65, "normalised action"),
        "The new chunk follows the old plan's actions during the delay, then runs over to the median inside the law",
        width=420,
    )
    actions.band(step, low, high, "quantile")
    actions.line(step, decoded.actions[0, :, 0].numpy(), "quantile", dash="4 3")
    actions.line(old, handover.left_over[:, 0].numpy(), "left", dash="2 2")
    actions.points(old, handover.left_over[:, 0].numpy(), "left", "ring")
    actions.line(step, joined.actions[0, :, 0].numpy(), "right", width=2.2)
    actions.points(step, joined.actions[0, :, 0].numpy(), "right")
    ranks = Panel(
        "Their ranks under the new law",
        x,
        Axis(0, 1, "rank"),
        "Ranks of the old plan above 0.8; those of the executed chunk fall from there to the median's 0.5",
        width=420,
    )
    ranks.line(step, np.full(CHUNK, 0.5), "quantile", dash="4 3")
    own = law.cdf(torch.nn.functional.pad(handover.left_over, (0, 0, 0, CHUNK - LEFT))[None])[0, :LEFT, 0].numpy()
    ranks.line(old, own, "left", dash="2 2")
    ranks.points(old, own, "left", "ring")
    ranks.line(step, joined.ranks[0, :, 0].numpy(), "right", width=2.2)
    ranks.points(step, joined.ranks[0, :, 0].numpy(), "right")
    for panel in (actions, ranks):
        panel.rule(x=DELAY - 0.5)
        panel.text(DELAY - 0.5, panel.y.high, "new chunk arrives", "muted", dx=4, dy=12)
    legend = [
        LegendEntry("dashes", "left", "left of the old chunk"),
        LegendEntry("dashes", "quantile", "the new law and its median"),
        LegendEntry("line", "right", "executed"),
    ]
    return Figure("handover", "Rank handover", "", [actions, ranks], 2, legend).svg_file()


if __name__ == "__main__":
    PICTURE.write_text(picture())
