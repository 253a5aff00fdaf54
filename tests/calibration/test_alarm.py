"""Alarms from journals: the band of successful episodes, its false-alarm rate, what it finds, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters.alarmed import AlarmedPolicy, AlarmRule
from lerobot_policy_quantile.calibration.alarm_fit import RecordedEpisode, fit_alarm, watch
from lerobot_policy_quantile.calibration.alarm_scores import alarm_record
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.contract import Chunk, UnusablePolicyError
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmMonitor, parse_signals
from lerobot_policy_quantile.serving.signals import SignalUnits, reference_widths
from tests.support.fake_worlds import LIMIT, FakePolicy, FakeWorld
from tests.support.rows import row

LEVELS = quantile_levels().double().numpy()
CHUNK, STEP, DIM = 6, 3, 3


def law(width, middle=0.0):
    """A uniform law, the same at every step and dimension."""
    return middle + width * np.ones((CHUNK, DIM, 1)) * (LEVELS - 0.5)


def episode(index, *, status="success", replans=12, bad_from=None, rng=None):
    """Widths rise and fall over time with noise of the episode; from a replan on they are three times as wide."""
    rng = rng or np.random.default_rng(index)
    level = rng.uniform(0.8, 1.2)
    shape = 1 + np.sin(np.arange(replans) / replans * np.pi)
    widths = level * shape * rng.uniform(0.9, 1.1, replans)
    if bad_from is not None:
        widths[bad_from:] *= 3
    quantiles = np.stack([law(width, 0.02 * rng.normal()) for width in widths])
    found = row("fake", 0, index, status=status, steps=STEP * replans, limit="60", policy="ours")
    return RecordedEpisode(found, STEP * np.arange(replans), quantiles)


@pytest.fixture(scope="module")
def alarm():
    return fit_alarm([episode(i) for i in range(80)], alpha=0.1)


def test_few_new_successful_episodes_raise_the_alarm():
    """Over many fits, as the guarantee is meant: the share is at most alpha, and not far below it."""
    rng, rang = np.random.default_rng(0), []
    for _ in range(25):
        fitted = fit_alarm([episode(i, rng=rng) for i in range(38)], alpha=0.1)
        rang += [watch(fitted, episode(1000 + i, rng=rng)).first is not None for i in range(20)]
    assert 0.04 < np.mean(rang) < 0.14


def test_an_episode_that_leaves_the_band_raises_the_alarm_when_it_does(alarm):
    seen = watch(alarm, episode(500, status="failure", bad_from=5))
    assert seen.first == 5 * STEP
    assert seen.lead == 60 - 5 * STEP
    assert not seen.readings[4].on


def test_signals_are_what_they_are_said_to_be():
    reference = reference_widths([law(2.0)[None]], LEVELS, (0, 1))
    assert reference == pytest.approx(np.full((CHUNK, 2), 1.6))
    units = SignalUnits(tuple(LEVELS), (0, 1), reference)
    first = units.signals(law(4.0), None, 0)
    assert [first[name] for name in ("width", "max_width", "relative_width")] == pytest.approx([2.0] * 3)
    assert np.isnan(first["surprise"])
    same = units.signals(law(4.0), law(1.0), STEP)
    assert same["surprise"] == 0
    assert same["instability"] < 0.06
    moved = units.signals(law(1.0), law(1.0, middle=2.0), STEP)
    assert moved["surprise"] == pytest.approx((2.0 - 0.4) / 1.6)
    assert moved["instability"] == 1
    assert np.isnan(units.signals(law(1.0), law(1.0), CHUNK)["surprise"]), "nothing was left over"


def test_the_gripper_does_not_count():
    wide = law(1.0)
    wide[:, 2] *= 50
    units = SignalUnits(tuple(LEVELS), (0, 1), reference_widths([law(1.0)[None]], LEVELS, (0, 1)))
    assert units.signals(wide, None, 0)["max_width"] == pytest.approx(1.0)


def test_an_alarm_is_the_same_after_its_file(alarm, tmp_path):
    alarm.write(tmp_path / "alarm.json")
    again = Alarm.read(tmp_path / "alarm.json")
    bad = episode(7, bad_from=4)
    assert [r.record() for r in watch(again, bad).readings] == [r.record() for r in watch(alarm, bad).readings]
    assert (tmp_path / "alarm.json").stat().st_size < 50_000
    json.loads((tmp_path / "alarm.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_too_few_successes_are_refused_with_the_number_needed():
    episodes = [episode(i) for i in range(17)] + [episode(50 + i, status="failure") for i in range(30)]
    with pytest.raises(ValueError, match=r"--alpha 0\.1 needs at least 18 successful episodes.*got 17"):
        fit_alarm(episodes, alpha=0.1)


def test_signals_that_successful_episodes_never_have_are_left_out():
    """Chunks executed to their end leave no plan to compare with; a replan after one step must not ring for it."""
    whole = [dataclasses.replace(e, steps=CHUNK * np.arange(12)) for e in map(episode, range(40))]
    fitted = fit_alarm(whole, alpha=0.1)
    assert fitted.signals == ("width", "max_width", "relative_width")
    with pytest.raises(ValueError, match=r"--signals must name one that the run's replans have; got surprise"):
        fit_alarm(whole, alpha=0.1, signals=("surprise",))


def test_scores_of_a_run_say_what_is_found_and_what_time_alone_would_find(alarm):
    good = [episode(600 + i) for i in range(40)]
    bad = [episode(700 + i, status="failure", replans=20, bad_from=5) for i in range(10)]
    record = alarm_record([watch(alarm, e) for e in good + bad])
    assert record["auroc"]["value"] > 0.95
    assert record["auroc_of_length"]["value"] == 1
    assert record["detection"]["hits"] == 10
    assert record["false_alarms"]["of"] == 40
    assert record["lead_steps"] >= 60 - 5 * STEP - STEP
    assert record["horizons"][0]["running"] == 50
    assert record["horizons"][3]["running"] == record["horizons"][3]["failures"] == 10


def write_run(folder, episodes, fingerprint="abc"):
    files = SideFiles(folder / "side", video=False)
    with Journal(folder / "journal.sqlite") as journal:
        for each in episodes:
            steps = each.row.steps
            trace = Trace(contacts=[0] * steps, query_steps=list(each.steps), quantiles=list(each.quantiles))
            trace.actions, trace.states = [np.zeros(DIM)] * steps, [np.zeros(8)] * (steps + 1)
            files.write(each.row.key, trace)
            context = {"policy_context": {"policy": fingerprint}, "scene_context": {"limit": "60"}}
            journal.record(Outcome(each.row.key, each.row.status, steps, **context))
    return folder


def command(*arguments):
    return CliRunner().invoke(app, ["alarm", *map(str, arguments)], env={"COLUMNS": "200"})


def test_an_alarm_is_fitted_and_scored_from_journals_alone(tmp_path):
    first = write_run(tmp_path / "a", [episode(i) for i in range(20)] + [episode(90, status="failure", bad_from=1)])
    second = write_run(
        tmp_path / "b",
        [episode(200 + i) for i in range(6)] + [episode(300 + i, status="failure", bad_from=4) for i in range(5)],
    )
    file = tmp_path / "alarm.json"
    fitted = command("fit", first, "--alpha", "0.1", "--out", file)
    assert fitted.exit_code == 0, fitted.output
    assert "band from 10 successful episodes" in fitted.stdout
    scored = command("score", second, "--alarm", file)
    assert scored.exit_code == 0, scored.output
    assert "5 of 5" in scored.stdout
    assert json.loads(command("score", second, "--alarm", file, "--json").stdout)["failures"] == 5
    other = write_run(tmp_path / "c", [episode(400)], fingerprint="other")
    refused = command("score", other, "--alarm", file)
    assert refused.exit_code == 1
    assert "alarm must be fitted for this policy, whose fingerprint is other; it was fitted for abc" in refused.stderr
    assert "qhead alarm fit RUN" in refused.stderr


def test_files_and_signals_that_are_none_are_refused(tmp_path):
    (tmp_path / "no.json").write_text('{"format": "something"}')
    with pytest.raises(ValueError, match="alarm must be a file that qhead alarm fit wrote"):
        Alarm.read(tmp_path / "no.json")
    with pytest.raises(ValueError, match=r"--signals must be among width, .*; got 'weight'"):
        parse_signals("width,weight")


def test_a_chunk_of_another_length_is_refused(alarm):
    with pytest.raises(ValueError, match="quantiles must have chunks of 6 steps"):
        AlarmMonitor(alarm).observe(0, np.zeros((4, DIM, 21)))


# --- acting on it -----------------------------------------------------------------------------


class Doubting(FakePolicy):
    """Certain for two chunks of the fake world, then not."""

    def __init__(self):
        super().__init__(n_action_steps=STEP)

    def begin(self, seed, world, decoder):
        return _Memory(decoder, [0])

    def act(self, observations, memories):
        answers = []
        for memory in memories:
            memory.asked[0] += 1
            wide = 30.0 if memory.asked[0] > 2 else 1.0
            answers.append(Chunk(np.full((CHUNK, 7), 0.01 if memory.decoder == "median" else 0.5), law(wide)))
        return answers


@dataclasses.dataclass(frozen=True)
class _Memory:
    decoder: str
    asked: list


@pytest.fixture
def file(alarm, tmp_path):
    dataclasses.replace(alarm, policy="fake").write(tmp_path / "alarm.json")
    return tmp_path / "alarm.json"


def run(file, reaction):
    policy = AlarmedPolicy(Doubting(), AlarmRule(str(file), reaction))
    return run_episode(FakeWorld(), policy, EpisodeKey("fake", 0, 1, 0, "fake", "median"))


def test_on_alarm_the_loop_looks_again_after_every_step(file):
    trace = run(file, "replan").trace
    assert trace.query_steps == [0, 3, *range(6, LIMIT)]
    assert trace.arrays()["alarm"].tolist() == [step >= 6 for step in trace.query_steps]


def test_on_alarm_the_loop_can_stop(file):
    done = run(file, "stop")
    assert (done.outcome.status, done.outcome.steps) == ("failure", 6)
    assert done.outcome.policy_context["alarm"].startswith("stop by ")
    assert len(done.trace.quantiles) == len(done.trace.query_steps) == 3
    assert done.trace.alarms == [False, False, True]


def test_on_alarm_the_loop_can_switch_to_another_decoder(file):
    trace = run(file, "independent").trace
    assert trace.query_steps[:4] == [0, 3, 6, 7]
    assert [float(action[0]) for action in trace.actions[5:8]] == [0.01, 0.01, 0.5]


def test_an_alarm_of_another_policy_ends_the_run(alarm, tmp_path):
    alarm.write(tmp_path / "alarm.json")
    with pytest.raises(UnusablePolicyError, match="alarm must be fitted for this policy, whose fingerprint is fake"):
        run(tmp_path / "alarm.json", "stop")


def test_reactions_and_sources_that_do_not_fit_are_refused(file):
    assert AlarmRule.parse(None, "replan", {}) is None
    assert AlarmRule.parse(file, "shared(l=.1)", {}).reaction == "shared(l=0.1, rho=0.9)"
    with pytest.raises(ValueError, match="--on-alarm must be replan, stop or a decoder; decoder must be one of"):
        AlarmRule.parse(file, "panic", {})
    with pytest.raises(ValueError, match="--alarm is for policy folders; got 'a'"):
        AlarmRule.parse(file, "stop", {"a": "ws://host:8000"})
