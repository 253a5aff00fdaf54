"""Scatter between seeds and episodes, the power of a study against simulation, and the pilot's page."""

import random

import pytest

from lerobot_policy_quantile.evaluation.tables.intervals import paired_over_seeds
from lerobot_policy_quantile.scenes.suite_demonstrations import TRAINING_STATES
from lerobot_policy_quantile.studies.miniature.page import page
from lerobot_policy_quantile.studies.miniature.pilot import difference_scatters, planned_episodes
from lerobot_policy_quantile.studies.miniature.power import Scatter, power, scatter_of, smallest_difference
from lerobot_policy_quantile.studies.miniature.summary import keep_summary
from lerobot_policy_quantile.studies.plans import Evaluation, load_study
from lerobot_policy_quantile.studies.plans.commands import Where, expand
from lerobot_policy_quantile.studies.plans.size import load_size
from tests.studies.test_miniature import journal_of, steps_of
from tests.support.rows import row

MINIATURE = load_size("miniature")
PILOT = load_study("pilot")


def study(draw, difference, deviation, seeds, episodes):
    """Paired outcomes around 0.5 + difference and 0.5; `deviation` between seeds of the difference."""
    made = []
    for _ in range(seeds):
        a = min(1.0, max(0.0, 0.5 + difference + draw.gauss(0, deviation)))
        made.append([(draw.random() < a, draw.random() < 0.5) for _ in range(episodes)])
    return made


def as_scatter(difference, deviation):
    """Two independent coins: their difference has the sum of their variances."""
    a = 0.5 + difference
    return Scatter(deviation**2, a * (1 - a) + 0.25)


@pytest.mark.parametrize(
    ("difference", "deviation", "seeds", "episodes"),
    [(0.2, 0.0, 3, 100), (0.3, 0.1, 3, 50), (0.2, 0.05, 5, 100), (0.0, 0.05, 3, 100), (0.3, 0.1, 2, 200)],
)
def test_power_is_the_share_of_simulated_studies_that_tell_the_difference(difference, deviation, seeds, episodes):
    """600 studies: three standard errors are at most 0.061."""
    draw = random.Random(11)
    told = sum(paired_over_seeds(study(draw, difference, deviation, seeds, episodes)).low > 0 for _ in range(600))
    assert power(difference, seeds, episodes, as_scatter(difference, deviation)) == pytest.approx(told / 600, abs=0.06)


@pytest.mark.parametrize("deviation", [0.0, 0.05])
def test_the_smallest_difference_is_told_in_eight_of_ten_simulated_studies(deviation):
    found = smallest_difference(3, 150, as_scatter(0.2, deviation))
    draw = random.Random(3)
    told = sum(paired_over_seeds(study(draw, found, deviation, 3, 150)).low > 0 for _ in range(600))
    assert told / 600 == pytest.approx(0.8, abs=0.06)


def test_more_seeds_and_episodes_show_less_and_wide_scatter_shows_nothing():
    scatter = as_scatter(0.1, 0.05)
    sizes = [smallest_difference(*plan, scatter) for plan in ((3, 50), (3, 200), (6, 200))]
    assert sizes == sorted(sizes, reverse=True)
    assert smallest_difference(2, 10, Scatter(1.0, 0.5)) is None
    assert power(0.5, 3, 10, Scatter(0.0, 0.0)) == 1.0
    for seeds, episodes in ((1, 10), (2, 0)):
        with pytest.raises(ValueError, match="two seeds and one episode"):
            power(0.1, seeds, episodes, scatter)


def test_scatter_recovers_both_variances():
    draw, found = random.Random(5), []
    for _ in range(300):
        centres = [draw.gauss(0.3, 0.1) for _ in range(3)]
        found.append(scatter_of([[centre + draw.gauss(0, 0.5) for _ in range(100)] for centre in centres]))
    assert sum(each.episodes for each in found) / 300 == pytest.approx(0.25, rel=0.05)
    assert sum(each.seeds for each in found) / 300 == pytest.approx(0.01, rel=0.2)
    with pytest.raises(ValueError, match=r"two seeds of two episodes or more; got \[3\]"):
        scatter_of([[0.0, 1.0, 1.0]])


def test_the_pilot_uses_no_state_that_a_study_is_judged_on():
    (evaluation,) = PILOT.evaluations
    states = MINIATURE.indices_of("pilot", evaluation)
    assert set(states) <= set(TRAINING_STATES)
    assert planned_episodes(MINIATURE, "pilot", evaluation) == 100
    (step,) = (each for each in expand(PILOT, Where(1280, "runs", "data"), MINIATURE) if each.kind == "eval")
    assert step.words[step.words.index("--indices") + 1] == "40-44"
    assert "--episodes" not in step.words
    assert len(step.labels) == 12
    assert step.folder == "runs/episodes/libero"


def test_planned_episodes_per_policy():
    both = "libero_object,libero_spatial"
    planned = {("main", "libero"): 800, ("ablations", both): 60, ("k_sweep", both): 60}
    planned |= {("main", "libero_plus"): 700, ("main", "libero_pro"): 320}
    for (study, suite), episodes in planned.items():
        assert planned_episodes(MINIATURE, study, Evaluation(suite)) == episodes


def outcomes(name, rates, episodes=20):
    draw = random.Random(name)
    return [
        row(scene, n % 10, 40 + n // 10, policy=f"{name}#{seed}", decoder="median",
            status="success" if draw.random() < rate else "failure")
        for seed, rate in enumerate(rates) for scene in ("libero_object", "libero_spatial") for n in range(episodes)
    ]  # fmt: skip


def test_the_pilots_page_has_scatter_and_power(tmp_path):
    made = [each for v in PILOT.variants for each in outcomes(v.name, (0.8, 0.7))]
    journal_of(tmp_path, made)
    kept = keep_summary(PILOT, steps_of(tmp_path), MINIATURE, tmp_path)
    text = page(kept, MINIATURE.applied(PILOT), MINIATURE)
    assert "## Claims" not in text
    assert "## Scatter" in text
    assert len(difference_scatters(kept, PILOT, "quantile")) == 5
    lines = [line for line in text.splitlines() if line.startswith("| main | libero | 3 | 800 |")]
    assert len(lines) == 1
    alike, pooled, widest = (float(cell) for cell in lines[0].split("|")[5:8])
    assert 5 < alike <= pooled <= widest
    traded = [line for line in text.splitlines() if line.startswith(("| 3 | ", "| 8 | "))]
    few, many = ([float(cell) for cell in line.split("|")[2:5]] for line in traded)
    assert many[0] < few[2], "eight seeds of 60 episodes tell more than three of 400"
    assert few == sorted(few, reverse=True)


def test_a_pilot_with_one_seed_says_what_it_lacks(tmp_path):
    journal_of(tmp_path, outcomes("quantile", (0.8,)) + outcomes("l1", (0.7,)))
    kept = keep_summary(PILOT, steps_of(tmp_path), MINIATURE, tmp_path)
    assert "need two seeds" in page(kept, MINIATURE.applied(PILOT), MINIATURE)
