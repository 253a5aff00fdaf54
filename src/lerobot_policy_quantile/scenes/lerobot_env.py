"""The embedded scene as a LeRobot environment: `lerobot-eval --env.type=embedded`.

LeRobot's loop reads the images of every step, so every step is rendered; `qhead eval` renders only the steps at which a
policy is called. The n-th of N parallel environments begins with initial state n and continues in strides of N, as
LeRobot's LIBERO does.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.envs.utils import freeze_after_episode_end
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.contract import ACTION_DIM, CONTROL_HZ, STATE_DIM, Array, make_scene

PIXEL_KEYS = {camera: key.removeprefix(f"{OBS_IMAGES}.") for camera, key in CAMERA_KEYS.items()}
"""A scene's cameras -> their names in a LeRobot environment, those of its LIBERO datasets."""


class EmbeddedGym(gym.Env[dict[str, Any], Float[Array, "7"]]):
    """A scene as a gymnasium environment. The first reset builds the simulator, in the process that uses it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}  # noqa: RUF012  gymnasium's declaration
    render_mode = "rgb_array"

    def __init__(self, first: int, stride: int, *, obstacle: bool, camera_size: int, episode_length: int) -> None:
        self.scene = make_scene("embedded", obstacle=obstacle, camera_size=camera_size)
        self.task = self.task_description = self.scene.instruction
        self._max_episode_steps = episode_length
        self._next, self._stride = first, stride
        pictures: dict[str, gym.Space[Any]] = {
            key: gym.spaces.Box(0, 255, (camera_size, camera_size, 3), np.uint8) for key in PIXEL_KEYS.values()
        }
        position = gym.spaces.Box(-np.inf, np.inf, (STATE_DIM,), np.float64)
        self.observation_space = gym.spaces.Dict({"pixels": gym.spaces.Dict(pictures), "agent_pos": position})
        self.action_space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with the next initial state of this environment's share."""
        super().reset(seed=seed)
        self.scene.reset(0, self._next % self.scene.state_count(0), seed or 0)
        self._next += self._stride
        return self._observation(), {"is_success": False}

    def step(self, action: Float[Array, "7"]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control step, rendered."""
        self.scene.step(action, observe=True)
        success = self.scene.success()
        return self._observation(), float(success), success, False, {"is_success": success}

    def render(self) -> Any:
        """Last image of the external camera."""
        return self.scene.frames()["external"]

    def close(self) -> None:
        """Free the simulator."""
        self.scene.close()

    def _observation(self) -> dict[str, Any]:
        frames = self.scene.frames()
        return {"pixels": {PIXEL_KEYS[name]: frames[name] for name in PIXEL_KEYS}, "agent_pos": self.scene.state()}


@EnvConfig.register_subclass("embedded")
@dataclass
class EmbeddedEnvConfig(EnvConfig):  # type: ignore[misc]
    """`--env.type=embedded --env.obstacle=true --env.camera_size=96 ...`"""

    task: str | None = "embedded"
    fps: int = CONTROL_HZ
    obstacle: bool = False
    camera_size: int = 256
    episode_length: int = 400
    features: dict[str, PolicyFeature] = field(default_factory=dict)
    features_map: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Observation and action features for policies."""
        picture = (self.camera_size, self.camera_size, 3)
        self.features = {
            ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(ACTION_DIM,)),
            "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(STATE_DIM,)),
        }
        self.features_map = {ACTION: ACTION, "agent_pos": OBS_STATE}
        for key in PIXEL_KEYS.values():
            self.features[f"pixels/{key}"] = PolicyFeature(type=FeatureType.VISUAL, shape=picture)
            self.features_map[f"pixels/{key}"] = f"{OBS_IMAGES}.{key}"

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments of `EmbeddedGym`."""
        return {"obstacle": self.obstacle, "camera_size": self.camera_size, "episode_length": self.episode_length}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, gym.vector.VectorEnv]]:
        """One task, `n_envs` environments that share its initial states."""
        makers = [
            freeze_after_episode_end(partial(EmbeddedGym, first, n_envs, **self.gym_kwargs)) for first in range(n_envs)
        ]
        mode = gym.vector.AutoresetMode.NEXT_STEP
        if use_async_envs and n_envs > 1:
            return {self.type: {0: gym.vector.AsyncVectorEnv(makers, autoreset_mode=mode, context="forkserver")}}
        return {self.type: {0: gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)}}
