"""A miniature study from demonstrations to table and report, and going on after it."""

import io
import re

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.records import load_study
from lerobot_policy_quantile.studies.two_demo.result import Result
from lerobot_policy_quantile.studies.two_demo.run import training_bar
from lerobot_policy_quantile.util.progress import Narrator

pytestmark = pytest.mark.slow

MINIATURE = """
scenes = ["embedded"]
obstacle = [false]
updates = 3
warmup = 1
episodes = 1
limit = 6
draws = 8
camera_size = 16
decoders = ["shared", "median"]
"""


def run(out, *more: str):
    settings = out.parent / "miniature.toml"
    settings.write_text(MINIATURE)
    words = ["study", "two-demo", "--settings", str(settings), "--base", "random", "--out", str(out), "--workers", "1"]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "miniature"
    return out, run(out)


def test_it_runs_to_its_table_and_report(finished):
    out, result = finished
    assert result.exit_code == 0, result.output
    for words in ("demonstrations, left and right", "frozen prefixes", "training 4 heads", "closed loop in embedded"):
        assert words in result.output
    assert "95 % interval" in result.output
    assert f"report: {out / 'report.html'}" in result.output.replace("\n", "")
    assert (out / "report.html").is_file()
    (held,) = re.findall(r"^\d+ min \d+ s, at most (\d+\.\d\d) GB of memory", result.output, re.MULTILINE)
    assert float(held) > 0.1  # torch alone is more


def test_every_verification_of_the_paper_was_made_and_holds(finished):
    (arm,) = load_study(finished[0]).arms
    names = {check.name for check in arm.checks}
    assert all(check.passed for check in arm.checks)
    assert {"identical starts", "both succeed without contact", "quantile-0: identical median repeats"} <= names
    for head in records.HEADS:
        for what in ("cached = full", "frozen weights unchanged", "batch of 8 = single inference"):
            assert f"{head}-0: {what}" in names
    assert {"one initialisation (seed 0) for all heads", "one batch sequence (seed 0) for all heads"} <= names


def test_the_records_are_whole(finished):
    (arm,) = load_study(finished[0]).arms
    assert [d.route for d in arm.demonstrations] == ["left", "right"]
    assert [arm.places.side_passed(d.path) for d in arm.demonstrations] == ["left", "right"]
    assert set(arm.curves[0]) == set(arm.draws[0].actions) == {cost.head for cost in arm.costs[0]} == set(records.HEADS)
    results = {(r.head, r.decoder): r for r in arm.results()}
    assert list(results)[:2] == [("quantile", "shared(l=0, rho=0.9)"), ("quantile", "median")]
    assert results["quantile", "median"].episodes == 2
    assert results["quantile", "median"].paper == 100
    rollout = arm.rollouts[0]
    assert rollout.path.shape == (7, 3)
    np.testing.assert_allclose(rollout.path[0], arm.places.start, atol=1e-6)
    assert rollout.film_strip is not None


def test_the_same_command_again_repeats_nothing_and_more_episodes_are_added(finished):
    out, _ = finished
    before = {row.key: row.wall_seconds for row in read_rows(out / "embedded" / records.JOURNAL)}
    again = run(out, "--episodes", "2", "--no-report")
    assert again.exit_code == 0, again.output
    for stage in ("demonstrations: done before", "training: done before", "the cache fits", "draws: done before"):
        assert stage in again.output
    after = {row.key: row.wall_seconds for row in read_rows(out / "embedded" / records.JOURNAL)}
    assert len(after) == len(before) + 2  # shared and flow
    assert before.items() <= after.items()


def test_other_settings_are_refused_in_the_same_folder(finished):
    result = run(finished[0], "--updates", "4")
    assert result.exit_code == 1
    assert "updates was 3, now 4" in result.output.replace("\n", "")


def test_a_changed_demonstration_stops_the_study(finished):
    """The twin of resuming: the cache no longer belongs to the data."""
    path = finished[0] / "embedded" / records.DEMONSTRATIONS
    whole = path.read_bytes()
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["left.actions"][5, 0] += 1e-3
    np.savez(path, **arrays)
    result = run(finished[0], "--episodes", "2")
    path.write_bytes(whole)
    assert result.exit_code == 1
    assert "is stale (data was" in result.output.replace("\n", "")


def test_wrong_usage_is_explained(tmp_path):
    missing = run(tmp_path / "a", "--base", "nowhere")
    assert missing.exit_code == 1
    assert "looked for nowhere/config.json" in missing.output.replace("\n", "")
    assert run(tmp_path / "b", "--decoder", "shraed").exit_code == 2
    assert run(tmp_path / "c", "--scene", "kitchen").exit_code == 2


def test_an_interval_by_hand():
    """9 of 10: centre (0.9 + 0.192) / 1.384 = 0.789, half width 0.193."""
    nine, none = (Result("quantile", "shared", counts, 0, 0, 0, None) for counts in (((9, 10),), ()))
    assert [round(end, 1) for end in nine.interval] == [59.6, 98.2]
    assert (nine.interval_words, none.interval) == ("60 to 98", (0.0, 100.0))


def test_training_seeds_that_differ_widen_the_interval_and_are_named():
    found = Result("quantile", "shared", ((44, 50), (28, 50), (43, 50)), 0, 0, 0, None)
    assert (found.success, found.episodes, round(found.rate)) == (115, 150, 77)
    assert found.interval_words == "29 to 96, seeds 56 to 88"


def test_the_longest_line_of_progress_fits_a_terminal_of_eighty_columns():
    file = io.StringIO()
    with training_bar(Narrator(Console(file=file, width=80))) as bar:
        bar.add_task("updates", total=48000, completed=24000, text="libero_object+obstacle quantile-2 loss 0.0345")
    (line,) = file.getvalue().splitlines()
    assert line.endswith("24000/48000 updates, -:--:-- left libero_object+obstacle quantile-2 loss 0.0345")
