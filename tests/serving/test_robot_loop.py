"""The robot loop against a misbehaving arm and servers that come and go."""

import itertools
import multiprocessing
import os
import signal
import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.serving.background_client import BackgroundClient
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import RequestError
from lerobot_policy_quantile.serving.robot_loop import LoopSettings, RobotLoop
from lerobot_policy_quantile.serving.spread import Replanning, motion_spread, served_grippers, spread
from tests.support.fake_model import CAMERAS, LEVELS, FakeModel, request
from tests.support.misbehaving_arm import MisbehavingArm
from tests.support.running_server import running
from tests.support.waiting import PATIENCE, wait_until

PATIENT = LoopSettings(hz=200, max_age=PATIENCE)
"""Old is what the arm calls late, not what a busy machine delays."""


def run_until(loop, condition, seconds=PATIENCE):
    """Ticks until a condition holds; the machine's speed decides nothing but how long it takes."""
    until = time.monotonic() + seconds
    loop.run(ticks=100_000, done=lambda: condition() or time.monotonic() > until)
    assert condition(), loop.report


def stretches(arm):
    """Lengths of the runs of actions between holds."""
    runs = itertools.groupby(arm.commands, lambda command: command is not None)
    return [sum(1 for _ in commands) for acting, commands in runs if acting]


def test_late_dropped_and_repeated_frames_are_not_asked_about_and_the_robot_holds_meanwhile():
    arm = MisbehavingArm()
    with running(FakeModel()) as server:
        background = BackgroundClient(server.url, timeout=PATIENCE)
        loop = RobotLoop(arm, background, PATIENT)
        run_until(loop, lambda: loop.report.chunks >= 20)
        background.close()
    report = loop.report
    faults = sum(kind != "good" for kind in arm.given)
    assert {"late", "dropped", "repeated"} <= set(arm.given)
    assert faults - 1 <= report.unusable <= faults  # a first frame cannot be a repeated one
    assert report.ticks == report.executed + report.held == len(arm.commands) - 1
    assert arm.commands[-1] is None, "the robot holds at the end"
    assert background.counts.answers in (report.chunks, report.chunks + 1)
    assert len(arm.thread) == 1, "commands come from the loop's own thread"
    runs = [
        sum(1 for _ in group) for acting, group in itertools.groupby(arm.commands, lambda c: c is not None) if acting
    ]
    assert set(runs[:-1]) == {10}, "a chunk is executed whole and without gaps"


def test_a_busy_server_makes_the_robot_hold_and_try_again():
    model = FakeModel(shut=True)
    with running(model, max_queue=1, max_batch=1) as server:
        stop = threading.Event()

        def crowd():
            with PolicyClient(server.url, timeout=PATIENCE) as client:
                while not stop.is_set():
                    try:
                        client.infer(request(), want=[])
                    except RequestError:
                        time.sleep(0.01)

        threads = [threading.Thread(target=crowd) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: model.begun.is_set() and server.server._batcher._queue)  # one is computed, one waits
        background = BackgroundClient(server.url, timeout=PATIENCE, backoff=(0.02, 0.1))
        loop = RobotLoop(MisbehavingArm(faults=0), background, PATIENT)
        run_until(loop, lambda: background.counts.refused >= 1)
        model.gate.set()
        run_until(loop, lambda: loop.report.chunks >= 2)
        stop.set()
        for thread in threads:
            thread.join()
        background.close()


def _serve_forever(port, shut, begun):
    model = FakeModel(shut=shut)
    with running(model, port=port):
        model.begun.wait()
        begun.set()
        threading.Event().wait()


def start(port, *, shut=False):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imports once; every server is a fork of that
    process = context.Process(target=_serve_forever, args=(port, shut, begun := context.Event()), daemon=True)
    process.begun = begun
    process.start()
    while True:
        try:
            PolicyClient(f"ws://127.0.0.1:{port}").close()
        except ServerGoneError:
            time.sleep(0.05)
        else:
            return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_kill_nine_in_mid_request_is_an_error_at_once_and_the_loop_holds_reconnects_and_goes_on():
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    server = start(port, shut=True)
    with PolicyClient(url, timeout=PATIENCE) as client:
        caught = []

        def ask():
            try:
                client.infer(request(), want=[])
            except ServerGoneError as error:
                caught.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        assert server.begun.wait(PATIENCE)
        os.kill(server.pid, signal.SIGKILL)
        thread.join()
        server.join()
    (said,) = caught
    assert "closed the connection" in said, "told by the kernel, not by the end of the client's patience"

    server = start(port)
    arm = MisbehavingArm(faults=0)
    background = BackgroundClient(url, timeout=PATIENCE, backoff=(0.02, 0.1))
    loop = RobotLoop(arm, background, PATIENT)
    run_until(loop, lambda: loop.report.chunks >= 2)
    os.kill(server.pid, signal.SIGKILL)
    server.join()
    run_until(loop, lambda: background.counts.lost >= 3)
    held = loop.report.held
    run_until(loop, lambda: loop.report.held > held + 5)
    assert arm.commands[-1] is None
    assert background.counts.sessions == 1
    chunks = loop.report.chunks
    server = start(port)
    run_until(loop, lambda: loop.report.chunks >= chunks + 2)
    assert background.counts.sessions == 2, "a server that was killed has forgotten the session; a new one begins"
    background.close()
    os.kill(server.pid, signal.SIGKILL)
    server.join()


