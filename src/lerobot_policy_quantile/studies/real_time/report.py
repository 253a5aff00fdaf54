"""The study's page and figures, from the files of its parts alone; parts without a file are left out."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import PERCENT, Axis, Panel, data_range
from lerobot_policy_quantile.evaluation.tables.intervals import PairedDifference, paired_over_seeds, wilson
from lerobot_policy_quantile.evaluation.tables.motion import MEASURES, interval, spelled
from lerobot_policy_quantile.studies.real_time.cells import Cell, CellFile
from lerobot_policy_quantile.studies.real_time.cost import DELAY, ReplanCost
from lerobot_policy_quantile.studies.real_time.measures import WINDOW, PushReport, SeamReport
from lerobot_policy_quantile.util.files import write_json, write_text
from lerobot_policy_quantile.util.tables import markdown

SHADES = {"pause": "muted", "swap": "l2", "ensemble": "l1", "rank": "quantile", "rtc": "flow"}
SEAM_TARGET, SUCCESS_TARGET = 1 / 3, 0.03
"""Of rank handover: at most this share of swapping's seam, and no more success lost than this against no delay."""
TARGETS = (
    "At a delay of {} steps. Targets of rank handover: a seam of at most a third of swapping's, success within 3 points"
    " of that without delay; judged by the value, beside which the interval is what the episodes can tell."
)
SEAM_SCALE = 1000
"""In figures: so many units to an action unit."""
CELLS, COST, PUSHES, SIDES, SEAMS = "cells_{}.json", "cost.json", "pushes.json", "sides.json", "seams.json"
"""Files of the parts."""
OPENING = """# Real time

After this page you can tell how chunks join where an answer takes time: seams, success, cost, and what surprise tells.

```sh
make real-time
```

[Real time](../../explanation/real_time.md) explains the handovers and the measures; a step is 50 ms. A chunk of ten
steps is asked for every five steps, or as soon as the last answer is there. Episodes are paired; 95 % intervals of
success are Wilson's, of means Student's t over episodes. Without a delay pausing is swapping. Such a chunk lasts for
delays of up to five steps: at six the robot stands still for a while under every rule, and no seam can be measured.

Policies come straight from the shipped [bases](../../explanation/base.md): in the embedded scene `base` (quantile)
and `base_suites` (flow), in LIBERO-Object `base_suites`, from initial states 20 to 29. Straight from a base an L1
head answers as the median does: `pause`, `swap` and `ensemble` of the median are its rows. Fine-tuned heads
(quantile, L1, flow) were trained for 1,500 updates on fifty demonstrations of LIBERO-Object from initial states 30 to
44, with the VLM of `base_suites` frozen.
"""


TITLES = {
    "embedded": "embedded scene, straight from the bases",
    "libero_object": "LIBERO-Object, straight from the base",
    "fine_tuned": "LIBERO-Object, fine-tuned",
}


def cell_file(folder: Path, scene: str) -> CellFile:
    """The cells of a scene."""
    return CellFile(folder / CELLS.format(scene))


def keep_seams(folder: Path, part: str, seams: SeamReport) -> None:
    """Beside those of the other parts."""
    write_json(folder / SEAMS, {**_read(folder / SEAMS), part: asdict(seams)})


