"""AgileX Piper through the policy server: two RGB cameras, ten-step chunks, one journal row per trial (App. B.2).

    QHEAD_TOKEN=... python examples/piper.py ws://gpu-box:8000 --task "fold the towel" --trials 100 --out runs/piper

The robot's machine needs `piper_sdk` and OpenCV; the policy runs where `qhead serve` does. Joints are absolute, in
radians, the gripper in metres, as the demonstrations must have been recorded: start the server with --limits that fit
the arm, and try with --simulate first. After each trial the operator says whether it succeeded; run the same command
again to go on after a break, or with another --task and the same --out: `qhead table runs/piper` is the table over all
tasks. The arm moves on while the next chunk is computed and takes over from what is left of the present one; it holds,
by commanding the joints it has at that moment, only where the server takes longer than a chunk lasts.
"""

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lerobot_policy_quantile.contract import WIRE_NAMES
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.rates import success_table
from lerobot_policy_quantile.serving.background_client import BackgroundClient
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.robot_loop import LoopSettings, RobotLoop, RobotObservation

HZ, STEPS = 20, 5
"""Rate, and actions after which the next chunk is asked for, while the arm goes on with the present one."""
CAMERAS = tuple(WIRE_NAMES.values())
MILLIDEGREES = 1e3 * 180 / math.pi
MICROMETRES = 1e6


class Arm(Protocol):
    """Joints and cameras."""

    def pictures(self) -> list[Any]:
        """One RGB picture per camera, uint8."""

    def state(self) -> Any:
        """Six joints in radians and the gripper's opening in metres."""

    def move(self, target: Any) -> None:
        """Command joints and gripper."""


class Piper:
    """The arm on its CAN bus, and two OpenCV cameras."""

    def __init__(self, can: str, cameras: list[int], speed: int = 30) -> None:
        import cv2
        from piper_sdk import C_PiperInterface_V2

        self._colour, self._speed = cv2.COLOR_BGR2RGB, speed
        self._convert = cv2.cvtColor
        self._cameras = [cv2.VideoCapture(index) for index in cameras]
        self._arm = C_PiperInterface_V2(can)
        self._arm.ConnectPort()
        until = time.monotonic() + 10
        while not self._arm.EnablePiper():
            if time.monotonic() > until:
                raise RuntimeError(f"the arm on {can} does not enable; is it powered and is the bus up?")
            time.sleep(0.01)

    def pictures(self) -> list[Any]:
        """A camera without a picture gives nothing at all: the loop holds."""
        frames = [camera.read() for camera in self._cameras]
        return [self._convert(frame, self._colour) for good, frame in frames if good]

    def state(self) -> Any:
        joints = self._arm.GetArmJointMsgs().joint_state
        angles = [getattr(joints, f"joint_{n}") / MILLIDEGREES for n in range(1, 7)]
        return np.array([*angles, self._arm.GetArmGripperMsgs().gripper_state.grippers_angle / MICROMETRES])

    def move(self, target: Any) -> None:
        self._arm.MotionCtrl_2(0x01, 0x01, self._speed, 0x00)  # CAN control, joint moves, per cent of full speed
        self._arm.JointCtrl(*(round(angle * MILLIDEGREES) for angle in target[:6]))
        self._arm.GripperCtrl(round(abs(target[6]) * MICROMETRES), 1000, 0x01, 0)


class SimulatedArm:
    """Goes where it is told, sees noise: for trying the loop and the journal without an arm."""

    def __init__(self, state_dim: int) -> None:
        self._state = np.zeros(state_dim)
        self._draw = np.random.default_rng(0)

    def pictures(self) -> list[Any]:
        return [self._draw.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in CAMERAS]

    def state(self) -> Any:
        return self._state

    def move(self, target: Any) -> None:
        size = min(len(target), len(self._state))
        self._state[:size] = target[:size]


class Robot:
    """An arm as the robot loop knows it."""

    def __init__(self, arm: Arm, task: str) -> None:
        self._arm, self._task, self._frame = arm, task, 0
        self.first_action: tuple[float, ...] | None = None

    def observe(self) -> RobotObservation | None:
        captured, pictures = time.monotonic(), self._arm.pictures()
        if len(pictures) < len(CAMERAS):
            return None
        self._frame += 1
        named = dict(zip(CAMERAS, pictures, strict=True))
        state = np.asarray(self._arm.state(), dtype=np.float32)
        return RobotObservation({**named, "observation/state": state, "prompt": self._task}, captured, self._frame)

    def act(self, action: Any) -> None:
        self.first_action = self.first_action or tuple(map(float, action))
        self._arm.move(action)

    def hold(self) -> None:
        self._arm.move(self._arm.state())


def trial(
    key: EpisodeKey, arm: Arm, task: str, background: BackgroundClient, seconds: float, context: dict[str, str]
) -> Outcome:
    """One trial, judged by the operator."""
    robot = Robot(arm, task)
    began = time.monotonic()
    report = RobotLoop(robot, background, LoopSettings(hz=HZ, n_action_steps=STEPS, real_time=True)).run(
        ticks=round(seconds * HZ)
    )
    answer = ""
    while answer not in ("y", "n"):
        answer = input(f"trial {key.index}: {report.executed} actions, {report.held} holds; success? [y/n] ").strip()
    return Outcome(
        key,
        "success" if answer == "y" else "failure",
        steps=report.executed,
        control_hz=HZ,
        wall_seconds=time.monotonic() - began,
        first_action=robot.first_action,
        final_state=tuple(map(float, arm.state())),
        scene_context={"robot": type(arm).__name__, "seconds": str(seconds)},
        policy_context=context,
    )


def main() -> None:
    """Trials that have no row yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--task", required=True, help="the instruction")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a trial")
    parser.add_argument("--decoder", default="median")
    parser.add_argument("--name", default="served", help="the method's name in the table, NAME#SEED for several seeds")
    parser.add_argument("--out", type=Path, default=Path("runs/piper"))
    parser.add_argument("--can", default="can0")
    parser.add_argument("--cameras", type=int, nargs=2, default=[0, 2], help="external and wrist camera")
    parser.add_argument("--simulate", action="store_true", help="no arm: a simulated one")
    options = parser.parse_args()
    token = os.environ.get("QHEAD_TOKEN")
    with PolicyClient(options.url, token=token) as client:
        facts = client.metadata
    arm: Arm = SimulatedArm(facts["state_dim"]) if options.simulate else Piper(options.can, options.cameras)
    keys = [EpisodeKey(f"piper {options.task}", 0, n, 0, options.name, options.decoder) for n in range(options.trials)]
    with Journal(options.out / "journal.sqlite") as journal:
        for key in [key for key in keys if key not in journal.settled()]:
            input(f"trial {key.index}: set up the scene, then press Enter ")
            background = BackgroundClient(
                options.url, token=token, decoder=options.decoder, seed=key.noise_seed, timeout=2.0
            )
            try:
                journal.record(trial(key, arm, options.task, background, options.seconds, dict(facts["context"])))
            finally:
                background.close()
        print(success_table(journal.rows()), end="")


if __name__ == "__main__":
    main()
