from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.studies.two_demo.records import Arm, Check, Cost, Curve, RolloutRecord, Study, load_study
from lerobot_policy_quantile.studies.two_demo.report import findings

SHARED = "shared(l=0, rho=0.9)"
NATIVE = "native(l=0.1, rho=0.9, T=0.35)"


def rollouts(head, decoder, won, lost, *, sides="", errors=0, seeds=3):
    statuses = ["success"] * won + ["failure"] * lost + ["error"] * errors
    passed = [{"l": "left", "r": "right"}.get(side) for side in sides.ljust(len(statuses))]
    return [
        RolloutRecord(
            head=head, decoder=decoder, training_seed=number % seeds, episode=number, status=status, steps=9,
            contacts=0, first_action=None, key=EpisodeKey("embedded", 0, 0, number, f"{head}-0", decoder),
            files=SideFiles(Path("nowhere")), side=side,
        )
        for number, (status, side) in enumerate(zip(statuses, passed, strict=True))
    ]  # fmt: skip


def study_of(*episodes, obstacle=True, settings=None, **parts):
    name = "embedded+obstacle" if obstacle else "embedded"
    arm = Arm(
        name=name, folder=Path(name), obstacle=obstacle, instruction="take it", limit=600, versions={},
        rollouts=tuple(chain(*episodes)), **parts,
    )  # fmt: skip
    return Study(Path("study"), {"arms": [name], "seeds": 1, "decoders": [], **(settings or {})}, (arm,))


def test_a_rate_agrees_when_the_papers_lies_inside_our_interval():
    study = study_of(rollouts("quantile", SHARED, 1, 9), rollouts("quantile", NATIVE, 9, 1))
    (native, shared) = findings.differences(study)  # the larger difference first
    assert (native.name, native.verdict, native.points) == ("native ranks", "higher here", "+89 points")
    assert (shared.verdict, shared.ours, shared.paper) == ("agrees", "10 % (1/10)", "6 %")


def test_a_lower_rate_is_called_lower():
    (only,) = findings.differences(study_of(rollouts("quantile", SHARED, 2, 18), obstacle=False))
    assert (only.verdict, only.points) == ("lower here", "\N{MINUS SIGN}82 points")


def test_a_deterministic_decoder_agrees_only_when_it_is_the_same():
    study = study_of(rollouts("quantile", "median", 0, 6), rollouts("l1", "own", 1, 2))
    l1, median = findings.differences(study)
    assert (l1.verdict, l1.interval) == ("higher here", "deterministic")
    assert (median.verdict, median.points) == ("agrees", "none")


def test_one_trained_policy_is_too_few_to_judge_deterministic_episodes():
    parts = [
        rollouts("quantile", "median", 0, 2, seeds=1),
        rollouts("l1", "own", 1, 0, seeds=1),
        rollouts("quantile", SHARED, 9, 1, sides="lr", seeds=1),
    ]
    study = study_of(*parts)
    assert {d.name: d.verdict for d in findings.differences(study)} == {
        "shared rank": "higher here",
        "L1": findings.UNJUDGED,
        "median": findings.UNJUDGED,
    }
    verdicts = [verdict for _, _, verdict in findings.claims(study)]
    assert verdicts == [findings.UNJUDGED, findings.UNJUDGED, "holds"]


def test_decoders_that_the_paper_does_not_have_are_not_compared():
    assert findings.differences(study_of(rollouts("quantile", "tracking(w=0.2, n=2)", 3, 0))) == []


@pytest.mark.parametrize(
    ("median_wins", "sides", "flow_wins", "verdicts"),
    [
        (0, "lr", 0, ["holds", "holds", "holds", "holds"]),
        (3, "lr", 0, ["does not hold", "does not hold", "holds", "holds"]),
        (0, "ll", 0, ["holds", "holds", "does not hold", "holds"]),
        (0, "lr", 4, ["holds", "holds", "holds", "does not hold"]),
    ],
)
def test_the_papers_statements_are_judged_by_the_numbers(median_wins, sides, flow_wins, verdicts):
    study = study_of(
        rollouts("quantile", "median", median_wins, 3 - median_wins),
        rollouts("quantile", SHARED, 2, 2, sides=sides),
        rollouts("flow", "own", flow_wins, 4 - flow_wins),
    )
    assert [verdict for _, _, verdict in findings.claims(study)] == verdicts


