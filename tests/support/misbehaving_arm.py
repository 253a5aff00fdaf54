"""A simulated arm whose cameras are late, drop frames and repeat them."""

import random
import threading
import time

import numpy as np

from lerobot_policy_quantile.serving.robot_loop import RobotObservation
from tests.support.fake_model import request
from tests.support.waiting import PATIENCE


class MisbehavingArm:
    def __init__(self, seed: int = 0, faults: float = 0.4) -> None:
        self._random, self._faults = random.Random(seed), faults
        self.commands: list[np.ndarray | None] = []
        self.times: list[float] = []
        self.given: list[str] = []
        self._frame = 0
        self.thread: set[int] = set()

    def observe(self):
        kind = self._random.choice(["late", "dropped", "repeated"]) if self._random.random() < self._faults else "good"
        self.given.append(kind)
        if kind == "dropped":
            return None
        if kind != "repeated":
            self._frame += 1
        late = 10 * PATIENCE if kind == "late" else 0.0
        return RobotObservation(request(self._frame), time.monotonic() - late, self._frame)

    def _command(self, command):
        self.thread.add(threading.get_ident())
        self.commands.append(command)
        self.times.append(time.monotonic())

    def act(self, action):
        self._command(np.array(action))

    def hold(self):
        self._command(None)
