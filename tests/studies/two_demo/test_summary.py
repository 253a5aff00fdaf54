"""Parts of a study meet in one table: counted right, never mixed with another study's."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.records import Cost, load_study
from lerobot_policy_quantile.studies.two_demo.report.summary_page import FIGURE, PAGE, summary_figure, summary_page
from lerobot_policy_quantile.studies.two_demo.summary import (
    ArmSummary,
    Outcomes,
    keep_summaries,
    pooled,
    read_summaries,
    summaries,
)
from tests.support.study_folder import write_study

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "two_demo"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("studies") / "two", episodes=5, seeds=2, updates=100, video=False)


def one_seed(folder, target, seed):
    """The part of a study that another machine would have run: one training seed."""
    part = shutil.copytree(folder, target)
    settings = json.loads((part / records.STUDY).read_text()) | {"seeds": 1, "first_seed": seed}
    (part / records.STUDY).write_text(json.dumps(settings))
    return load_study(part)


def only(study, seed):
    arms = (replace(a, rollouts=tuple(r for r in a.rollouts if r.training_seed == seed)) for a in study.arms)
    return replace(study, arms=tuple(arms))


def test_pooled_counts_are_the_journals(folder):
    study = load_study(folder)
    for arm in study.arms:
        found = {(r.head, r.decoder): r for r in pooled(s for s in summaries(study) if s.arm == arm.name)}
        assert found == {(r.head, r.decoder): r for r in arm.results()}


def test_parts_of_two_machines_give_the_table_of_the_whole(folder, tmp_path):
    whole = keep_summaries(load_study(folder), tmp_path / "whole")
    for seed in (0, 1):
        together = keep_summaries(only(one_seed(folder, tmp_path / f"part{seed}", seed), seed), tmp_path / "parts")
    assert summary_page(together) == summary_page(whole)
    assert read_summaries(tmp_path / "parts") == together
    assert [s.file_name for s in together] == [
        "embedded-seed0.json",
        "embedded-seed1.json",
        "embedded+obstacle-seed0.json",
        "embedded+obstacle-seed1.json",
    ]


def test_letters_tell_side_and_outcome_of_every_episode(folder):
    study = load_study(folder)
    (arm,) = (arm for arm in study.arms if arm.obstacle)
    shared = [r for r in arm.rollouts if r.decoder == "shared(l=0, rho=0.9)" and r.training_seed == 0]
    (found,) = (
        outcome
        for summary in summaries(study)
        if (summary.arm, summary.training_seed) == (arm.name, 0)
        for outcome in summary.outcomes
        if outcome.decoder == "shared(l=0, rho=0.9)"
    )
    assert len(found.letters) == len(shared) == 5
    for letter, rollout in zip(found.letters, shared, strict=True):
        assert letter.isupper() == rollout.success
        assert {"l": "left", "r": "right", "n": None}[letter.lower()] == rollout.side


@pytest.mark.bad_input
def test_a_part_of_another_study_is_refused_and_changes_nothing(folder, tmp_path):
    keep_summaries(load_study(folder), tmp_path / "kept")
    before = {path.name: path.read_text() for path in (tmp_path / "kept").iterdir()}
    study = load_study(folder)
    other = replace(study, settings={**study.settings, "updates": 99})
    with pytest.raises(ValueError, match=r"settings updates is (99|100) in .* and (99|100) in"):
        keep_summaries(only(other, 0), tmp_path / "kept")
    assert {path.name: path.read_text() for path in (tmp_path / "kept").iterdir()} == before


@pytest.mark.bad_input
def test_fewer_episodes_never_replace_more(folder, tmp_path):
    study = load_study(folder)
    keep_summaries(study, tmp_path)
    fewer = replace(study, arms=tuple(replace(arm, rollouts=arm.rollouts[:7]) for arm in study.arms))
    with pytest.raises(ValueError, match=r"holds .* episodes, .* only"):
        keep_summaries(fewer, tmp_path)


def summary(arm, letters, median, ratio=10.0):
    costs = (Cost("quantile", 1, 10.0, 2.0, 20), Cost("flow", 10, 10.0, 2.0 * ratio, 20))
    outcomes = (
        Outcomes("quantile", "shared(l=0, rho=0.9)", letters, 300.0, 0),
        Outcomes("quantile", "median", median, 300.0, 0),
    )
    settings = {
        "updates": 6000,
        "learning_rate": 5e-4,
        "head_learning_rate": 1e-3,
        "prompt_learning_rate": 1e-3,
        "first_episode": 100000,
        "base": "0123",
    }
    return ArmSummary(arm, 0, settings, {}, len(letters), (290, 295), 18, 18, costs, outcomes)


def test_targets_are_judged_by_the_rates():
    good = summary_page([summary("embedded", "L" * 17 + "rrr", "LL"), summary("embedded+obstacle", "L" * 9 + "r", "")])
    assert good.count("| holds so far |") == 3
    assert "missed" not in good
    bad = summary_page(
        [summary("embedded", "L" * 16 + "rrrr", "Ll", 7.9), summary("embedded+obstacle", "L" * 8 + "rr", "", 7.9)]
    )
    assert bad.count("| **missed** so far |") == 3
    assert "7.9x: **missed**" in bad


@pytest.mark.parametrize(
    ("episodes", "seeds", "verdict"), [(10, 3, "holds"), (9, 3, "holds so far"), (10, 2, "holds so far")]
)
def test_a_target_is_decided_when_all_seeds_and_episodes_have_run(episodes, seeds, verdict):
    part = summary("embedded+obstacle", "L" * episodes, "")
    page = summary_page([replace(part, training_seed=seed, episodes_asked=10) for seed in range(seeds)])
    assert f"| {verdict} |" in page


def test_the_command_writes_files_and_page(folder, tmp_path):
    result = CliRunner().invoke(app, ["study", "summarise", str(folder), "--into", str(tmp_path / "kept")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "kept" / "README.md").read_text()
    assert "| seed 0 | seed 1 |" in page
    assert f"]({FIGURE})" in page
    assert (tmp_path / "kept" / FIGURE).read_text().startswith("<svg")
    refused = CliRunner().invoke(app, ["study", "summarise", str(tmp_path), "--into", str(tmp_path / "kept")])
    assert refused.exit_code == 1
    assert "study.json" in refused.stderr


def test_at_a_glance_has_a_rate_per_arm_and_counts_where_nothing_is_drawn():
    page = summary_page([summary("embedded", "LLLr", "LL"), summary("embedded+obstacle", "Lrrr", "rr")])
    assert "| shared rank | 75 % | 25 % | 92 % | 6 % |" in page
    assert "| median | 2/2 | 0/2 | 100 % | 0 % |" in page


def test_the_figure_has_a_ring_per_training_seed_and_decoder_that_draws():
    part = summary("embedded", "LLLr", "LL")
    alone, three = (
        summary_figure([replace(part, training_seed=seed) for seed in range(seeds)]).svg_file() for seeds in (1, 3)
    )
    assert "one training seed" not in alone
    assert three.count("<circle") - alone.count("<circle") == 3 + 1  # and one in the legend
    assert ">9/12</text>" in three


def test_the_page_and_the_figure_in_the_docs_are_those_of_the_files_beside_them():
    found = read_summaries(RESULTS)
    assert (RESULTS / PAGE).read_text() == summary_page(found)
    assert (RESULTS / FIGURE).read_text() == summary_figure(found).svg_file()


@pytest.mark.bad_input
def test_kept_summaries_older_than_the_wording_rule_are_marked():
    kept = read_summaries(Path(__file__).parents[3] / "docs" / "results" / "two_demo")
    assert {summary.versions.get("wording") for summary in kept if summary.scene == "libero_object"} == {"bddl"}
    assert {summary.versions.get("wording") for summary in kept if summary.scene == "embedded"} == {None}
    assert "Wording of LIBERO's instructions: `bddl`." in summary_page(kept)


def test_a_file_that_is_no_summary_is_named(tmp_path):
    (tmp_path / "embedded-seed0.json").write_text('{"arm": 1}')
    with pytest.raises(ValueError, match=r"embedded-seed0\.json must be a summary"):
        read_summaries(tmp_path)
