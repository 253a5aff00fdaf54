"""Demonstrations of the scripted expert: recording, comparison of starts, LeRobotDataset, replay.

A frame of the dataset is what a policy would observe before the action: state and both images sampled at the same
instant. Actions and states are stored as float32, so a replay drives the simulator with the stored actions rounded to
float32, and the recording did the same: the replay ends where the demonstration ended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.contract import Array, Frames, Scene
from lerobot_policy_quantile.scenes.experts.detour import expert_for
from lerobot_policy_quantile.scenes.experts.waypoints import Route

STATE_NAMES = ["x", "y", "z", "axis_angle_x", "axis_angle_y", "axis_angle_z", "finger_left", "finger_right"]
ACTION_NAMES = ["dx", "dy", "dz", "d_axis_angle_x", "d_axis_angle_y", "d_axis_angle_z", "gripper"]


@dataclass
class Demonstration:
    """One episode: observations before each action, the actions, and the outcome."""

    scene: str
    instruction: str
    key: tuple[int, int, int]  # task, index, seed
    route: Route
    start: Float[Array, "n"]  # simulator state
    frames: list[Frames] = field(default_factory=list)
    states: list[Float[Array, "8"]] = field(default_factory=list)
    actions: list[Float[Array, "7"]] = field(default_factory=list)
    contacts: int = 0  # control steps in which anything touched the obstacle
    success: bool = False
    end: Float[Array, "n"] = field(default_factory=lambda: np.zeros(0))


FALLING_STEPS = 100
"""Control steps to wait after the last way point: a carton may stick to a finger before it falls."""


def demonstrate(
    scene: Scene, key: tuple[int, int, int], route: Route, *, limit: int | None = None, pictures: bool = True
) -> Demonstration:
    """Run the expert to its last way point and wait there until the released object has fallen."""
    scene.reset(*key)
    expert = expert_for(scene, route)
    record = Demonstration(scene.name, scene.instruction, key, route, scene.simulator_state())
    falling = FALLING_STEPS
    for _ in range(scene.limit * 2 if limit is None else limit):
        action = expert.act(scene.state()).astype(np.float32).astype(np.float64)
        if expert.finished:
            if scene.success() or not falling:
                break
            falling -= 1
        if pictures:
            record.frames.append(scene.frames())
        record.states.append(scene.state())
        record.actions.append(action)
        scene.step(action, observe=pictures)
        record.contacts += scene.contacts() > 0
    record.success, record.end = scene.success(), scene.simulator_state()
    return record


def replay(scene: Scene, key: tuple[int, int, int], actions: Sequence[Float[Array, "7"]]) -> tuple[bool, Array]:
    """Success and final simulator state of stored actions."""
    scene.reset(*key)
    for action in actions:
        scene.step(np.asarray(action, dtype=np.float64))
    return scene.success(), scene.simulator_state()


def require_identical_starts(demonstrations: Sequence[Demonstration]) -> None:
    """Raise ValueError unless all begin with the same images, robot state and simulator state (App. B.3)."""
    first, *others = demonstrations
    for number, other in enumerate(others, start=1):
        pairs: dict[str, tuple[Any, Any]] = {
            "simulator state": (first.start, other.start),
            "robot state": (first.states[0], other.states[0]),
        }
        if first.frames and other.frames:
            pairs |= {f"{camera} picture": (first.frames[0][camera], other.frames[0][camera]) for camera in CAMERA_KEYS}
        for what, (one, two) in pairs.items():
            if not np.array_equal(one, two):
                raise ValueError(
                    f"starts must be identical; the {what} of demonstration {number} differs from that of 0"
                )


class Recorded(Protocol):
    """What a dataset needs of an episode: observations before each action, and the actions."""

    @property
    def instruction(self) -> str:
        """What the robot was told to do."""

    @property
    def frames(self) -> Sequence[Frames]:
        """Camera images."""

    @property
    def states(self) -> Sequence[Float[Array, "8"]]:
        """Robot states."""

    @property
    def actions(self) -> Sequence[Float[Array, "7"]]:
        """The labels."""


def write_dataset(demonstrations: Sequence[Demonstration], root: Path, repo_id: str) -> None:
    """Write a LeRobotDataset (v3) to a new folder: pictures as images, no video codec, no hub."""
    if not demonstrations or not all(record.frames for record in demonstrations):
        raise ValueError("demonstrations must be at least one, each with pictures; got some without")
    write_episodes(demonstrations, root, repo_id, camera_size=len(demonstrations[0].frames[0]["external"]))


def write_episodes(episodes: Iterable[Recorded], root: Path, repo_id: str, *, camera_size: int) -> None:
    """The same for episodes that come one by one."""
    from lerobot.datasets import LeRobotDataset

    from lerobot_policy_quantile.scenes.contract import ACTION_DIM, CONTROL_HZ, STATE_DIM

    if root.exists():
        raise ValueError(f"root must not exist yet; got {root}")
    size = (camera_size, camera_size, 3)
    features: dict[str, dict[str, Any]] = {
        "observation.state": {"dtype": "float32", "shape": (STATE_DIM,), "names": STATE_NAMES},
        "action": {"dtype": "float32", "shape": (ACTION_DIM,), "names": ACTION_NAMES},
    }
    for key in CAMERA_KEYS.values():
        features[key] = {"dtype": "image", "shape": size, "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(repo_id, fps=CONTROL_HZ, features=features, root=root, use_videos=False)
    for record in episodes:
        for number, action in enumerate(record.actions):
            frame = {CAMERA_KEYS[camera]: record.frames[number][camera] for camera in CAMERA_KEYS}
            frame["observation.state"] = record.states[number].astype(np.float32)
            frame["action"] = action.astype(np.float32)
            dataset.add_frame({**frame, "task": record.instruction})
        dataset.save_episode()
    dataset.finalize()


def read_actions(root: Path, episode: int) -> Float[Array, "h 7"]:
    """The stored actions of one episode, from the data files alone."""
    import pyarrow.parquet as pq

    chunks = []
    for file in sorted((root / "data").glob("*/*.parquet")):
        table = pq.read_table(file, columns=["episode_index", "action"])
        chosen = np.asarray(table["episode_index"]) == episode
        chunks.append(np.array(table["action"].to_pylist(), dtype=np.float64).reshape(-1, 7)[chosen])
    actions = np.concatenate(chunks) if chunks else np.zeros((0, 7))
    if not len(actions):
        raise ValueError(f"episode must be one of the dataset's; got {episode} in {root}")
    return actions
