"""Verdicts on the paper's claims from known outcomes, the file that keeps the outcomes, and the page."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.tables.intervals import paired_over_seeds
from lerobot_policy_quantile.evaluation.tables.published import published_tables, study_tables
from lerobot_policy_quantile.studies.miniature import kept as kept_module
from lerobot_policy_quantile.studies.miniature.claims import Claim, claims_of, compared, judge
from lerobot_policy_quantile.studies.miniature.kept import kept_policies, places_of
from lerobot_policy_quantile.studies.miniature.page import page, write_page
from lerobot_policy_quantile.studies.miniature.summary import keep_summary, path_of, read_summary
from lerobot_policy_quantile.studies.plan_training import Gradients
from lerobot_policy_quantile.studies.plans import load_study
from lerobot_policy_quantile.studies.plans.commands import StudyCommand, Where, expand
from lerobot_policy_quantile.studies.plans.size import load_size
from tests.support.rows import row, rows

SHIPPED, WHERE = load_size("miniature"), Where(1280, "runs", "data/libero")
MINIATURE = replace(
    SHIPPED,
    study={
        name: replace(own, suites={}, suite={} if own.suites else own.suite, seeds=own.seeds if own.pilot else None)
        for name, own in SHIPPED.study.items()
    },
)
"""With all suites of the paper and three seeds in every study."""
STUDIES = tuple(name for name, plan in MINIATURE.study.items() if not plan.pilot)
A, B = ("K21", "median"), ("K5", "median")
LEFT_OUT = replace(MINIATURE.study["k_sweep"], suites={"libero_10": "libero_object"})


def outcomes(variant, wins, judged=100, decoder="median"):
    """One model per number of wins."""
    return [
        each
        for seed, won in enumerate(wins)
        for each in rows("libero_10", 0, won, judged, policy=f"{variant}#{seed}", decoder=decoder)
    ]


def claim(direction="above", margin=0.0):
    return Claim("k_sweep", "libero_10", "", "Fig. 7", A, B, direction, (98.6, 96.0), margin)


@pytest.mark.parametrize(
    ("a", "b", "direction", "margin", "verdict"),
    [
        ((90, 91, 89), (60, 61, 59), "above", 0, "holds"),
        ((60, 61, 59), (90, 91, 89), "above", 0, "does not hold"),
        ((60, 61, 59), (90, 91, 89), "below", 0, "holds"),
        ((90, 91, 89), (60, 61, 59), "below", 0, "does not hold"),
        ((90, 91, 89), (89, 90, 91), "above", 0, "cannot be told"),
        ((90, 60, 75), (70, 75, 60), "above", 0, "cannot be told"),
        ((90, 91, 89), (60, 61, 59), "above", 50, "does not hold"),
        ((90, 91, 89), (60, 61, 59), "near", 5, "does not hold"),
        ((90, 90, 90), (90, 90, 90), "near", 5, "holds"),
        ((90, 90, 90), (90, 90, 90), "near", 0.5, "cannot be told"),
        ((0, 0, 0), (0, 0, 0), "near", 5, "cannot be told"),
        ((90,), (60,), "above", 0, "cannot be told"),
        ((90, 91, 89), (), "above", 0, "not run"),
    ],
)
def test_a_claim_holds_does_not_or_cannot_be_told(a, b, direction, margin, verdict):
    made = outcomes("K21", a) + outcomes("K5", b)
    assert judge(claim(direction, margin), compared(made, "libero_10", A, B)) == verdict


def test_only_shared_episodes_of_the_same_training_seed_are_compared():
    made = outcomes("K21", (10, 10), 10) + outcomes("K5", (5,), 20)
    made += [row("libero_10", 0, 0, status="error", policy="K5#1", decoder="median")]
    made += [row("libero_goal", 0, 0, policy=f"{name}#0", decoder="median") for name in ("K21", "K5")]
    found = compared(made, "libero_10", A, B)
    assert (found.a, found.b, found.episodes, found.seeds) == (1.0, 0.5, 10, 1)
    assert compared(outcomes("K21", (3,)), "libero_10", A, B) is None


def test_libero_pros_controls_are_left_out_of_a_comparison():
    scenes = ("libero_pro_10_task", "libero_pro_10_original", "libero_pro_10_environment")
    lines = (("quantile", "success"), ("flow", "failure"))
    made = [row(s, policy=f"{n}#0", decoder="median", status=status) for s in scenes for n, status in lines]
    assert compared(made, "libero_pro", ("quantile", "median"), ("flow", "median")).episodes == 1


def test_three_seeds_are_three_units_not_three_hundred():
    """Differences 0.3, 0.2, 0.4: mean 0.3, standard error 0.1 / sqrt(3), t(2) = 4.303, so 0.3 -+ 0.248."""
    seeds = [[(True, i >= 100 * d) for i in range(100)] for d in (0.3, 0.2, 0.4)]
    found = paired_over_seeds(seeds)
    assert found.by_seed == pytest.approx((0.3, 0.2, 0.4))
    assert (found.value, found.low, found.high) == pytest.approx((0.3, 0.0516, 0.5484), abs=1e-3)


def test_seeds_that_agree_by_accident_do_not_make_an_interval_of_no_width():
    same = paired_over_seeds([[(True, True)] * 100] * 3)
    assert same.value == 0
    assert same.high == pytest.approx(4.303 * 0.01 / 3**0.5, abs=1e-3)
    assert paired_over_seeds([[(True, False)] * 4] * 2).high == 1.0


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.15])
def test_the_paired_interval_covers_the_true_difference_at_least_as_often_as_it_says(spread):
    """Rates of each trained model scatter around 0.7 and 0.6; 500 studies of three seeds and 60 episodes."""
    draw, covered = random.Random(7), 0
    for _ in range(500):
        seeds = []
        for _ in range(3):
            a, b = (min(1, max(0, draw.gauss(rate, spread))) for rate in (0.7, 0.6))
            seeds.append([(draw.random() < a, draw.random() < b) for _ in range(60)])
        found = paired_over_seeds(seeds)
        covered += found.low <= 0.1 <= found.high
    assert covered / 500 > 0.93


@pytest.mark.bad_input
@pytest.mark.parametrize("pairs", [[], [[(True, True)], []]])
def test_a_seed_without_episodes_is_refused(pairs):
    with pytest.raises(ValueError, match="every seed must have paired episodes"):
        paired_over_seeds(pairs)


def printed_for(name):
    """Variant and decoder -> everything that the paper prints for it."""
    found = {}
    for row_ in (r for rs in study_tables(name).values() for r in rs):
        found.setdefault(row_.key, set()).update({*row_.rates.values(), row_.seconds})
    tables = {title: rs for suite in ("libero", "libero_plus", "libero_pro")
              for title, rs in published_tables(suite).items()}  # fmt: skip
    names = {"quantile": (False, "Quantile Head"), "flow": (False, "pi0.5")}
    names |= {"quantile-sft": (True, "Quantile Head (SFT)"), "flow-sft": (True, "pi0.5")}
    for variant, (tuned, method) in names.items() if name.startswith("main") else ():
        rows_ = [r for title, rs in tables.items() if ("fine-tuned" in title) == tuned for r in rs]
        found[variant, "median"] = {rate for r in rows_ if r.method == method for rate in r.rates.values()}
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_claims_name_variants_decoders_and_numbers_that_exist(name):
    study, printed, found = MINIATURE.applied(load_study(name)), printed_for(name), claims_of(name)
    assert found
    variants = {variant.name for variant in study.variants}
    for each in found:
        assert each.suite in {evaluation.suite for evaluation in load_study(name).evaluations}
        lines = (each.a,) if each.b is None else (each.a, each.b)
        for line, rate in zip(lines, each.paper, strict=bool(each.paper)):
            assert line[0] in variants or (each.b_study and line == each.b)
            assert rate in printed[line], f"{each.text}: {rate} is not what the paper prints for {line}"


def journal_of(folder, made, weights=None):
    with Journal(folder / "journal.sqlite") as journal:
        for each in made:
            versions = {name: value for name, value in each.versions.items() if name not in ("policy", "limit")}
            versions |= {"policy": weights} if weights else {}
            journal.record(Outcome(each.key, each.status, steps=40, scene_context=versions, traceback=None))


def steps_of(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    return [StudyCommand("eval", "libero_10", (), str(folder))]


def test_outcomes_survive_their_file_and_parts_meet_in_it(tmp_path):
    study, into = load_study("k_sweep"), tmp_path / "results"
    assert keep_summary(study, steps_of(tmp_path / "none"), MINIATURE, into) is None
    parts = [outcomes("K21", (9,), 10) + outcomes("K5", (5,), 10), outcomes("K21", (0, 8), 10)[10:]]
    for number, part in enumerate(parts):
        steps = steps_of(tmp_path / str(number))
        journal_of(tmp_path / str(number), part)
        kept = keep_summary(study, steps, MINIATURE, into)
    whole = read_summary(into / "k_sweep.json")
    assert whole == kept
    want = {each.key: each.status for part in parts for each in part}
    assert {each.key: each.status for each in whole.rows} == want
    assert {each.simulated_seconds for each in whole.rows} == {2.0}
    assert (into / "k_sweep.json").stat().st_size < 4000
    assert "SSSSSSSSSf" in (into / "k_sweep.json").read_text()


def test_of_a_policy_that_was_trained_again_only_the_new_episodes_stay(tmp_path):
    study = load_study("k_sweep")
    parts = {"first": outcomes("K21", (9,), 10) + outcomes("K5", (5,), 10), "again": outcomes("K21", (1,), 4)}
    for weights, made in parts.items():
        steps = steps_of(tmp_path / weights)
        journal_of(tmp_path / weights, made, weights)
        kept = keep_summary(study, steps, MINIATURE, tmp_path)
    judged = {name: [each for each in kept.rows if each.key.policy == f"{name}#0"] for name in ("K21", "K5")}
    assert {name: len(own) for name, own in judged.items()} == {"K21": 4, "K5": 10}
    assert {each.versions["policy"] for each in judged["K21"]} == {"again"}


def places(judged):
    """Of the episodes that `rows` makes."""
    return {("libero_10", 0, index, 0, "median") for index in range(judged)}


def test_policies_whose_episodes_are_all_in_the_file_are_not_run_again(tmp_path, monkeypatch):
    study = MINIATURE.applied(load_study("k_sweep"))
    journal_of(tmp_path, outcomes("K21", (9, 3), 10) + outcomes("K5", (5,), 9))
    path = path_of(tmp_path, study)
    assert kept_policies(study, MINIATURE, path) == {}, "there is no file"
    keep_summary(study, steps_of(tmp_path), MINIATURE, tmp_path)
    monkeypatch.setattr(kept_module, "places_of", lambda *_: places(10))
    kept = kept_policies(study, MINIATURE, path)
    assert kept == {"libero_10": {"K21#0", "K21#1"}}
    with pytest.raises(ValueError, match="batch was 32, now 16"):
        kept_policies(study, replace(MINIATURE, batch=16), path)

    steps = expand(load_study("k_sweep"), WHERE, MINIATURE, kept=kept)
    labels = [label for step in steps if step.kind == "train" for label, _ in step.labels]
    assert len(labels) == 7 * 3 - 2
    assert not {"K21-0", "K21-1"} & set(labels)
    (judged,) = (step for step in steps if step.kind == "eval")
    assert not {"K21#0", "K21#1"} & {label for label, _ in judged.labels}
    everything = {"libero_10": {f"{v.name}#{seed}" for v in study.variants for seed in range(3)}}
    assert expand(load_study("k_sweep"), WHERE, MINIATURE, kept=everything) == []


def test_a_policy_that_one_suite_still_lacks_is_trained_for_that_suite():
    study = load_study("main")
    kept = {"libero": {"quantile#0"}, "libero_plus": {"quantile#0"}}
    steps = expand(study, WHERE, MINIATURE, seeds=[0], variants=["quantile"], kept=kept)
    assert [(step.kind, step.name.rpartition("-")[2]) for step in steps[1:]] == [("eval", "libero_pro")]
    assert steps[0].kind == "train"


@pytest.mark.libero
def test_the_places_are_those_that_qhead_eval_plans():
    study = MINIATURE.applied(load_study("pilot"))
    found = places_of(study, MINIATURE, study.evaluations[0])
    assert {scene for scene, *_ in found} == {"libero_object", "libero_spatial"}
    assert len(found) == 2 * 10 * 5
    assert {index for _, _, index, _, _ in found} == {40, 41, 42, 43, 44}
    long = MINIATURE.applied(load_study("k_sweep"))
    assert len(places_of(long, MINIATURE, long.evaluations[0])) == 10 * 10


@pytest.mark.bad_input
def test_outcomes_of_other_settings_or_simulators_are_refused(tmp_path):
    study, steps = load_study("k_sweep"), steps_of(tmp_path / "run")
    journal_of(tmp_path / "run", outcomes("K21", (9,), 10))
    keep_summary(study, steps, MINIATURE, tmp_path)
    with pytest.raises(ValueError, match="batch was 32, now 16"):
        keep_summary(study, steps, replace(MINIATURE, batch=16), tmp_path)
    other = [replace(each, versions={**each.versions, "mujoco": "9"}) for each in outcomes("K5", (9,), 10)]
    steps = steps_of(tmp_path / "other")
    journal_of(tmp_path / "other", other)
    with pytest.raises(ValueError, match=r"mujoco was '3.3.2', now '9'"):
        keep_summary(study, steps, MINIATURE, tmp_path)


def test_the_page_has_a_verdict_per_claim_and_a_difference_per_variant(tmp_path):
    study = load_study("k_sweep")
    journal_of(tmp_path, outcomes("K21", (18, 19, 17), 20) + outcomes("K5", (6, 7, 5), 20))
    kept = keep_summary(study, steps_of(tmp_path), MINIATURE, tmp_path)
    kept = replace(kept, gradients={"K5-0": Gradients(3, 2.0, 1.5, 0.25)})
    text = page(kept, study, MINIATURE)
    assert "| 21 quantiles are above 5 (App. B, Fig. 7). | 98.6 vs 95.7 to 96.5 | 90.0 vs 30.0 |" in text
    assert text.count("**holds**") == 1
    assert text.count("**not run**") == 5
    (line,) = (each for each in text.splitlines() if each.startswith("| K5 |"))
    assert "| 95.7 to 96.5 | -60.0 [" in line
    assert "| 2.0 | 1.50 | 25 % | 60, 3 seeds |" in line
    assert "mujoco 3.3.2" in text
    assert write_page(kept, tmp_path) == tmp_path / "k_sweep.md"
    assert (tmp_path / "k_sweep-libero.svg").is_file()


def test_variants_that_are_not_the_papers_are_marked(tmp_path):
    study = load_study("ablations")
    made = [row("libero_10", policy=f"{n}#0", decoder="median") for n in ("quantile", "l1-half")]
    journal_of(tmp_path, made)
    kept = keep_summary(study, steps_of(tmp_path), MINIATURE, tmp_path)
    text = page(kept, study, MINIATURE)
    assert "`l1-half` is not the paper's" in text
    assert "`one-step-flow` is not the paper's: baseline of arXiv 2606.05737" in text


def test_a_study_on_some_of_liberos_suites_prints_their_mean_beside_the_papers_of_the_same_suites(tmp_path):
    """Half and all of ten tasks are solved: 75 %. Table 4a has 99 and 99 for L1, 99 and 100 for the full model."""
    study = load_study("ablations")
    solved = {"libero_spatial": 5, "libero_object": 10}
    made = [
        row(scene, task, status="success" if task < won else "failure", policy=f"{name}#{seed}", decoder="median")
        for name in ("quantile", "l1")
        for seed in range(2)
        for scene, won in solved.items()
        for task in range(10)
    ]
    journal_of(tmp_path, made)
    kept = keep_summary(study, steps_of(tmp_path), SHIPPED, tmp_path)
    text = page(kept, SHIPPED.applied(study), SHIPPED)
    assert "| variant | Spatial | Object | Mean | paper |" in text
    assert "Evaluated on LIBERO-Object and LIBERO-Spatial only; claims have the paper's figures for LIBERO." in text
    for name, printed in (("quantile", "99.5"), ("l1", "99")):
        (line,) = (each for each in text.splitlines() if each.startswith(f"| {name} | 50.0 | 100.0 | 75.0 ["))
        assert f"| {printed} |" in line
    assert "Mean" in (write_page(kept, tmp_path).parent / "ablations-libero.svg").read_text()


def test_claims_on_a_suite_are_judged_on_those_that_stand_for_it(tmp_path):
    study, size = load_study("k_sweep"), replace(MINIATURE, study={"k_sweep": LEFT_OUT})
    made = [
        replace(each, key=replace(each.key, scene="libero_object"))
        for each in outcomes("K21", (18, 19, 17), 20) + outcomes("K5", (6, 7, 5), 20)
    ]
    journal_of(tmp_path, made)
    kept = keep_summary(study, steps_of(tmp_path), size, tmp_path)
    text = page(kept, size.applied(study), size)
    assert "Evaluated on LIBERO-Object only; claims have the paper's figures for LIBERO-Long." in text
    assert "| 98.6 vs 95.7 to 96.5 | 90.0 vs 30.0 |" in text
