"""Spread over episodes: made-up side files with known ranges, and a small real run."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.calibration.spread import (
    GRID,
    EpisodeChoice,
    averaged,
    choose_rows,
    on_grid,
    read_spread,
)
from lerobot_policy_quantile.calibration.spread_files import spread_figure, spread_record
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.util.digests import digest_tree

LEVELS = 0.025 + 0.95 * np.arange(21) / 20
BASE = base_checkpoint()


def law(width):
    """Uniform laws: Q(u) = width_d (u - 1/4), so that Q(0) to Q(1) is as wide and the median off zero."""
    return np.asarray(width)[:, None] * (LEVELS - 0.25)


def write_run(run, episodes, *, policy="ours", decoder="median", scene="libero_10", fingerprint="abc", quantiles=True):
    """`episodes`: (task, index, status, steps, one width per replan, every tenth step)."""
    files = SideFiles(run / "side", video=False)
    with Journal(run / "journal.sqlite") as journal:
        for task, index, status, steps, widths in episodes:
            key = EpisodeKey(scene, task, index, 0, policy, decoder)
            trace = Trace(contacts=[0] * steps, query_steps=[10 * n for n in range(len(widths))])
            trace.actions = [np.r_[np.zeros(6), 1.0 if step > steps // 2 else -1.0] for step in range(steps)]
            trace.states = [np.zeros(8)] * (steps + 1)
            if quantiles:
                trace.quantiles = [np.stack([law(width * np.ones(7)), law(np.full(7, 99.0))]) for width in widths]
            files.write(key, trace)
            problem = "it broke" if status == "error" else None
            outcome = Outcome(
                key=key,
                status=status,
                steps=steps,
                wall_seconds=1.0,
                policy_context={"policy": fingerprint},
                traceback=problem,
            )
            while not journal.record(outcome):
                pass
    return run


RUN = [
    (0, 0, "success", 31, [1.0, 3.0, 2.0, 1.0]),
    (0, 1, "failure", 21, [2.0, 2.0, 2.0]),
    (1, 0, "success", 31, [0.1, 0.2, 0.1, 0.1]),
    (1, 1, "error", 5, [9.0]),
]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", RUN, fingerprint=digest_tree(BASE))


def test_ranges_are_the_ends_of_the_first_predicted_step_around_its_median(run):
    (episode,) = read_spread(run, choose_rows(run, EpisodeChoice(task=0, status="success")), None)
    assert episode.steps.tolist() == [0, 10, 20, 30]
    widths = np.array([1.0, 3, 2, 1])[:, None] * np.ones(6)
    np.testing.assert_allclose(episode.commands.width, widths)
    np.testing.assert_allclose(episode.commands.above, widths / 2)
    assert episode.mean is None
    assert episode.time.tolist() == [0, 1 / 3, 2 / 3, 1]


def test_the_mean_is_of_normalised_ranges_over_the_six_motion_dimensions(run):
    """The paper's W(t): the policy's own scale per dimension, the gripper left out."""
    from safetensors.numpy import load_file

    (episode,) = read_spread(run, choose_rows(run, EpisodeChoice(task=0, status="success")), BASE)
    stats = load_file(BASE / "policy_postprocessor_step_0_unnormalizer_processor.safetensors")
    scale = 2 / (stats["action.q99"] - stats["action.q01"])[:6]
    np.testing.assert_allclose(episode.mean.width, np.array([1.0, 3, 2, 1]) * scale.mean(), rtol=1e-5)


def test_averages_run_over_normalised_time_with_a_band_over_episodes(run):
    episodes = read_spread(run, choose_rows(run, EpisodeChoice(task=0)), None)
    mean, outer = averaged([on_grid(episode, episode.commands) for episode in episodes])
    assert mean.width.shape == (GRID, 6)
    np.testing.assert_allclose(mean.width[0], 1.5)  # of 1 and 2
    np.testing.assert_allclose(mean.width[-1], 1.5)
    half = GRID // 2
    np.testing.assert_allclose(mean.width[half], (2.5 + 2) / 2)  # half way between 3 and 2
    assert (outer.width >= mean.width - 1e-9).all()


def test_rotations_are_magnified_and_the_gripper_is_marked(run):
    figure = spread_figure(read_spread(run, choose_rows(run, EpisodeChoice(task=0, status="success")), BASE))
    mean, *dimensions = figure.panels
    assert mean.title == "mean over six"
    assert [panel.title for panel in dimensions] == [
        "dx", "dy", "dz", "rotation x (x5)", "rotation y (x5)", "rotation z (x5)",
    ]  # fmt: skip
    assert dimensions[0].y.high == pytest.approx(5 * dimensions[5].y.high)
    assert "closes" in mean.svg()
    assert mean.subtitle.endswith("at step 10")
    assert figure.svg_file().startswith("<svg")


def test_one_episode_can_be_named_by_key_or_by_its_side_files(run):
    key = EpisodeKey("libero_10", 1, 0, 0, "ours", "median")
    for text in (key.text, key.digest):
        (row,) = choose_rows(run, EpisodeChoice(episode=text))
        assert row.key == key


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ({"task": 7}, "--task must be one of the run's, 0, 1; got 7"),
        ({"policy": "our"}, "--policy must be one of the run's, ours; got 'our'; did you mean 'ours'?"),
        ({"status": "error"}, "--status must be one of the run's, failure, success"),
        ({"episode": "0123"}, "--episode must be a key of the journal"),
        ({"scene": "libero_goal"}, "--scene must be one of the run's, libero_10; got 'libero_goal'"),
    ],
)
def test_what_the_run_does_not_hold_is_refused(run, choice, complaint):
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        choose_rows(run, EpisodeChoice(**choice))


def test_policies_and_decoders_are_not_averaged(run):
    write_run(run, [(0, 0, "success", 11, [1.0])], decoder="native", fingerprint=digest_tree(BASE))
    with pytest.raises(ValueError, match="--decoder must be given: the chosen episodes are of median, native"):
        choose_rows(run, EpisodeChoice())
    assert len(choose_rows(run, EpisodeChoice(decoder="native"))) == 1


def test_runs_without_what_is_needed_are_refused(tmp_path, run):
    with pytest.raises(ValueError, match="RUN must be a folder that qhead eval wrote"):
        choose_rows(tmp_path, EpisodeChoice())
    rows = choose_rows(run, EpisodeChoice(task=0))
    with pytest.raises(ValueError, match="--policy must be the folder that the run was made with"):
        read_spread(write_run(tmp_path / "other", RUN[:1]), choose_rows(tmp_path / "other", EpisodeChoice()), BASE)
    SideFiles(run / "side").path(rows[0].key).unlink()
    with pytest.raises(ValueError, match=r"has no side file .* --no-side-files"):
        read_spread(run, rows, None)
    point = write_run(tmp_path / "point", RUN[:1], quantiles=False)
    with pytest.raises(ValueError, match="--policy must predict quantiles; 'ours' has none"):
        read_spread(point, choose_rows(point, EpisodeChoice()), None)


# --- the command ------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(app, ["spread", *map(str, arguments)])


def test_numbers_and_figure_are_written(run):
    result = invoke(run, "--policy", f"ours={BASE}")
    assert result.exit_code == 0, result.output
    record = json.loads((run / "spread" / "spread.json").read_text())
    assert len(record["episodes"]) == 3
    assert len(record["average"]["time"]) == GRID
    assert record["average"]["by_dimension"]["dx"]["width"][0] == pytest.approx(3.1 / 3, rel=1e-5)
    rows = list(csv.DictReader((run / "spread" / "spread.csv").open()))
    assert len(rows) == 4 + 3 + 4
    assert float(rows[1]["dx_above"]) - float(rows[1]["dx_below"]) == pytest.approx(3.0)
    assert float(rows[1]["mean_width"]) == pytest.approx(record["episodes"][0]["mean"]["width"][1], rel=1e-4)
    assert (run / "spread" / "spread.svg").read_text().count("<g transform") >= 7
    assert "failure" in result.stdout


def test_without_the_policys_folder_the_mean_is_left_out_and_said_so(run, tmp_path):
    result = invoke(run, "--task", 0, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "give the policy's folder" in result.stderr
    record = json.loads((tmp_path / "out" / "spread.json").read_text())
    assert record["average"]["mean"] is None
    assert invoke(run, "--task", 9).exit_code == 1


@pytest.mark.slow
def test_a_real_run_of_the_shipped_base(tmp_path):
    """Two short episodes in the embedded scene; the policy is named by its folder, which gives the units."""
    arguments = ["eval", "--policy", str(BASE), "--decoder", "median", "--camera-size", "96", "--indices", "0-1"]
    arguments += ["--limit", "12", "--workers", "1", "--no-video", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    result = invoke(tmp_path / "run")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "run" / "spread" / "spread.json").read_text())
    assert [episode["query_steps"] for episode in record["episodes"]] == [[0, 3, 6, 9]] * 2
    for episode in record["episodes"]:
        assert min(episode["mean"]["width"]) > 0
    assert spread_record(read_spread(tmp_path / "run", choose_rows(tmp_path / "run", EpisodeChoice()), BASE)) == record
