"""A toy environment for LeRobot's evaluation, found with --env.discover_packages_path=tests.support.toy_cart.

The cart of `tests.support.datasets`: an episode succeeds when it leaves the middle, on either side.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs import EnvConfig

from tests.support.datasets import ACTION_DIM, STATE_DIM, TASK, draw_cart

EPISODE_STEPS = 20


class ToyCart(gym.Env):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    task_description = TASK
    task = TASK
    _max_episode_steps = EPISODE_STEPS

    def __init__(self, size: int = 32, render_mode: str = "rgb_array") -> None:
        self.size, self.render_mode = size, render_mode
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (ACTION_DIM,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {
                "agent_pos": gym.spaces.Box(-np.inf, np.inf, (STATE_DIM,), np.float32),
                "pixels": gym.spaces.Dict({"top": gym.spaces.Box(0, 255, (size, size, 3), np.uint8)}),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-0.2, 0.2), 0
        return self._observation(), {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not np.isfinite(action).all():
            raise ValueError(f"action must be finite; got {action}")
        self.x += 0.05 * float(np.clip(action[0], -1, 1))
        self.steps += 1
        success = abs(self.x) > 0.4
        return self._observation(), float(success), success, self.steps >= EPISODE_STEPS, {"is_success": success}

    def render(self) -> np.ndarray:
        return draw_cart(self.x, self.size)

    def _observation(self) -> dict[str, Any]:
        state = np.array([self.x, self.steps / EPISODE_STEPS], dtype=np.float32)
        return {"agent_pos": state, "pixels": {"top": draw_cart(self.x, self.size)}}


gym.register("tests/ToyCart-v0", entry_point=ToyCart)


@EnvConfig.register_subclass("toy_cart")
@dataclass
class ToyCartConfig(EnvConfig):
    task: str | None = "ToyCart-v0"
    fps: int = 10
    size: int = 32
    features: dict[str, PolicyFeature] = field(
        default_factory=lambda: {
            "action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,)),
            "agent_pos": PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
            "pixels/top": PolicyFeature(FeatureType.VISUAL, (32, 32, 3)),
        }
    )
    features_map: dict[str, str] = field(
        default_factory=lambda: {
            "action": "action",
            "agent_pos": "observation.state",
            "pixels/top": "observation.images.top",
        }
    )

    @property
    def gym_id(self) -> str:
        return "tests/ToyCart-v0"

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        return {"size": self.size}
