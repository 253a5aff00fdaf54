"""The study's page and figure, from journals and side files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.svg import PERCENT, Axis, Panel, data_range
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import paired_over_seeds, wilson
from lerobot_policy_quantile.evaluation.tables.motion import MEASURES, EpisodeMotion, interval, motion_of, spelled
from lerobot_policy_quantile.studies.real_time.cost import ReplanCost
from lerobot_policy_quantile.studies.real_time.measures import WINDOW, PushReport
from lerobot_policy_quantile.util.tables import markdown

SHADES = {"pause": "muted", "swap": "l2", "ensemble": "l1", "rank": "quantile", "rtc": "flow"}


@dataclass(frozen=True)
class Cell:
    """The episodes of one policy, decoder, handover and delay."""

    policy: str
    decoder: str
    handover: str
    delay: int
    rows: tuple[Row, ...]
    motions: tuple[EpisodeMotion, ...]

    def values(self, measure: str) -> list[float]:
        """One number per episode."""
        return [MEASURES[measure](motion) for motion in self.motions]


def cells_of(rows: Sequence[Row], files: SideFiles) -> list[Cell]:
    """The rows by what they have in common, in the order of policy, decoder, handover and delay."""
    groups: dict[tuple[str, str, str, int], list[tuple[Row, EpisodeMotion]]] = {}
    for row in rows:
        if (motion := motion_of(row, files)) is not None:
            name = row.key.policy.rpartition("/")[0]
            key = (name, row.key.decoder, row.versions["handover"], int(row.versions["delay"]))
            groups.setdefault(key, []).append((row, motion))
    return [Cell(*key, *map(tuple, zip(*members, strict=True))) for key, members in sorted(groups.items())]


def delay_table(cells: Sequence[Cell]) -> str:
    """One line per cell with intervals."""
    header = ("policy", "decoder", "handover", "delay", "episodes", "success, %", *MEASURES)
    lines = []
    for cell in cells:
        won = sum(row.status == "success" for row in cell.rows)
        rate = wilson(won / len(cell.rows), len(cell.rows))
        success = f"{100 * rate.value:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
        figures = (spelled(cell.values(measure)) for measure in MEASURES)
        lines.append(
            (cell.policy, cell.decoder, cell.handover, str(cell.delay), str(len(cell.rows)), success, *figures)
        )
    return markdown(header, lines)


def target_lines(cells: Sequence[Cell], delay: int) -> list[str]:
    """At a delay: the seam beside that of swapping, and success beside that without delay, paired."""
    known = {(cell.policy, cell.decoder, cell.handover, cell.delay): cell for cell in cells}
    found = []
    for (policy, decoder, handover, steps), cell in known.items():
        swap, calm = known.get((policy, decoder, "swap", steps)), known.get((policy, decoder, handover, 0))
        if steps != delay or swap is None or calm is None or not delay:
            continue
        mine, theirs = (interval(each.values("seam")) for each in (cell, swap))
        ratio = f"seam {mine.value / theirs.value:.2f} of swapping's, " if mine and theirs and theirs.value else ""
        successes = [
            {(row.key.task, row.key.index, row.key.seed): row.status == "success" for row in each.rows}
            for each in (cell, calm)
        ]
        shared = [(successes[0][key], successes[1][key]) for key in sorted(successes[0].keys() & successes[1].keys())]
        lost = paired_over_seeds([shared])
        found.append(
            f"- {policy}, {decoder}, {handover}: {ratio}success {100 * lost.value:+.1f} points"
            f" [{100 * lost.low:+.1f}, {100 * lost.high:+.1f}] against delay 0 ({len(shared)} pairs)"
        )
    return found


def delay_figure(scene: str, cells: Sequence[Cell]) -> Figure:
    """Seam and success over the delay, a panel each per policy and decoder."""
    panels = []
    for policy, decoder in dict.fromkeys((cell.policy, cell.decoder) for cell in cells):
        mine = [cell for cell in cells if (cell.policy, cell.decoder) == (policy, decoder)]
        delays = [float(cell.delay) for cell in mine]
        seams = [found.value for cell in mine if (found := interval(cell.values("seam")))]
        for title, axis in (("Seam", Axis(*data_range([0.0, *seams]), "action units")), ("Success", PERCENT)):
            alt = f"{title} over the delay in steps for every handover of {policy}, {decoder}"
            x = Axis(*data_range(delays, least=1.0), "delay, steps")
            panel = Panel(f"{title}: {policy}, {decoder.partition('(')[0]}", x, axis, alt)
            for handover in dict.fromkeys(cell.handover for cell in mine):
                points = []
                for cell in (cell for cell in mine if cell.handover == handover):
                    won = 100 * sum(row.status == "success" for row in cell.rows) / len(cell.rows)
                    seam = interval(cell.values("seam"))
                    value = won if title == "Success" else seam.value if seam else None
                    if value is not None:
                        points.append((cell.delay, value))
                if points:
                    steps, heights = zip(*sorted(points), strict=True)
                    panel.line(steps, heights, SHADES[handover])
                    panel.points(steps, heights, SHADES[handover])
            panels.append(panel)
    legend = [LegendEntry("line", shade, name) for name, shade in SHADES.items()]
    return Figure(f"real_time_{scene}", "Delays", f"Seam and success over the delay in {scene}.", panels, 2, legend)


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