def test_the_best_are_named_with_their_ties_and_their_sides():
    study = study_of(rollouts("quantile", SHARED, 3, 1, sides="llr"), rollouts("quantile", NATIVE, 3, 1, sides="lll"))
    ((_, words),) = findings.summary(study)
    assert "Best of 2 sampling decoders" in words
    assert "shared rank and another, 3/4" in words
    assert "2 of these successes pass on the left, 1 on the right" in words


def test_where_nothing_succeeds_no_decoder_is_called_best():
    study = study_of(rollouts("quantile", SHARED, 0, 4), rollouts("quantile", NATIVE, 0, 4))
    ((_, words),) = findings.summary(study)
    assert "None of 2 sampling decoders" in words
    assert findings.cards(study)[0].words == "embedded, with obstacle: no sampling decoder succeeds"


def test_a_median_is_never_the_best_sampler():
    assert findings.best_samplers(study_of(rollouts("quantile", "median", 2, 0)).arms[0]) == []


def test_the_headline_counts_failed_checks_and_divides_the_expert_times():
    checks = (Check("training", "a", "0", True), Check("training", "b", "9", False))
    costs = {0: (Cost("quantile", 1, 10.0, 2.0, 5), Cost("flow", 10, 10.0, 19.0, 5))}
    figures = [card.figure for card in findings.cards(study_of(checks=checks, costs=costs))]
    assert figures == ["9.5x", "1/2"]


def test_what_is_missing_is_said():
    curve = Curve("l1", np.array([10]), np.array([0.1]), 1.0)
    study = study_of(
        rollouts("quantile", SHARED, 1, 1, errors=1),
        rollouts("quantile", NATIVE, 1, 0),
        curves={0: {"l1": curve}},
        settings={
            "arms": ["embedded+obstacle", "libero_object"],
            "decoders": [["quantile", SHARED], ["quantile", NATIVE], ["flow", "own"]],
        },
    )
    said = " ".join(findings.missing(study))
    for words in (
        "libero_object: not begun",
        "no demonstrations",
        "no verification",
        "draws at the shared start of training seed 0",
        "cost per replan of training seed 0",
        "not trained to the end: Quantile head (seed 0), L2 (seed 0), Flow matching (seed 0)",
        "no episode yet: Flow matching",
        "fewer episodes than the 3 of the others: native ranks 1",
        "1 episodes ended in an error",
        "3 episodes have no side file",
    ):
        assert words in said


def test_decoders_for_the_obstacle_are_not_missed_without_it():
    settings = {"decoders": [["quantile", SHARED], ["quantile", "densest"]], "obstacle_decoders": ["densest"]}
    free = study_of(rollouts("quantile", SHARED, 1, 0), obstacle=False, settings=settings)
    assert not [words for words in findings.missing(free) if "no episode yet" in words]
    blocked = study_of(rollouts("quantile", SHARED, 1, 0), settings=settings)
    assert [words for words in findings.missing(blocked) if "no episode yet: densest interval" in words]


def test_a_whole_study_misses_nothing(study_folder):
    assert findings.missing(load_study(study_folder)) == []


def test_the_length_of_training_is_set_beside_the_papers():
    curves = {0: {"l1": Curve("l1", np.array([100, 6000]), np.array([1.0, 0.1]), 1.0)}}
    assert "Updates per head: 6,000; as the paper." in findings.circumstances(study_of(curves=curves))
    curves = {0: {"l1": Curve("l1", np.array([100, 3000]), np.array([1.0, 0.1]), 1.0)}}
    assert "Updates per head: 3,000; the paper 6,000." in findings.circumstances(study_of(curves=curves))


@pytest.mark.parametrize(
    ("median", "l1", "verdict"),
    [((0, 8), (1, 7), "holds"), ((0, 8), (4, 4), "cannot be told"), ((0, 8), (8, 0), "does not hold")],
)
def test_nearby_starts_give_regression_a_rate_that_is_told_by_its_interval(median, l1, verdict):
    nearby = [*rollouts("quantile", "median", *median, seeds=1), *rollouts("l1", "own", *l1, seeds=1)]
    study = study_of(nearby=tuple(nearby))
    ((statement, seen, told),) = findings.claims(study)
    assert "from nearby starts median, L1 and L2 fail more often than not" in statement
    assert f"L1 {l1[0]}/{sum(l1)}" in seen
    assert told == verdict
    assert findings.missing(study) == findings.missing(study_of()), "nearby starts are no episodes of the study's own"
