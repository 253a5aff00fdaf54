"""Figures of a calibration record: what a reader takes from them is in the picture."""

import re

import numpy as np
import pytest

from lerobot_policy_quantile.calibration.figures import fullest, reliability_figure, shortened, steps_figure
from lerobot_policy_quantile.calibration.page import make_page
from lerobot_policy_quantile.calibration.scores import Bootstrap, score_record
from lerobot_policy_quantile.calibration.tallies import Tally, tally
from lerobot_policy_quantile.core.levels import quantile_levels
from tests.calibration.test_scores import normal_law

LEVELS = [float(level) for level in quantile_levels()]


def a_record(scale=1.0, unreached=False):
    """Two policies with true laws but for their scale, and three baselines that score the same."""
    rng = np.random.default_rng(0)
    laws = [normal_law(rng, scale=scale) for _ in range(4)]
    for law in laws:
        law.valid[:, -1] &= not unreached
    tallies = Tally.stacked([tally(law, quantile_levels()) for law in laws])
    scores = score_record(
        tallies, dict.fromkeys(("constant", "gaussian", "persistence"), tallies), np.ones(2), Bootstrap(4),
        distribution=True,
    )  # fmt: skip
    heads = [
        ("ours", "quantile", "quantiles", None),
        ("flow", "flow", "4 samples", 4),
        ("flow", "flow", "9 samples", 9),
    ]
    laws = [
        {"policy": p, "head": h, "law": law, "samples": n, "baseline": False, "expert_passes": 1, **scores}
        for p, h, law, n in heads
    ]
    laws += [
        {"policy": "ours", "head": "quantile", "law": name, "samples": None, "baseline": True, "expert_passes": 0}
        | scores
        for name in ("constant", "gaussian", "persistence")
    ]
    policies = [{"name": name, "levels": LEVELS} for name in ("ours", "flow")]
    return {
        "dataset": "<set> & more", "episodes": [0, 1, 2, 3], "frames": 160, "every": 5, "interval": {"level": 0.95},
        "dimensions": ["dx", "gripper"], "policies": policies, "notes": ["a <note>"], "laws": laws,
    }  # fmt: skip


def test_a_narrow_law_is_drawn_off_the_diagonal():
    honest, narrow = (reliability_figure(a_record(scale)).panels[0] for scale in (1.0, 0.4))
    furthest = [float(re.search(r": ([\d.]+)$", panel.subtitle)[1]) for panel in (honest, narrow)]
    level = [float(re.search(r"level ([\d.]+):", panel.subtitle)[1]) for panel in (honest, narrow)]
    assert abs(furthest[0] - level[0]) < 0.06
    assert abs(furthest[1] - level[1]) > 0.15


def test_of_a_flow_policy_the_most_samples_are_shown_per_dimension():
    assert [law["law"] for law in fullest(a_record())] == ["quantiles", "9 samples"]


def test_names_at_the_ends_of_equal_lines_do_not_lie_on_each_other():
    text = steps_figure(a_record()).panels[0].inner()
    places = [float(y) for y in re.findall(r'<text x="213.0" y="([\d.]+)"', text)]
    assert len(places) == 6
    assert np.diff(sorted(places)).min() == pytest.approx(13, abs=0.2)


@pytest.mark.filterwarnings("error")
def test_chunk_steps_beyond_the_end_of_every_episode_are_not_drawn():
    record = a_record(unreached=True)
    assert record["laws"][0]["crps"]["by_step"]["value"][-1] is None
    text = make_page(record)
    assert "nan" not in text
    assert "None" not in text


def test_words_from_outside_are_escaped():
    page = make_page(a_record())
    assert "&lt;set&gt; &amp; more" in page
    assert "a &lt;note&gt;" in page
    assert "<set>" not in page


def test_long_names_keep_their_end():
    assert shortened("x" * 30 + "/policy, quantiles", 20) == "...policy, quantiles"
    assert shortened("short") == "short"
