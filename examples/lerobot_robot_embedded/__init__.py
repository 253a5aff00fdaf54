"""The embedded scene as a LeRobot robot: `lerobot-rollout` drives it as it would an arm on a desk.

    lerobot-rollout --robot.discover_packages_path=lerobot_robot_embedded --robot.type=embedded_scene ...

with this folder's parent on PYTHONPATH; `examples/lerobot_simulated.sh` is the whole command. A robot of your own is a
package like this one: a config class registered by name, and a class of the same name without `Config`.
"""

import json
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.robots import Robot, RobotConfig

from lerobot_policy_quantile.scenes.embedded import EmbeddedScene

STATE = ("x", "y", "z", "turn_x", "turn_y", "turn_z", "finger_1", "finger_2")
ACTION = ("x", "y", "z", "turn_x", "turn_y", "turn_z", "gripper")
CAMERAS = {"external": "image", "wrist": "image2"}
"""The scene's cameras under the names the policy was trained with."""


@RobotConfig.register_subclass("embedded_scene")
@dataclass(kw_only=True)
class EmbeddedSceneRobotConfig(RobotConfig):
    """Which start to take, and where to write how it went."""

    task_number: int = 4
    index: int = 25
    camera_size: int = 96
    report: Path | None = None


class EmbeddedSceneRobot(Robot):
    """A simulated Panda at a table: one command is one control step, and no time passes between commands."""

    config_class = EmbeddedSceneRobotConfig
    name = "embedded_scene"

    def __init__(self, config: EmbeddedSceneRobotConfig) -> None:
        super().__init__(config)
        self._config = config
        self._scene: EmbeddedScene | None = None
        self._steps, self._solved = 0, False

    @cached_property
    def observation_features(self) -> dict[str, Any]:
        """Eight numbers and two pictures."""
        size = self._config.camera_size
        return {f"{name}.pos": float for name in STATE} | dict.fromkeys(CAMERAS.values(), (size, size, 3))

    @cached_property
    def action_features(self) -> dict[str, Any]:
        """Six motions and the gripper, all in [-1, 1]."""
        return {f"{name}.pos": float for name in ACTION}

    @property
    def is_connected(self) -> bool:
        """Whether the scene stands."""
        return self._scene is not None

    @property
    def is_calibrated(self) -> bool:
        """A simulator is."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Build the scene and take the start."""
        scene = EmbeddedScene("embedded", obstacle=False, camera_size=self._config.camera_size)
        scene.reset(self._config.task_number, self._config.index, 0)
        logging.info("embedded scene: %s", scene.instruction)
        self._scene, self._steps, self._solved = scene, 0, False

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    def get_observation(self) -> dict[str, Any]:
        """State and pictures of this moment."""
        scene = self._connected()
        frames = scene.frames()
        state = {f"{name}.pos": float(value) for name, value in zip(STATE, scene.state(), strict=True)}
        return state | {known: frames[camera] for camera, known in CAMERAS.items()}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """One control step; commands beyond [-1, 1] are clipped. After success the arm stays where it is."""
        command = np.clip([float(action[f"{name}.pos"]) for name in ACTION], -1.0, 1.0)
        if not self._solved:
            self._connected().step(command, observe=True)
            self._steps += 1
            self._solved = bool(self._connected().success())
            if self._solved:
                logging.info("embedded scene: solved after %d steps", self._steps)
        return {f"{name}.pos": float(value) for name, value in zip(ACTION, command, strict=True)}

    def disconnect(self) -> None:
        """Write the report and free the simulator."""
        scene = self._connected()
        told = {"instruction": scene.instruction, "steps": self._steps, "success": self._solved}
        logging.info("embedded scene: %s", told)
        if self._config.report is not None:
            self._config.report.write_text(json.dumps(told) + "\n")
        scene.close()
        self._scene = None

    def _connected(self) -> EmbeddedScene:
        if self._scene is None:
            raise ConnectionError("the embedded scene is not connected; call connect first")
        return self._scene
