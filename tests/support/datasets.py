"""A small LeRobotDataset of a two-mode toy task, made on the spot.

Axes of an episode: a cart starts at a random place and goes left or right by a constant step. The
image does not tell which way: the label has two modes.
"""

from pathlib import Path

import numpy as np
from lerobot.datasets import LeRobotDataset

CAMERA = "observation.images.top"
TASK = "push the cart aside"
ACTION_DIM, STATE_DIM = 3, 2


def make_dataset(
    root: Path,
    *,
    episodes: int = 3,
    frames: int = 12,
    size: int = 32,
    seed: int = 0,
    blind: bool = False,
    poison: str | None = None,
) -> LeRobotDataset:
    """Write a dataset under `root`.

    `blind` shows the cart in the middle whatever it does: observations never tell the direction.
    `poison` names a key that gets one NaN (episode 1, frame 4).
    """
    rng = np.random.default_rng(seed)
    features = {
        "observation.state": {"dtype": "float32", "shape": (STATE_DIM,), "names": ["x", "y"]},
        "action": {"dtype": "float32", "shape": (ACTION_DIM,), "names": ["dx", "dy", "gripper"]},
        CAMERA: {"dtype": "image", "shape": (size, size, 3), "names": ["height", "width", "channels"]},
    }
    dataset = LeRobotDataset.create("tests/toy", fps=10, features=features, root=root, use_videos=False)
    for episode in range(episodes):
        x = rng.uniform(-0.2, 0.2)
        direction = 1.0 if episode % 2 else -1.0
        for frame in range(frames):
            noise = 0.1 * rng.normal(size=ACTION_DIM)
            closed = float(frame > frames // 2)
            action = (np.array([direction, 0.0, closed]) + noise * [blind, 1.0, blind]).astype(np.float32)
            seen = 0.0 if blind else x
            state = np.array([seen, frame / frames], dtype=np.float32)
            values = {"observation.state": state, "action": action}
            if poison is not None and (episode, frame) == (1, 4):
                values[poison][1] = np.nan
            dataset.add_frame({**values, CAMERA: draw_cart(seen, size), "task": TASK})
            x += 0.05 * direction
        dataset.save_episode()
    dataset.finalize()
    return dataset


def draw_cart(x: float, size: int) -> np.ndarray:
    """A white bar at the cart's place on a dark ground."""
    image = np.full((size, size, 3), 30, dtype=np.uint8)
    centre = int((np.clip(x, -1, 1) + 1) / 2 * (size - 5))
    image[:, centre : centre + 4] = 255
    return image
