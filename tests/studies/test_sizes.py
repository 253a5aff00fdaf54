"""Sizes of a study: what a file may say, and what it does to the commands."""

import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.studies.miniature.kept import places_of
from lerobot_policy_quantile.studies.plan_checks import require_sound
from lerobot_policy_quantile.studies.plan_machine import inputs_of
from lerobot_policy_quantile.studies.plans import load_study
from lerobot_policy_quantile.studies.plans.commands import Where, expand
from lerobot_policy_quantile.studies.plans.size import PAPER, load_size, parse_size

MINIATURE = load_size("miniature")
WHERE = Where(1280, "runs", "data")
STUDIES = ("main", "ablations", "k_sweep", "r_sweep", "sampling")


def of_kind(steps, kind):
    return [step for step in steps if step.kind == kind]


def labels(steps):
    """Trainings by their names in the study."""
    return [label for step in of_kind(steps, "train") for label, _ in step.labels]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_in_miniature_has_three_seeds_or_more_the_tiny_base_and_its_own_reference(name):
    study = load_study(name)
    require_sound(MINIATURE.applied(study))
    variants, seeds = MINIATURE.applied(study).variants, MINIATURE.applied(study).seeds
    steps = expand(study, WHERE, MINIATURE)
    trainings = of_kind(steps, "train")
    assert seeds >= 3
    assert len(trainings) == seeds * len(variants)
    updates = MINIATURE.study[name].updates
    settings = {
        "--policy.backbone=tiny",
        "--policy.backbone_weights=base_suites",
        "--policy.prefix_cache=runs/prefixes",
    }
    for step in trainings:
        assert settings | {"--batch_size=32", f"--steps={updates}", "--policy.optimizer_lr=0.0005"} <= set(step.words)
    assert MINIATURE.study[name].reference in {variant.name for variant in variants}
    for step in of_kind(steps, "eval"):
        params = get_command(app).commands["eval"].make_context("eval", list(step.words[2:])).params
        assert params["camera_size"] == 96
        assert params["models"] >= len(trainings), "every policy of the study is kept"
        assert (params["episodes"] or 1) <= MINIATURE.evaluation_states


def test_seeds_come_one_after_the_other_and_can_be_chosen():
    study = load_study("k_sweep")
    names = labels(expand(study, WHERE, MINIATURE))
    assert names[:2] == ["K5-0", "K9-0"]
    assert names[7] == "K5-1"
    assert labels(expand(study, WHERE, MINIATURE, [1])) == names[7:14]
    for wrong in ([], [8]):
        with pytest.raises(ValueError, match=r"seeds must lie in 0\.\.7"):
            expand(study, WHERE, MINIATURE, wrong)


def test_a_study_can_be_run_some_variants_at_a_time():
    study = load_study("k_sweep")
    steps = expand(study, WHERE, MINIATURE, [1], ["K21", "K5"])
    assert labels(steps) == ["K5-1", "K21-1"]
    (judged,) = (step for step in steps if step.kind == "eval")
    assert [label for label, _ in judged.labels] == ["K5#1", "K21#1"]
    with pytest.raises(ValueError, match=r"variants of study 'k_sweep' must be one of K5, .*; got 'K2'; did you mean"):
        expand(study, WHERE, MINIATURE, None, ["K21", "K2"])


@pytest.mark.libero
def test_a_size_may_leave_suites_out():
    """Its evaluation, what it counts as kept and what it records name the same suites."""
    both = "libero_object,libero_spatial"
    text = f"updates = 3\nreference = 'quantile'\nsuites.libero = '{both}'\nsuite.'{both}'.episodes = 3"
    size = parse_size("mine", f"[study.ablations]\n{text}")
    study = load_study("ablations")
    (judged,) = of_kind(expand(study, WHERE, size, [0], ["l1"]), "eval")
    assert judged.words[judged.words.index("--suite") + 1] == both
    assert judged.words[judged.words.index("--episodes") + 1] == "3"
    (evaluation,) = size.applied(study).evaluations
    assert {place[0] for place in places_of(size.applied(study), size, evaluation)} == set(both.split(","))
    assert len(places_of(size.applied(study), size, evaluation)) == 60
    assert size.record(study)["suites"] == {"libero": both}


def test_a_trained_vlm_has_no_prefix_cache():
    size = parse_size("mine", "batch = 4\nbackbone = 'tiny'\nprefix_cache = true\nupdates = 2")
    (step,) = of_kind(expand(load_study("pi05"), WHERE, size, [0]), "train")
    assert not any("prefix_cache" in word for word in step.words)


def test_a_folder_of_the_papers_size_keeps_its_stamp_and_a_miniature_records_its_settings():
    study = load_study("main")
    assert set(inputs_of(study, WHERE, PAPER)) == {"study", "small", "dataset", "frames", "weights", "variants"}
    inputs = inputs_of(study, WHERE, MINIATURE)
    assert inputs["weights"] == "base_suites"
    assert inputs["size"]["updates"] == MINIATURE.study["main"].updates
    assert "models" not in inputs["size"], "what does not change numbers may change"
    assert "seeds" not in inputs["size"], "seeds may be added"
    json.dumps(inputs)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sedes = 3", "got 'sedes', did you mean 'seeds'|got 'sedes'"),
        ("[evaluation]\nepisode = 3", "options of evaluation in size 'mine' must be among"),
        ("[study.main]\nupdates = 3\nreference = 'a'\nvariants = []", "fields of study 'main' in size 'mine'"),
        ("evaluation_states = 20\n[suite.libero_10]\nepisodes = 21", "at most evaluation_states = 20; got 21"),
        (
            "evaluation_states = 20\n[study.main]\nupdates = 3\nreference = 'a'\nsuite.libero.episodes = 21",
            "episodes of libero in size 'mine' must be at most evaluation_states = 20; got 21",
        ),
    ],
)
def test_wrong_sizes_are_refused_by_name(text, said):
    with pytest.raises(ValueError, match=said):
        parse_size("mine", text)


def test_the_command_prints_a_miniature_and_refuses_what_it_lacks(tmp_path):
    def run(*words):
        return CliRunner().invoke(app, ["study", "run", *words, "--device", "cpu", "--dry-run"])

    assert "needs --dataset" in run("k_sweep", "--miniature").stderr
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"total_frames": 256}))
    options = ("--miniature", "--dataset", str(tmp_path))
    printed = run("k_sweep", *options)
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.count("studies.lean_train") == 7 * 8
    assert run("k_sweep", *options, "--seeds", "0").stdout.count("studies.lean_train") == 7
    assert run("k_sweep", *options, "--variants", "K21, K5").stdout.count("studies.lean_train") == 2 * 8
    assert "studies of size 'miniature' are pilot, main" in run("real_robot", *options).stderr
    assert "two sizes" in run("k_sweep", *options, "--small").stderr
    assert "--summary needs --miniature" in run("k_sweep", "--small", "--summary", str(tmp_path)).stderr
