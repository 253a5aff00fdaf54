"""A simulated robot for `lerobot-rollout`: two joints and a gripper that follow at once, one camera."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.robots import Robot

from tests.support.toy_arm.config import ToyArmConfig

JOINTS = ("shoulder.pos", "elbow.pos", "gripper.pos")
CAMERA = "top"


class ToyArm(Robot):
    """Goes wherever it is sent."""

    config_class = ToyArmConfig
    name = "toy_arm"

    def __init__(self, config: ToyArmConfig) -> None:
        super().__init__(config)
        self.config, self.cameras = config, {}
        self._joints = dict.fromkeys(JOINTS, 0.0)
        self._sent: list[list[float]] = []
        self._connected = False

    @property
    def observation_features(self) -> dict[str, Any]:
        return {**dict.fromkeys(JOINTS, float), CAMERA: (32, 32, 3)}

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(JOINTS, float)

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        self._connected = True

    def disconnect(self) -> None:
        self._connected = False

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    def get_observation(self) -> dict[str, Any]:
        return {**self._joints, CAMERA: np.full((32, 32, 3), len(self._sent) % 256, dtype=np.uint8)}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        self._joints = {name: float(action[name]) for name in JOINTS}
        self._sent.append(list(self._joints.values()))
        if len(self._sent) == self.config.actions:
            Path(self.config.journal).write_text(json.dumps(self._sent))
            os.kill(os.getpid(), signal.SIGINT)
        return action
