"""The robot loop in real time: it asks while it acts, hands over what is left, and goes on where it has come to."""

from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.serving.background_client import BackgroundClient
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import RequestError
from lerobot_policy_quantile.serving.robot_loop import LoopSettings, RobotLoop
from lerobot_policy_quantile.serving.spread import Replanning
from tests.serving.test_robot_loop import PATIENT, run_until
from tests.support.fake_model import FakeModel, request
from tests.support.misbehaving_arm import MisbehavingArm
from tests.support.running_server import running
from tests.support.waiting import PATIENCE, wait_until

REAL_TIME = replace(PATIENT, real_time=True, n_action_steps=5)


class ByHand:
    """A client whose answers come when the test says: chunk n holds 100 n + step."""

    want = ()

    def __init__(self, **metadata):
        self.metadata = {"chunk_size": 10, "n_action_steps": 10, "hands_over": True, **metadata}
        self.waiting, self.sent, self._ready = False, [], False

    def submit(self, timed):
        self.waiting = True
        self.sent.append(timed)

    def answer(self):
        self._ready = True

    def poll(self):
        if not self._ready:
            return None
        self._ready, self.waiting = False, False
        number = len(self.sent) - 1
        return {"actions": np.tile(100.0 * number + np.arange(10)[:, None], (1, 7))}


def executed(arm):
    return [None if command is None else int(command[0]) for command in arm.commands]


def test_the_arm_moves_on_while_it_waits_and_the_new_chunk_begins_where_it_has_come_to():
    arm, client = MisbehavingArm(faults=0), ByHand()
    loop = RobotLoop(arm, client, REAL_TIME)
    loop.tick()  # asks, holds
    client.answer()
    for _ in range(8):  # five actions, asks at the sixth, three of the old chunk meanwhile
        loop.tick()
    assert executed(arm) == [None, 0, 1, 2, 3, 4, 5, 6, 7]
    assert client.sent[1].left_over[:, 0].tolist() == [5, 6, 7, 8, 9]
    client.answer()
    loop.tick()
    assert executed(arm)[-1] == 103
    assert loop.report.held == 1
    while len(client.sent) < 3:
        loop.tick()
    assert client.sent[2].delay == 3, "as long as the last answer took"


def test_a_chunk_that_came_too_late_is_not_executed_and_the_robot_holds():
    arm, client = MisbehavingArm(faults=0), ByHand()
    loop = RobotLoop(arm, client, REAL_TIME)
    loop.tick()
    client.answer()
    for _ in range(13):
        loop.tick()
    assert executed(arm)[-3:] == [None, None, None]
    client.answer()
    loop.tick()
    assert executed(arm)[-1] == 105, "five actions were executed since the request; holding is not acting"


def test_a_policy_that_takes_no_left_over_is_given_none():
    arm, client = MisbehavingArm(faults=0), ByHand(hands_over=False)
    loop = RobotLoop(arm, client, REAL_TIME)
    loop.tick()
    client.answer()
    while len(client.sent) < 2:
        loop.tick()
    assert client.sent[1].left_over is None


def test_against_a_server_the_rest_of_the_chunk_arrives_with_the_request():
    model = FakeModel()
    with running(model) as server:
        background = BackgroundClient(server.url, timeout=PATIENCE)
        arm = MisbehavingArm(faults=0)
        loop = RobotLoop(arm, background, REAL_TIME)
        run_until(loop, lambda: loop.report.chunks >= 5)
        background.close()
    wait_until(lambda: len(model.handed) >= 5)
    handed = [left for left in model.handed if left is not None]
    assert handed
    assert all(left.actions.shape[1] == 7 and left.delay < 10 for left in handed)


def test_the_answer_tells_the_surprise_and_a_refusal_names_the_field():
    with running(FakeModel()) as server, PolicyClient(server.url, timeout=PATIENCE) as client:
        assert client.metadata["hands_over"] is True
        answer = client.infer(request(), left_over=np.zeros((4, 7)), delay=2)
        assert answer["qhead"]["surprise"] == 0.25
        assert "surprise" not in client.infer(request(), want=[])["qhead"]
        with pytest.raises(RequestError, match=r"qhead\.left_over must be finite"):
            client.infer(request(), left_over=np.full((4, 7), np.nan))


def test_adaptive_replanning_is_not_for_real_time():
    with pytest.raises(ValueError, match="replanning must be None in real time"):
        LoopSettings(real_time=True, replanning=Replanning(0.1))
