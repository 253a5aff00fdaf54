"""A calibration record as one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any

from lerobot_policy_quantile.calibration import figures
from lerobot_policy_quantile.calibration.tables import bounds_lines, calibration_lines, dimension_lines, score_lines
from lerobot_policy_quantile.drawing.page import bullets, drawn, heading, page, paragraph, table

UNITS = (
    "Scores and widths are in each policy's normalised action units, in which 1 and -1 are about the ends of the"
    " training data's range, so that dimensions are comparable; the table per dimension has widths in the robot's"
    " units, too. Steps beyond the end of an episode do not count."
)
BASELINES = (
    "Skill is 1 - pinball loss / pinball loss of a baseline: 1 is perfect, 0 no better than the baseline. constant: the"
    " quantiles of all actions. gaussian: a normal law with their mean and deviation. persistence: the last action plus"
    " the quantiles of what usually followed. Baselines are fitted on the judged episodes themselves, which favours"
    " them."
)


def make_page(record: Mapping[str, Any]) -> str:
    """The page."""
    episodes = record["episodes"]
    lead = (
        f"{record['frames']:,} frames of {len(episodes)} episodes of {record['dataset']}, one in {record['every']}."
        f" Intervals: {100 * record['interval']['level']:g} %, bootstrap over episodes."
    )
    parts = [
        bullets(record["notes"]),
        heading("Scores"),
        table("Scores", score_lines(record)),
        paragraph(BASELINES),
        heading("Coverage and width"),
        table("Share of actions inside predicted intervals, in per cent", calibration_lines(record)),
        *(table("Conformal bounds, shares in per cent", lines) for lines in [bounds_lines(record)] if len(lines) > 1),
        paragraph(UNITS),
    ]
    whole = (figures.reliability_figure(record), figures.pit_figure(record), figures.steps_figure(record))
    parts += [drawn(figure) for figure in whole if figure is not None]
    parts += [heading("Per dimension"), table("Per dimension", dimension_lines(record))]
    for law in figures.fullest(record):
        parts += [drawn(figures.dimension_reliability(law, record)), drawn(figures.dimension_pit(law, record))]
    return page("Calibration on held-out episodes", lead, [part for part in parts if part])
