import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lerobot_policy_quantile.drawing.figure import Figure, LegendEntry
from lerobot_policy_quantile.drawing.marks import SHAPES, mark, simplified
from lerobot_policy_quantile.drawing.svg import Axis, Panel, data_range, round_numbers


def panel(**changes):
    return Panel("Title", Axis(0, 10, "x"), Axis(-1, 1, "y"), alt="a plot", **changes)


def test_the_ends_of_the_axes_are_the_corners_of_the_plot_area():
    p = panel()
    assert (float(p.px(0)), float(p.px(10))) == (p.left, p.right)
    assert (float(p.py(-1)), float(p.py(1))) == (p.bottom, p.top)


def test_a_logarithmic_axis_has_its_middle_at_the_geometric_mean():
    axis = Axis(0.01, 1, log=True)
    assert float(axis.place(0.1)) == pytest.approx(0.5)
    assert [value for value, _ in axis.marks()] == pytest.approx([0.01, 0.1, 1])


@pytest.mark.parametrize(("low", "high"), [(0.13, 0.21), (0.05, 0.3), (0.001, 9), (0.9, 1.1)])
def test_a_logarithmic_axis_of_any_range_has_at_least_two_ticks(low, high):
    values = [value for value, _ in Axis(low, high, log=True).marks()]
    assert len(values) >= 2
    assert all(low <= value <= high for value in values)


@pytest.mark.parametrize(
    ("low", "high", "log"), [(1, 1, False), (0, float("nan"), False), (0, 1, True), (float("inf"), 1, False)]
)
def test_an_axis_without_a_range_is_refused(low, high, log):
    with pytest.raises(ValueError, match="low and high"):
        Axis(low, high, log=log)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e4), st.integers(2, 8))
def test_ticks_are_round_inside_and_about_as_many_as_asked(low, span, count):
    ticks = round_numbers(low, low + span, count)
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    assert count / 2 - 1 <= len(ticks) <= 2 * count
    steps = np.diff(ticks)
    if len(steps):
        digits = f"{steps[0]:.3e}"[:3]
        assert digits in ("1.0", "2.0", "5.0")
        assert np.allclose(steps, steps[0], rtol=1e-6)


@given(arrays(float, st.tuples(st.integers(0, 60), st.just(2)), elements=st.floats(-500, 500)))
def test_a_simplified_line_keeps_its_ends_and_stays_within_the_tolerance(points):
    kept = simplified(points, tolerance=0.5)
    if len(points):
        assert np.array_equal(kept[0], points[0])
        assert np.array_equal(kept[-1], points[-1])
    for point in points:
        assert distance_to_line(point, kept) <= 0.5 + 1e-6


def distance_to_line(point, line):
    if len(line) == 1:
        return np.linalg.norm(point - line[0])
    starts, ways = line[:-1], np.diff(line, axis=0)
    lengths = np.maximum((ways**2).sum(axis=1), 1e-12)
    along = np.clip(((point - starts) * ways).sum(axis=1) / lengths, 0, 1)
    return np.linalg.norm(starts + along[:, None] * ways - point, axis=1).min()


def test_a_straight_path_needs_two_points():
    line = np.stack([np.linspace(0, 100, 400), np.linspace(0, 50, 400)], axis=1)
    assert len(simplified(line)) == 2


def test_a_range_of_equal_or_absent_values_is_still_a_range():
    assert data_range([2.0, 2.0], least=0.1, margin=0) == pytest.approx((1.95, 2.05))
    low, high = data_range([], [float("nan")])
    assert low < high


def test_what_is_drawn_is_well_formed_and_words_cannot_become_markup():
    p = panel(subtitle='<b>&"')
    p.line([0, 5, 10], [0, 1, 0], "quantile")
    p.band([0, 10], [0, 0], [1, 1], "flow")
    p.bars([0, 5, 10], [0.5, 0], -1, "l1")
    p.rule(x=3.0)
    p.rule(y=0.5)
    p.area(np.array([[1, 0], [2, 0], [2, 1.0]]), "ink")
    p.text(5, 0, "<script>alert(1)</script>")
    for shape in SHAPES:
        p.points([5], [0], "left", shape)
    root = ET.fromstring(p.svg())
    assert root.attrib["aria-label"] == "a plot"
    assert not [e for e in root.iter() if e.tag.endswith(("script", "b"))]
    assert "<script>alert(1)</script>" in [e.text for e in root.iter("text")]
    assert len([e for e in root.iter("rect") if e.get("fill")]) == 1  # a bar of no height is none


def test_an_unknown_shape_is_refused_with_the_list():
    with pytest.raises(ValueError, match="circle, ring, cross"):
        mark(0, 0, "ink", "heart")


def test_a_figure_file_stands_alone_and_holds_every_panel_and_the_legend():
    legend = [LegendEntry("circle", "success", "success"), LegendEntry("cross", "failure", "failure")]
    figure = Figure("f", "F", "caption", [panel() for _ in range(5)], columns=3, legend=legend)
    text = figure.svg_file()
    root = ET.fromstring(text)
    words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("Title") == 5
    assert {"success", "failure"} <= set(words)
    assert "var(" not in text
    assert float(root.attrib["width"]) == 3 * 320 + 4 * 14
