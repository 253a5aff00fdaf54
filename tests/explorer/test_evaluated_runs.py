"""Runs of the closed loop: of another project's openpi server, of a LeRobot policy, and watched by an alarm.

A worker of `qhead eval` runs them in this process; `tests/cli/test_eval.py` reads what the command itself wrote.
"""

from pathlib import Path

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.alarmed import AlarmRule
from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.adapters.lerobot_folder import fingerprint
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.worker import EpisodeRunner, WorkerJob
from lerobot_policy_quantile.explorer.episode_reading import read_episode
from lerobot_policy_quantile.explorer.frames import read_frames
from lerobot_policy_quantile.explorer.packing import packed_episode, summary_of
from lerobot_policy_quantile.explorer.run_reading import read_run
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmBand
from lerobot_policy_quantile.serving.signals import SignalUnits
from lerobot_policy_quantile.util.quantiles import levels_of
from tests.adapters.test_lerobot_folder import act, ours
from tests.cli.test_eval import SHORT, qhead
from tests.explorer.conftest import open_page, serving, wait_in
from tests.support.openpi_server import openpi_server

__all__ = ["act", "ours"]
NO_QUANTILES = "the policy predicted no quantiles: no fans, ranks, spread or decoders"
PROBLEMS = "document.getElementById('problems').textContent"


def evaluated(folder: Path, factory: SceneFactory, policy: str, episodes: int = 1) -> Path:
    """Twelve steps of each episode."""
    runner = EpisodeRunner(WorkerJob(factory, 12, SideFiles(folder / "side")))
    with Journal(folder / "journal.sqlite") as journal:
        for index in range(episodes):
            while not journal.record(runner.run(EpisodeKey("embedded", 0, index, 0, policy, "own"))):
                pass  # an error: it is tried again
    runner.close()
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Two episodes at a server that sends actions alone; it fails in the second one, whenever that is tried."""
    asked = []

    def infer(observation):
        asked.append(observation)
        if len(asked) > 2:
            raise RuntimeError("the accelerator is gone")
        return {"actions": np.full((10, 7), 0.01 * len(asked), np.float32)}

    with openpi_server(infer) as url:
        return evaluated(tmp_path_factory.mktemp("foreign"), SceneFactory({"far": f"{url}?steps=6"}, 32), "far", 2)


def test_a_foreign_servers_run_is_read_and_what_is_missing_is_named(foreign):
    run = read_run(foreign)
    assert run.problems == ()
    whole, broken = sorted(run.rows, key=lambda row: row.key.index)
    record = read_episode(run, whole)
    assert record.problems == [NO_QUANTILES]
    assert (record.actions.shape, record.query_steps.tolist()) == ((12, 7), [0, 6])
    np.testing.assert_allclose(record.actions[[0, 6], 0], [0.01, 0.02], rtol=1e-6)
    assert read_frames(run, whole, record.query_steps)[0].cameras == 2
    assert summary_of(run, whole) == {"id": whole.key.digest, "spread": None, "alarm": None}
    error, nothing = read_episode(run, broken).problems
    assert "ended in an error" in error
    assert "the accelerator is gone" in error
    assert nothing == f"no actions or predictions: {broken.key.digest}.npz is missing"
    for row in run.rows:
        assert packed_episode(run, row, small=True)


@pytest.mark.browser
def test_the_page_shows_a_foreign_servers_episode_and_says_what_is_missing(browser, foreign):
    with serving(foreign) as server:
        open_page(browser, server.address)
        assert browser.run("document.querySelectorAll('#rows .row').length") == 2
        assert NO_QUANTILES in browser.run(PROBLEMS)
        assert browser.run("document.getElementById('replan').hidden")
        assert browser.run("document.getElementById('film-a').width") == 64  # two cameras of 32 px
        assert browser.run("document.querySelector('#timeline .plot').data[0].y.length") == 12
        broken = next(row for row in read_run(foreign).rows if row.status == "error")
        browser.run(f"location.hash = '#e=0/{broken.key.digest}'")
        wait_in(browser, f"document.body.dataset.drawn === '0/{broken.key.digest}'")
        assert "the accelerator is gone" in browser.run(PROBLEMS)
        assert browser.complaints() == []


def test_a_lerobot_policy_without_quantiles_is_read(act, tmp_path):
    run = read_run(evaluated(tmp_path, SceneFactory({"act": str(act)}, 32), "act"))
    record = read_episode(run, run.rows[0])
    assert record.problems == [NO_QUANTILES]
    assert record.query_steps.tolist() == [0, 4, 8]


def always_late(fingerprint: str) -> Alarm:
    """An alarm that is off in the first ten steps of any episode and on after them."""
    units = SignalUnits(tuple(levels_of(21)), tuple(range(6)), np.ones((10, 6)))
    band = AlarmBand(10, np.array([[1e6], [-1e6]]), np.ones((2, 1)))
    return Alarm(fingerprint, "embedded", "median", ("width",), 0.1, 0.0, band, units, (1, 1))


@pytest.fixture(scope="module")
def watched(ours, tmp_path_factory):
    """One episode of a tiny policy; from its second replan on the alarm is on and it looks again after every step."""
    folder = tmp_path_factory.mktemp("watched")
    always_late(fingerprint(ours)).write(folder / "alarm.json")
    factory = SceneFactory({"ours": str(ours)}, 32, alarm=AlarmRule(str(folder / "alarm.json")))
    return evaluated(folder / "run", factory, "ours")


def test_an_alarm_of_the_closed_loop_is_in_table_and_record(watched):
    run = read_run(watched)
    record = read_episode(run, run.rows[0])
    assert record.problems == []
    assert record.query_steps.tolist() == [0, 10, 11]
    assert record.per_query["alarm"].tolist() == [0, 1, 1]
    assert summary_of(run, run.rows[0])["alarm"] == 10


@pytest.mark.slow
def test_an_alarm_of_the_command_is_read(ours, tmp_path):
    always_late(fingerprint(ours)).write(tmp_path / "alarm.json")
    rule = ("--alarm", tmp_path / "alarm.json", "--on-alarm", "stop")
    ran = qhead("eval", "--policy", f"ours={ours}", "--indices", "0", *SHORT, *rule, "--out", tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    run = read_run(tmp_path / "run")
    record = read_episode(run, run.rows[0])
    assert (record.problems, record.per_query["alarm"].tolist()) == ([], [0, 1])
    assert (summary_of(run, run.rows[0])["alarm"], run.rows[0].steps) == (10, 10)


@pytest.mark.browser
def test_an_alarm_of_the_closed_loop_is_on_the_time_axis(browser, watched):
    with serving(watched) as server:
        open_page(browser, server.address)
        wait_in(browser, "document.querySelector('#rows .row').lastChild.textContent === 'at 10'")
        drawn = browser.run(
            "(plot => plot.data.filter(t => t.name === 'alarm').map(t => [[...t.x], [...t.y]]))"
            "(document.querySelector('#timeline .plot'))"
        )
        assert drawn == [[[0, 10, 11], [0, 1, 1]]]
        assert browser.complaints() == []
