"""The alarm's reading in answers, and what the robot loop does about it."""

import dataclasses

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy
from lerobot_policy_quantile.adapters.server_address import ServerAddress
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmBand
from lerobot_policy_quantile.serving.background_client import BackgroundClient
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.robot_loop import LoopSettings, RobotLoop
from lerobot_policy_quantile.serving.signals import SignalUnits
from tests.serving.test_robot_loop import run_until, stretches
from tests.support.fake_model import ACTION_DIM, LEVELS, STEPS, FakeModel, request
from tests.support.fake_worlds import FakeWorld
from tests.support.misbehaving_arm import MisbehavingArm
from tests.support.running_server import running
from tests.support.waiting import PATIENCE


def alarm(threshold):
    """On where the mean width, 1 for the fake model by construction, is above a threshold."""
    widths = 0.8 * 0.1 * (1 + np.arange(STEPS))[:, None] * np.ones((1, ACTION_DIM - 1))
    units = SignalUnits(LEVELS, tuple(range(ACTION_DIM - 1)), widths)
    band = AlarmBand(STEPS, np.zeros((3, 1)), np.ones((3, 1)))
    return Alarm("fake", "fake", "median", ("width",), 0.1, threshold, band, units, (1, 1))


def test_every_answer_says_whether_the_alarm_is_on_and_a_new_episode_begins_anew():
    with running(FakeModel(), alarm=alarm(0.5)) as server, PolicyClient(server.url) as client:
        first, second = client.infer(request(1))["alarm"], client.infer(request(2))["alarm"]
        again = client.infer(request(3), reset=True)["alarm"]
    assert first["on"] is True
    assert first["score"] == pytest.approx(1.0)
    assert first["signals"]["surprise"] is None, "all of a chunk is executed: nothing is left over"
    assert [each["step"] for each in (first, second, again)] == [0, STEPS, 0]
    with running(FakeModel(), alarm=alarm(2.0)) as server, PolicyClient(server.url) as client:
        assert client.infer(request(1))["alarm"]["on"] is False
    with running(FakeModel()) as server, PolicyClient(server.url) as client:
        assert "alarm" not in client.infer(request(1))


class LargerPictures(FakeWorld):
    """As large as a server takes them."""

    def frames(self):
        return {name: picture.repeat(4, 0).repeat(4, 1) for name, picture in super().frames().items()}


@pytest.mark.parametrize("threshold", [0.5, 2.0])
def test_the_closed_loop_keeps_what_a_server_said(threshold):
    key = EpisodeKey("fake", 0, 0, 0, "far", "own")
    with running(FakeModel(), alarm=alarm(threshold)) as server:
        watched = run_episode(LargerPictures(), ServerPolicy(ServerAddress.parse(server.url)), key)
    with running(FakeModel()) as server:
        alone = run_episode(LargerPictures(), ServerPolicy(ServerAddress.parse(server.url)), key)
    assert watched.trace.arrays()["alarm"].tolist() == [threshold < 1] * 2, watched.outcome.traceback
    assert "alarm" not in alone.trace.arrays()


def looped(server, settings, on_alarm, chunks, **options):
    arm = MisbehavingArm(faults=0)
    background = BackgroundClient(server.url, timeout=PATIENCE, **options)
    loop = RobotLoop(arm, background, settings, **({} if on_alarm is None else {"on_alarm": on_alarm}))
    run_until(loop, lambda: loop.report.chunks >= chunks and not loop._plan)
    return arm, background, loop


PATIENT = LoopSettings(hz=200, max_age=PATIENCE)


def test_on_the_servers_alarm_the_robot_looks_again_after_every_step():
    with running(FakeModel(), alarm=alarm(0.5)) as server:
        arm, background, loop = looped(server, PATIENT, None, 4)
        background.close()
    assert loop.report.alarms == loop.report.chunks
    assert set(stretches(arm)) == {1}


def test_an_alarm_of_the_loops_own_calls_for_help_and_the_robot_holds_until_it_came():
    calls = []

    def call(reading):
        calls.append(reading["step"])
        return "hold"

    settings = dataclasses.replace(PATIENT, alarm=alarm(0.5))
    with running(FakeModel()) as server:
        arm, background, loop = looped(server, settings, call, 1, want=("quantiles",))
        for _ in range(20):
            loop.tick()
        assert (loop.report.chunks, loop.report.executed, calls) == (1, 0, [0])
        assert all(command is None for command in arm.commands)
        loop.go_on()
        run_until(loop, lambda: loop.report.chunks == 2)
        background.close()
    assert calls == [0, 0]


def test_an_alarm_in_the_loop_needs_quantiles():
    class Deaf:
        want = ()

    with pytest.raises(ValueError, match="want must hold 'quantiles' for an alarm in the loop"):
        RobotLoop(MisbehavingArm(), Deaf(), LoopSettings(alarm=alarm(0.5)))
