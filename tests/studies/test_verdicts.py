"""Does the paper hold: claims on two demonstrations, theory, time and spread, and the page over all studies."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.core.theory.checks import TheoryCheck
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.evaluation.tables.intervals import mean_over_seeds
from lerobot_policy_quantile.evaluation.tables.published import published_tables
from lerobot_policy_quantile.studies.miniature.claims import all_claims, claims_of, compared_seconds, found_in, judge
from lerobot_policy_quantile.studies.miniature.costs import StudyCosts, costs_of, costs_table
from lerobot_policy_quantile.studies.miniature.page import page
from lerobot_policy_quantile.studies.miniature.spread import compared_spread, episode_spread, spreads_in
from lerobot_policy_quantile.studies.miniature.summary import keep_summary, read_summary
from lerobot_policy_quantile.studies.miniature.two_demo_claims import found_in_two_demo
from lerobot_policy_quantile.studies.miniature.verdicts import SECTIONS, theory_lines, verdict_lines, verdict_page
from lerobot_policy_quantile.studies.plan_training import UpdateTimes, keep_figures
from lerobot_policy_quantile.studies.plans import load_study
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where, expand
from lerobot_policy_quantile.studies.two_demo.paper import paper_rate
from lerobot_policy_quantile.studies.two_demo.records import Cost
from lerobot_policy_quantile.studies.two_demo.summary import ArmSummary, Outcomes
from tests.studies.test_miniature import MINIATURE, journal_of, outcomes, steps_of
from tests.support.rows import row

ARM = "libero_object+obstacle"
SHARED, MEDIAN = "shared(l=0, rho=0.9)", "median"


def claim_on(study, direction, a, b=None):
    return next(c for c in claims_of(study) if (c.direction, c.a, c.b) == (direction, a, b))


def arm(seed, *lines):
    costs = (Cost("quantile", 1, 1.0, 1.0, 1, 1.0), Cost("flow", 10, 1.0, 9.0, 1, 1.0))
    made = tuple(Outcomes(head, decoder, letters, 1.0, 0) for head, decoder, letters in lines)
    return ArmSummary(ARM, seed, {}, {}, 50, (), 0, 0, costs, made)


def test_every_claim_has_a_section_a_place_and_figures_of_its_own():
    claims = all_claims()
    assert {claim.study for claim in claims} == set(SECTIONS) - {"theory"}
    assert all(claim.place and claim.text.endswith(".") for claim in claims)
    assert len({(c.study, c.suite, c.text) for c in claims}) == len(claims)


def test_figures_on_two_demonstrations_and_the_robot_are_the_papers():
    for claim in claims_of("two_demo"):
        lines = [claim.a] if claim.b is None else [claim.a, claim.b]
        if claim.measure == "success":
            assert claim.paper == tuple(paper_rate("+" in claim.suite, *line) for line in lines), claim.text
    (rows,) = published_tables("piper").values()
    rates = {r.variant: list(r.rates.values()) for r in rows}
    pairs = [claim.paper for claim in claims_of("real_robot")]
    assert pairs == list(zip(rates["quantile"][:2], rates["pi05"][:2], strict=True))


def test_samplers_are_paired_by_episode_and_a_deterministic_line_stands_for_all():
    above = claim_on("two_demo", "above", ("quantile", SHARED), ("quantile", MEDIAN))
    summaries = [arm(seed, ("quantile", SHARED, 10 * "LRlLe"), ("quantile", MEDIAN, "nn")) for seed in range(3)]
    found = found_in_two_demo(above, summaries)
    assert (found.a, found.b, found.episodes, found.seeds) == (0.75, 0.0, 120, 3)
    assert judge(above, found) == "holds"
    assert found_in_two_demo(above, [arm(0, ("quantile", SHARED, "L"))]) is None


@pytest.mark.parametrize(
    ("letters", "verdict"),
    [(["nn", "nn", "n"], "holds"), (["nn", "nN"], "does not hold"), (["n"], "cannot be told"), ([], "not run")],
)
def test_one_success_ends_a_never_and_one_seed_is_too_few_for_it(letters, verdict):
    never = claim_on("two_demo", "never", ("quantile", MEDIAN))
    summaries = [arm(seed, ("quantile", MEDIAN, text)) for seed, text in enumerate(letters)]
    assert judge(never, found_in_two_demo(never, summaries)) == verdict


def test_one_expert_pass_against_ten():
    (passes,) = (claim for claim in claims_of("two_demo") if claim.measure == "passes")
    found = found_in_two_demo(passes, [arm(0), arm(1)])
    assert (found.a, found.b) == (1, 10)
    assert judge(passes, found) == "holds"


def test_lines_of_two_studies_are_compared_on_shared_instances(tmp_path):
    claim = next(each for each in claims_of("main_fine_tuned") if each.b_study)

    def summary(study, name, wins):
        made = []
        for seed, won in enumerate(wins):
            states = ["success" if n < won else "failure" for n in range(20)]
            named = {"policy": f"{name}#{seed}", "decoder": "median"}
            made += [row("libero_plus_10", n, status=status, **named) for n, status in enumerate(states)]
        steps = steps_of(tmp_path / study)
        journal_of(tmp_path / study, made)
        return keep_summary(load_study(study), steps, MINIATURE, tmp_path)

    both = {"main": summary("main", "quantile", (4, 5, 3))}
    both["main_fine_tuned"] = summary("main_fine_tuned", "quantile-sft", (18, 19, 17))
    (line,) = (each for each in verdict_lines(both, [], []) if each.cells[0] == claim.text)
    assert line.cells[3] == "90.0 vs 20.0"
    assert line.verdict == "holds"
    (line,) = (each for each in verdict_lines({"main": both["main"]}, [], []) if each.cells[0] == claim.text)
    assert line.verdict == "not run"


def test_never_is_read_from_a_studys_rows_too():
    never = claim_on("r_sweep", "never", ("r1.0", "median"))
    assert judge(never, found_in(never, outcomes("r1.0", (0, 0, 0)))) == "holds"
    assert judge(never, found_in(never, outcomes("r1.0", (0, 1, 0)))) == "does not hold"


def test_episode_time_is_compared_seed_by_seed_failures_included():
    def run(name, steps):
        return [
            row("libero_10", 0, n, policy=f"{name}#{seed}", decoder="median", steps=each + 10 * n, status="failure")
            for seed, each in enumerate(steps)
            for n in range(2)
        ]

    a, b = ("quantile", "median"), ("l1", "median")
    found = compared_seconds(run("quantile", (100, 110, 90)) + run("l1", (140, 150, 132)), "libero", a, b)
    assert (found.a, found.b) == pytest.approx((5.25, 7.2833), abs=1e-3)
    shorter = next(claim for claim in claims_of("ablations") if claim.measure == "seconds" and claim.b == b)
    assert judge(shorter, found) == "holds"
    assert judge(shorter, compared_seconds(run("quantile", (100,)) + run("l1", (140,)), "libero", a, b)) == (
        "cannot be told"
    )
    assert mean_over_seeds([1.0, 2.0, 3.0]).low == pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3)


def trace(widths, gripper, query=10):
    """Quantiles whose range is `widths` in every dimension, one replan every ten steps."""
    actions = np.zeros((len(gripper), 7))
    actions[:, 6] = gripper
    levels = np.linspace(-0.5, 0.5, 21)
    quantiles = np.stack([np.broadcast_to(width * levels, (10, 7, 21)) for width in widths])
    return {"actions": actions, "query_steps": np.arange(len(widths)) * query, "quantiles": quantiles}


def test_spread_around_the_grippers_changes_against_transport():
    """Replans at 0, 10, ..., 90; the gripper closes at step 20 and stays: contact 10 to 30, transport from 50 on."""
    gripper = np.where(np.arange(100) < 20, -1.0, 1.0)
    widths = [1, 3, 3, 3, 1, 1, 1, 1, 1, 1]
    contact, transport = episode_spread(trace(widths, gripper))
    assert contact / transport == pytest.approx(3.0)
    assert episode_spread(trace(widths, np.ones(100))) is None, "nothing was grasped"
    assert episode_spread({"actions": np.zeros((3, 7)), "query_steps": np.zeros(1)}) is None


def test_spreads_of_recorded_episodes_become_a_verdict(tmp_path):
    made, side = [], SideFiles(tmp_path / "side")
    gripper = np.where(np.arange(100) < 20, -1.0, 1.0)
    for seed in range(3):
        key = EpisodeKey("libero_10", 0, 0, 0, f"quantile#{seed}", "median")
        arrays = trace([1, 3 + seed / 10, 3, 3, 1, 1, 1, 1, 1, 1], gripper)
        side.write(key, Trace(list(arrays["actions"]), [], [], list(arrays["query_steps"]), list(arrays["quantiles"])))
        made.append(row("libero_10", policy=key.policy, decoder="median"))
    journal_of(tmp_path, made)
    assert len(spreads_in(made, tmp_path)) == 3
    step = StudyCommand("eval", "libero_10", (), str(tmp_path), recorded=True)
    kept = keep_summary(load_study("spread"), [step], MINIATURE, tmp_path / "results")
    (claim,) = claims_of("spread")
    assert judge(claim, compared_spread(claim, kept.spreads)) == "holds"
    assert "**holds**" in page(kept, load_study("spread"), MINIATURE)
    assert compared_spread(claim, {}) is None


def test_recorded_episodes_have_a_journal_of_their_own_with_the_studys_names():
    (step,) = (s for s in expand(load_study("spread"), Where(1280, "runs", "d"), MINIATURE, [1]) if s.kind == "eval")
    assert (step.folder, step.recorded, step.episodes) == ("runs/spread/libero_10", True, None)
    assert "--no-video" in step.words
    assert "--no-side-files" not in step.words
    assert any(word.startswith("quantile#1=runs/trainings/quantile-") for word in step.words)


def test_checks_of_one_statement_are_one_line_and_figures_without_a_claim_none():
    def check(claim, status):
        return TheoryCheck(claim, "App. A", "0", "|x|", status)

    lines = theory_lines(
        [
            check("ratio, slope: normal", "pass"),
            check("ratio, slope: Laplace", "outside"),
            check("ratio, slope: uniform", "fail"),
            check("|a| = |b|", "pass"),
            check("wide grid: Cauchy", "outside"),
        ]
    )
    assert [(line.cells[0], line.cells[3], line.verdict) for line in lines] == [
        ("Ratio.", "1 pass", "does not hold"),
        (r"\|a\| = \|b\|.", "|x|", "holds"),
    ]


def test_the_page_over_all_studies(tmp_path, monkeypatch):
    told = [TheoryCheck("|a| = |b|", "App. A", "0", "0", "pass")]
    monkeypatch.setattr("lerobot_policy_quantile.core.theory.checks.run_checks", lambda: told)
    journal_of(tmp_path, outcomes("K21", (9, 10, 9), 10) + outcomes("K5", (2, 1, 0), 10))
    keep_summary(load_study("k_sweep"), steps_of(tmp_path), MINIATURE, tmp_path)
    two_demo = Path(__file__).parents[2] / "docs" / "results" / "two_demo"
    words = ["study", "verdicts", str(tmp_path), "--two-demo", str(two_demo), "--out", str(tmp_path / "page.md")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page.md").read_text()
    assert "| 21 quantiles are above 5. | App. B, Fig. 7 | 98.6 vs 95.7 to 96.5 | 93.3 vs 10.0 | +83.3 [" in text
    assert "| **holds** | `qhead study run k_sweep --miniature` |" in text
    assert "| Quantile Head is above L2. | Table 4a | 99.3 vs 96 | - | - | **not run** |" in text
    assert "| The densest interval never succeeds. | Table 9 | 0 | 100.0 | - | **does not hold** |" in text
    assert r"| \|a\| = \|b\|. | App. A | 0 | 0 | - | **holds** | `qhead verify` |" in text
    lines = verdict_lines({}, [], [])
    assert {line.verdict for line in lines} == {"not run"}
    assert f"| 0 | 0 | 0 | {len(lines)} | {len(lines)} |" in verdict_page(lines)
    columns = [line.replace(r"\|", "").count("|") for line in text.splitlines() if line.endswith("` |")]
    assert set(columns) == {8}


LOG = "step:1 grdn:3.000 updt_s:0.100 data_s:0.020\nstep:2 grdn:1.000 updt_s:0.080 data_s:0.000\n"


def test_costs_come_from_card_logs_and_journals_and_survive_the_file(tmp_path):
    (tmp_path / "data" / "dataset").mkdir(parents=True)
    tasks = [{"demonstrations": n, "seconds_per_demonstration": s} for n, s in ((3, 4.0), (1, 8.0))]
    (tmp_path / "data" / "card.json").write_text(json.dumps({"tasks": tasks}))
    (tmp_path / "t").mkdir()
    (tmp_path / "log").write_text(LOG)
    keep_figures(tmp_path / "t", tmp_path / "log")
    train = StudyCommand("train", "full-1", (), str(tmp_path / "t"), labels=(("K21-0", "full-1"),))
    made = [row("libero_10", 0, n, policy="K21#0", decoder="median", steps=100 + n) for n in range(4)]
    timed = [type(each)(**{**vars(each), "wall_seconds": 1.5 + 0.01 * each.steps}) for each in made]
    found = costs_of([train], timed, str(tmp_path / "data" / "dataset"))
    assert (found.demonstrations, found.demonstration_seconds) == (4, 5.0)
    assert found.trainings == {"K21-0": UpdateTimes(2, 100.0)}
    assert found.resets == {"libero_10": pytest.approx(1.5)}
    assert found.episodes["K21#0"]["libero_10"].seconds == pytest.approx(2.515)
    assert found.hours() == pytest.approx((20 / 3600, 0.2 / 3600, 4 * 2.515 / 3600))
    journal_of(tmp_path, made)
    steps = [train, *steps_of(tmp_path)]
    kept = keep_summary(load_study("k_sweep"), steps, MINIATURE, tmp_path, str(tmp_path / "data" / "dataset"))
    assert kept.costs.trainings == found.trainings
    assert read_summary(tmp_path / "k_sweep.json") == kept
    text = page(kept, load_study("k_sweep"), MINIATURE)
    assert "| demonstrations | 4 | 5.0 s | 0.0 |" in text
    assert "| updates | 2 | 100 ms | 0.0 |" in text
    assert costs_table(StudyCosts()) == ""


def test_costs_of_parts_add_up():
    parts = [StudyCosts(trainings={f"K21-{seed}": UpdateTimes(10, 50.0)}) for seed in range(2)]
    assert (StudyCosts(4, 5.0) + parts[0] + parts[1]).hours() == pytest.approx((20 / 3600, 1 / 3600, 0))
