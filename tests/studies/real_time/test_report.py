"""The study's page from rows and side files made by hand."""

from dataclasses import asdict, replace

import pytest

from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.motion import EpisodeMotion
from lerobot_policy_quantile.studies.real_time.cells import Cell, CellFile, CellName, cells_of
from lerobot_policy_quantile.studies.real_time.cost import ReplanCost
from lerobot_policy_quantile.studies.real_time.measures import PushReport
from lerobot_policy_quantile.studies.real_time.report import (
    COST,
    SHADES,
    cell_file,
    cost_table,
    delay_figure,
    delay_table,
    push_lines,
    seam_ratio,
    side_lines,
    target_table,
    write_report,
)
from lerobot_policy_quantile.util.files import write_json
from tests.evaluation.tables.test_motion import episode


@pytest.fixture
def cells(tmp_path):
    """Seams 0.5 (swap) and 0.1 (rank) at delay 4; swapping loses one of four episodes that it has without delay."""
    files = SideFiles(tmp_path, video=False)
    rows = []
    for handover, delay, jump in (("swap", 0, 0.3), ("swap", 4, 0.9), ("rank", 0, 0.1), ("rank", 4, 0.1)):
        for index in range(4):
            row = episode(files, index, jump=jump, policy=f"ours/{handover}-{delay}")
            lost = (handover, delay, index) == ("swap", 4, 0)
            versions = {"handover": handover, "delay": str(delay), "policy": "a1"}
            versions |= {"fade": "1 x 0^i"} if handover == "rank" else {}
            rows.append(replace(row, status="failure" if lost else "success", versions=versions))
    return cells_of(rows, files)


def test_a_line_per_cell_with_rates_and_seams(cells):
    assert [(cell.name.handover, cell.name.delay) for cell in cells] == [
        ("rank", 0),
        ("rank", 4),
        ("swap", 0),
        ("swap", 4),
    ]
    lines = delay_table(cells).splitlines()
    assert lines[2].startswith("| ours | median | rank | 0 | 4 | 100 [51, 100] | 0.1 [0.1, 0.1] |")
    assert "| swap | 4 | 4 | 75 [30, 95] | 0.5 [0.5, 0.5] |" in lines[5]


def test_targets_are_held_against_swapping_and_no_delay(cells):
    rank, swap = target_table(cells, 4).splitlines()[2:]
    assert rank == ("| ours | median | rank | 0.20 [0.20, 0.20] | +0 [-49, +49] | 4 | seam reached, success reached |")
    assert swap.startswith("| ours | median | swap | 1.00 [1.00, 1.00] | -25 [")
    assert swap.endswith("| 4 | - |")
    assert target_table(cells, 6) == ""


def test_a_ratio_of_seams_is_paired_by_start():
    """Ratios of 0.5 in pairs of any size: no pair says otherwise. One at 1 among four equal ones: 0.625 +- 0.4."""
    name, sizes = CellName("ours", "median", "rank", 4), (0.1, 0.2, 0.4, 0.8)

    def cell(seams):
        motions = [EpisodeMotion(seam, 0, 0, 0, 1, 0) for seam in seams]
        return Cell(name, "a1", tuple((0, i, 0) for i in range(4)), (True,) * 4, tuple(motions))

    found = seam_ratio(cell([0.5 * size for size in sizes]), cell(sizes))
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    found = seam_ratio(cell([0.1, 0.05, 0.05, 0.05]), cell([0.1] * 4))
    assert (found.value, found.low) == pytest.approx((0.625, 0.625 - 3.182 * 0.125), abs=1e-3)
    assert seam_ratio(cell(sizes), cell([float("nan")] * 4)) is None


def test_cells_are_kept_with_their_episodes_and_told_from_those_of_other_policies(cells, tmp_path):
    kept = CellFile(tmp_path / "kept" / "cells.json")
    kept.add(cells[:2])
    kept.add(cells[1:])
    found = kept.read()
    assert [replace(cell, motions=()) for cell in found] == [replace(cell, motions=()) for cell in cells]
    for one, other in zip(found, cells, strict=True):
        assert one.values("path jerk") == pytest.approx(other.values("path jerk"), rel=1e-4), "five digits are kept"
    first = cells[0]
    assert first.starts == ((0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0))
    assert kept.have(first.name, "a1", "1 x 0^i", first.starts)
    assert not kept.have(first.name, "b2", "1 x 0^i", first.starts), "another policy"
    assert not kept.have(first.name, "a1", "1 x 0^i", first.starts[:3]), "other episodes"
    assert not kept.have(replace(first.name, delay=2), "a1", "1 x 0^i", first.starts)
    assert not kept.have(first.name, "a1", "1 x 0.5^i", first.starts), "another fade"


def test_the_page_has_the_parts_that_have_files(cells, tmp_path):
    cell_file(tmp_path, "embedded").add(cells)
    write_json(tmp_path / COST, {"quantile": asdict(ReplanCost(1, 12.34, 12.5))})
    page = write_report(tmp_path, ("embedded", "libero_object")).read_text()
    assert "## Delays: embedded scene" in page
    assert "## Cost of a replan" in page
    assert "Digests of the policies' weights: ours `a1`. Rank handover's weight in the i-th step after the" in page
    assert "delay: `1 x 0^i`." in page
    assert "real_time_libero_object" not in page
    assert "## Surprise" not in page
    assert "real_time_embedded.svg" in page
    assert (tmp_path / "real_time_embedded.svg").is_file()


def test_the_figure_has_a_line_per_handover(cells):
    svg = delay_figure("embedded", cells).svg_file()
    assert svg.count("<path") == 4 + len(SHADES), "two handovers in two panels, and the legend"
    assert "Success: ours, median" in svg


def test_cost_sides_and_pushes_are_spelled():
    text = cost_table({"quantile": ReplanCost(1, 12.34, 12.5), "l1": ReplanCost(1, 12.0, None)})
    assert "| quantile | 1 | 12.3 | 12.5 |" in text
    assert "| l1 | 1 | 12.0 | - |" in text
    assert side_lines({"ours/rank-4": (1, 50, 60)}) == [
        "- ours/rank-4: 49 of 50 that passed kept the side they began with (60 episodes)"
    ]
    assert "AUROC 0.91" in push_lines({"ours": PushReport(40, 0.914, 0.85, 6.0)})[0]