def test_a_request_the_server_calls_invalid_stops_the_loop_and_the_robot_holds():
    class Blind(MisbehavingArm):
        def observe(self):
            seen = super().observe()
            return seen._replace(observation={k: v for k, v in seen.observation.items() if k != CAMERAS[1]})

    arm = Blind(faults=0)
    with running(FakeModel()) as server:
        background = BackgroundClient(server.url, timeout=PATIENCE)
        with pytest.raises(RequestError, match="observation/wrist_image is missing"):
            RobotLoop(arm, background, PATIENT).run(ticks=10_000)
        background.close()
    assert all(command is None for command in arm.commands)


# --- adaptive replanning ---


def test_spread_is_the_width_of_the_central_eighty_percent():
    """Uniform laws on [0, w] have Q(u) = w u, so the width is 0.8 w."""
    width = np.array([[1.0, 2.0], [3.0, 0.0]])
    quantiles = width[..., None] * np.array(LEVELS)
    np.testing.assert_allclose(spread(quantiles, LEVELS), 0.8 * width)
    np.testing.assert_allclose(spread(quantiles[..., 1:4], LEVELS[1:4]), 0.8 * width)  # beyond the levels


@pytest.mark.parametrize(
    ("widths", "minimum", "maximum", "steps"),
    [
        ([0.1, 0.1, 0.1, 0.1], 1, None, 4),
        ([0.1, 0.1, 0.9, 0.1], 1, None, 2),
        ([0.9, 0.1, 0.1, 0.1], 1, None, 1),
        ([0.9, 0.9, 0.9, 0.9], 3, None, 3),
        ([0.9, 0.9, 0.9, 0.9], 9, None, 4),
        ([0.1, 0.1, 0.1, 0.1], 1, 2, 2),
    ],
)
def test_steps_are_executed_while_the_spread_stays_small(widths, minimum, maximum, steps):
    gripper = np.full((4, 1), 5.0)  # its spread does not count
    chunk = np.concatenate([np.repeat(np.array(widths)[:, None], 6, axis=1), gripper], axis=1)
    assert Replanning(0.5, minimum, maximum).steps(chunk, (6,)) == steps


def test_only_motion_counts_as_doubt():
    """Two arms of two: the grippers, 1 and 3, are wide; without any gripper all four count."""
    widths = np.tile([0.1, 5.0, 0.3, 5.0], (4, 1))
    np.testing.assert_allclose(motion_spread(widths, (1, 3)), 0.2)
    np.testing.assert_allclose(motion_spread(widths, ()), 2.6)
    assert Replanning(0.5).steps(widths, (1, 3)) == 4
    assert Replanning(0.5).steps(widths, (3,)) == 1


def test_the_server_says_which_coordinates_are_grippers():
    assert served_grippers({"grippers": [6, 13]}) == (6, 13)
    assert served_grippers({"grippers": []}) == ()
    assert served_grippers({}) == (-1,)  # a server older than the entry


def test_the_loop_replans_where_the_policy_is_in_doubt():
    """The fake model's spread grows by 0.08 with every step: a threshold of 0.3 leaves three of ten."""
    arm = MisbehavingArm(faults=0)
    with running(FakeModel()) as server:
        background = BackgroundClient(server.url, timeout=PATIENCE, want=("spread",))
        loop = RobotLoop(arm, background, replace(PATIENT, replanning=Replanning(0.3)))
        run_until(loop, lambda: loop.report.chunks >= 4)
        background.close()
        with pytest.raises(ValueError, match="want must hold 'spread'"):
            RobotLoop(arm, BackgroundClient(server.url), LoopSettings(replanning=Replanning(0.3)))
    runs = [
        sum(1 for _ in group) for acting, group in itertools.groupby(arm.commands, lambda c: c is not None) if acting
    ]
    assert set(runs[:-1]) == {3}


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0.0}, {"threshold": 1.0, "minimum": 0}, {"threshold": 1.0, "maximum": 0}]
)
def test_replanning_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must (be|lie)"):
        Replanning(**wrong)