def write_report(folder: Path, scenes: Sequence[str]) -> Path:
    """`README.md` and the figures beside the files of the parts."""
    parts = [OPENING]
    for scene in scenes:
        if cells := cell_file(folder, scene).read():
            figure = delay_figure(scene, cells)
            write_text(folder / f"{figure.name}.svg", figure.svg_file())
            parts.append(
                f"## Delays: {TITLES[scene]}\n\n![{figure.caption}]({figure.name}.svg)\n\n{delay_table(cells)}"
            )
            parts.append(weights_line(cells))
            if table := target_table(cells, DELAY):
                parts.append(TARGETS.format(DELAY) + "\n\n" + table)
            if found := _read(folder / SEAMS).get(scene):
                parts.append(seam_line(SeamReport(**found)))
    if costs := _read(folder / COST):
        told = cost_table({name: ReplanCost(**each) for name, each in costs.items()})
        parts.append(
            f"## Cost of a replan\n\nMedians of one run in which the policies take turns, on one core.\n\n{told}"
        )
    if pushes := _read(folder / PUSHES):
        lines = push_lines({name: PushReport(**each) for name, each in pushes.items()})
        parts.append("## Surprise after a push\n\n" + "\n".join(lines) + "\n")
    if sides := _read(folder / SIDES):
        lines = side_lines({name: (each[0], each[1], each[2]) for name, each in sides.items()})
        parts.append("## Sides of the obstacle\n\n" + "\n".join(lines) + "\n")
    path = folder / "README.md"
    write_text(path, "\n".join(parts))
    return path


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def delay_table(cells: Sequence[Cell]) -> str:
    """One line per cell with intervals."""
    header = ("policy", "decoder", "handover", "delay", "episodes", "success, %", *MEASURES)
    lines = []
    for cell in cells:
        rate = wilson(sum(cell.successes) / len(cell.successes), len(cell.successes))
        success = f"{100 * rate.value:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
        figures = (spelled(cell.values(measure)) for measure in MEASURES)
        name = cell.name
        fixed = (name.policy, name.decoder, name.handover, str(name.delay), str(len(cell.successes)))
        lines.append((*fixed, success, *figures))
    return markdown(header, lines)


def weights_line(cells: Sequence[Cell]) -> str:
    """Which policies these are: a base may have been made anew since."""
    known = sorted({(cell.name.policy, cell.weights) for cell in cells})
    fades = " and ".join(f"`{fade}`" for fade in sorted({cell.fade for cell in cells if cell.fade}))
    said = f" Rank handover's weight in the i-th step after the delay: {fades}." if fades else ""
    return f"Digests of the policies' weights: {', '.join(f'{name} `{weights}`' for name, weights in known)}.{said}\n"


def target_table(cells: Sequence[Cell], delay: int) -> str:
    """At a delay: the seam beside that of swapping, and success beside that without delay, paired; empty without."""
    known = {cell.name: cell for cell in cells}
    header = (
        "policy",
        "decoder",
        "handover",
        "seam / swapping's",
        "success, points against delay 0",
        "pairs",
        "target",
    )
    lines = []
    for name, cell in known.items():
        at_once = replace(name, handover="swap" if name.handover == "pause" else name.handover, delay=0)
        swap, calm = known.get(replace(name, handover="swap")), known.get(at_once)
        if name.delay != delay or not delay or swap is None or calm is None:
            continue
        ratio, own, rest = seam_ratio(cell, swap), cell.won(), calm.won()
        shared = [(own[start], rest[start]) for start in sorted(own.keys() & rest.keys())]
        lost = paired_over_seeds([shared])
        seam = "-" if ratio is None else f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        success = f"{100 * lost.value:+.0f} [{100 * lost.low:+.0f}, {100 * lost.high:+.0f}]"
        target = "-" if name.handover != "rank" else _verdict(ratio, lost)
        lines.append((name.policy, name.decoder, name.handover, seam, success, str(len(shared)), target))
    return markdown(header, lines) if lines else ""


def seam_ratio(cell: Cell, swap: Cell) -> PairedDifference | None:
    """Mean seam of a cell over that of swapping from the same starts; the interval is linear in the pairs."""
    ours, theirs = (dict(zip(each.starts, each.values("seam"), strict=True)) for each in (cell, swap))
    pairs = [(ours[start], theirs[start]) for start in ours.keys() & theirs.keys()]
    pairs = sorted(pair for pair in pairs if all(map(math.isfinite, pair)))
    usual = math.fsum(each for _, each in pairs) / len(pairs) if pairs else 0.0
    if not usual:
        return None
    ratio = math.fsum(own for own, _ in pairs) / len(pairs) / usual
    return interval([ratio + (own - ratio * other) / usual for own, other in pairs])


