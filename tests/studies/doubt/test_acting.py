"""Tables of the acting and the bounds study, and what a study costs, from figures made by hand."""

from dataclasses import asdict

import numpy as np

from lerobot_policy_quantile.calibration.alarm_fit import RecordedEpisode
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.studies.doubt import cost
from lerobot_policy_quantile.studies.doubt.acting import Acted, adaptive_threshold, arm_table
from lerobot_policy_quantile.studies.doubt.bounds import opening, sections
from lerobot_policy_quantile.studies.doubt.cost import WorkCost, _kept, cost_table
from lerobot_policy_quantile.studies.doubt.figures import acting_figure, bounds_figure
from tests.support.rows import row


def acted(*outcomes):
    """`s`olved in 100 steps, `f`ailed at the limit of 280, `e`nded at step 50; ten steps per look."""
    steps = {"s": 100, "f": 280, "e": 50}
    rows = {
        (0, i): row("libero_spatial", 0, i, status="success" if way == "s" else "failure", steps=steps[way])
        for i, way in enumerate(outcomes)
    }
    return Acted(rows, {at: own.steps // 10 for at, own in rows.items()})


def test_arms_are_paired_and_stops_are_told_by_what_they_cost():
    table = arm_table({"fixed ten": acted(*"ssff"), "fixed five": acted(*"sssf"), "ten, stop on alarm": acted(*"seef")})
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    ten, five, stop = lines[2:5]
    assert ten[:2] == ["fixed ten", "2 of 4"]
    assert ten[3] == "-"
    assert five[3] == "1 / 0 (p = 1)"
    assert stop[3:7] == ["0 / 1 (p = 1)", "0 / 2 (p = 0.5)", "1", "1"]
    assert stop[7:9] == ["12.0", "10.0"]


def test_the_adaptive_threshold_gives_five_steps_per_look_and_leaves_the_gripper_out():
    """Spread n / 100 at step n: a threshold of 0.04 is passed by five steps."""
    levels = quantile_levels().double().numpy()
    law = np.zeros((10, 3, len(levels)))
    law[:, :2] = (0.01 * np.arange(10) / 0.8)[:, None, None] * (levels - 0.5)
    law[:, 2] = 50 * (levels - 0.5)
    known = [RecordedEpisode(row("libero_spatial"), np.array([0, 10]), np.stack([law, law]))]
    assert adaptive_threshold(known) == 0.04


def test_the_figure_has_every_arm_where_its_passes_and_successes_are():
    arms = {"fixed ten": acted(*"ssff"), "fixed five": acted(*"sssf")}
    (panel,) = acting_figure((name, own.passes, asdict(own.rate)) for name, own in arms.items()).panels
    assert panel.alt == "fixed ten: 50 % with 19.0; fixed five: 75 % with 14.5"
    assert "fixed five</text>" in panel.svg()


def estimate(value):
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def test_the_bounds_page_has_shares_passes_and_a_verdict():
    conformal = [
        {
            "mass": mass,
            "coverage_before": estimate(0.4),
            "coverage": estimate(after),
            "width_before": estimate(0.1),
            "width": estimate(0.2),
        }
        for mass, after in ((0.5, 0.51), (0.8, 0.765))
    ]
    quantile = {"policy": "quantile", "law": "quantiles", "expert_passes": 1, "crps": estimate(0.05)}
    flow = {"policy": "flow", "law": "50 samples", "expert_passes": 500, "crps": estimate(0.06)}
    constant = {"policy": "quantile", "law": "constant", "expert_passes": 0, "crps": estimate(0.2), "baseline": True}
    laws = [quantile | {"conformal": conformal, "baseline": False}, flow | {"baseline": False}, constant]
    record = {"laws": laws, "episodes": [1, 3], "policies": [{"bounds": {"episodes": [0, 2]}}]}
    text = "\n".join([opening(record), *sections(record)])
    assert "shares are not within 2 points of the nominal ones; the farthest is -3.5 points away" in text
    assert "| 50 % | 40.0 % (39.0 to 41.0) | 51.0 % (50.0 to 52.0) |" in text
    assert "| flow | 50 samples | 500 | 0.0600 (0.0500 to 0.0700) |" in text
    assert "constant" not in text
    shares, costs = bounds_figure(record).panels
    assert "nominal 80 %: 40 % inside before the correction, 76 % after it" in shares.alt
    assert costs.alt == "quantile by quantiles: 0.05; flow by 50 samples: 0.06"


def test_costs_add_up():
    text = cost_table([WorkCost("episodes", 120, 30.0), WorkCost("updates", 600, 0.1)], workers=2)
    assert "about 30 minutes on 2 idle cores" in text
    assert "61" in text


def test_what_was_timed_is_kept_and_what_a_kill_left_is_timed_anew(tmp_path):
    left = tmp_path / "timed" / "half"
    left.mkdir(parents=True)
    made = []

    def run():
        assert not left.exists()
        made.append(sum(range(100_000)))
        (tmp_path / "timed").mkdir()
        return 2

    first = _kept(tmp_path / "timed", run)
    assert _kept(tmp_path / "timed", run) == first
    assert (first[0] >= 0, first[1]) == (True, 2)
    assert len(made) == 1


def test_starting_is_no_part_of_what_an_episode_costs(tmp_path, monkeypatch):
    """9 seconds to start, 2 per episode of two tasks."""
    clock = [0.0]
    monkeypatch.setattr(cost, "_spent", lambda: clock[0])

    def run(name, states):
        (tmp_path / name).mkdir()
        clock[0] += 9 + 2 * 2 * len(states)
        return 2 * len(states)

    assert cost._per_episode(tmp_path, run) == 2
