"""Figures of a plan: ours with an interval, the paper's number or range in the same row."""

from xml.etree import ElementTree

from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.studies.plan_figures import figures_of
from tests.support.rows import rows

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")


def test_every_variant_has_a_row_with_the_papers_number_beside_it():
    made = [r for scene in SUITES for name, wins in (("quantile", 19), ("l1", 12)) for r in rows(
        scene, 0, wins, 20, policy=f"{name}#0", decoder="median"
    )]  # fmt: skip
    figure = figures_of("ablations", made, Facts())["libero"]
    assert figure.title == "LIBERO, Avg."
    (panel,) = figure.panels
    assert panel.alt == "quantile: 95.0 % of 80 episodes, paper 99.3 %; l1: 60.0 % of 80 episodes, paper 97.3 %"
    ElementTree.fromstring(figure.svg_file())


def test_a_sweep_on_one_suite_is_drawn_by_that_suite_and_a_range_has_two_ends():
    made = [r for name in ("K15", "K21") for r in rows("libero_10", 0, 9, 10, policy=name, decoder="median")]
    figure = figures_of("k_sweep", made, Facts())["libero"]
    assert figure.title == "LIBERO, Long"
    assert "K15: 90.0 % of 10 episodes, paper 98.3 to 98.6 %; K21: 90.0 %" in figure.panels[0].alt


def test_decoders_of_one_policy_have_rows_of_their_own():
    decoders = ("median", "window(l=0.4, rho=0.7, T=0.35)")
    made = [r for d in decoders for r in rows("libero_10", 0, 5, 10, policy="quantile#0", decoder=d)]
    alt = figures_of("sampling", made, Facts())["libero"].panels[0].alt
    assert alt.startswith(
        "quantile: 50.0 % of 10 episodes, paper 98.6 %; quantile, window(l=0.4, rho=0.7, T=0.35): 50.0"
    )
    assert alt.endswith("paper 99.6 %")


def test_a_robot_is_compared_with_the_papers_two_methods():
    tasks = ("piper place apple on yellow plate", "piper remove cuboid from blue plate")
    made = [
        r
        for task in tasks
        for name in ("pi05#0", "quantile#0")
        for r in rows(task, 0, 1, 2, policy=name, decoder="median")
    ]
    alt = figures_of("real_robot", made, Facts())["piper"].panels[0].alt
    assert "paper 58.5" in alt
    assert "paper 75 %" in alt