def _verdict(ratio: PairedDifference | None, lost: PairedDifference) -> str:
    seam = "seam -" if ratio is None else f"seam {'reached' if ratio.value <= SEAM_TARGET else 'not reached'}"
    return f"{seam}, success {'reached' if lost.value >= -SUCCESS_TARGET else 'not reached'}"


def delay_figure(scene: str, cells: Sequence[Cell]) -> Figure:
    """Seam and success over the delay, a panel each per policy and decoder."""
    panels = []
    for policy, decoder in dict.fromkeys((cell.name.policy, cell.name.decoder) for cell in cells):
        mine = [cell for cell in cells if (cell.name.policy, cell.name.decoder) == (policy, decoder)]
        delays = [float(cell.name.delay) for cell in mine]
        seams = [SEAM_SCALE * found.value for cell in mine if (found := interval(cell.values("seam")))]
        seam_axis = Axis(*data_range([0.0, *seams]), "action units / 1000")
        for title, axis in (("Seam", seam_axis), ("Success", PERCENT)):
            alt = f"{title} over the delay in steps for every handover of {policy}, {decoder}"
            x = Axis(*data_range(delays, least=1.0), "delay, steps")
            panel = Panel(f"{title}: {policy}, {decoder.partition('(')[0]}", x, axis, alt)
            for handover in dict.fromkeys(cell.name.handover for cell in mine):
                points = []
                for cell in (cell for cell in mine if cell.name.handover == handover):
                    won = 100 * sum(cell.successes) / len(cell.successes)
                    seam = interval(cell.values("seam"))
                    value = won if title == "Success" else SEAM_SCALE * seam.value if seam else None
                    if value is not None:
                        points.append((cell.name.delay, value))
                if points:
                    steps, heights = zip(*sorted(points), strict=True)
                    panel.line(steps, heights, SHADES[handover])
                    panel.points(steps, heights, SHADES[handover])
            panels.append(panel)
    legend = [LegendEntry("line", shade, name) for name, shade in SHADES.items()]
    return Figure(
        f"real_time_{scene}", "Delays", f"Seam and success over the delay: {TITLES[scene]}.", panels, 2, legend
    )


def seam_line(report: SeamReport) -> str:
    """Where the seams of rank handover come from."""
    inside, outside = ("-" if each is None else f"{each:.2f}" for each in (report.inside_ratio, report.outside_ratio))
    return (
        f"In {100 * report.inside:.1f} % of the motion coordinates at seams (median, rank handover, delay {DELAY}) the"
        f" old plan lies inside the new law; there the jump is {inside} of the way to the new median. Where it lies"
        f" outside, the jump is {outside} of that way: the chunk stays inside the law.\n"
    )


def cost_table(costs: Mapping[str, ReplanCost]) -> str:
    """Passes and times of a replan."""
    header = ("policy", "expert passes", "ms, from nothing", "ms, taking over")
    lines = [
        (
            name,
            str(cost.expert_passes),
            f"{cost.plain_ms:.1f}",
            "-" if cost.joined_ms is None else f"{cost.joined_ms:.1f}",
        )
        for name, cost in costs.items()
    ]
    return markdown(header, lines)


def side_lines(counts: Mapping[str, tuple[int, int, int]]) -> list[str]:
    """How many episodes kept their side."""
    return [
        f"- {name}: {passed - changed} of {passed} that passed kept the side they began with ({everyone} episodes)"
        for name, (changed, passed, everyone) in counts.items()
    ]


def push_lines(reports: Mapping[str, PushReport]) -> list[str]:
    """How soon surprise rose."""
    return [
        f"- {name}: AUROC {report.auroc:.2f} within {WINDOW} steps of the push; alarm in {100 * report.alarmed:.0f} %,"
        f" {report.median_steps:.0f} steps after it in the median ({report.episodes} pairs)"
        for name, report in reports.items()
    ]
