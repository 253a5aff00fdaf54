"""Held-out episodes of a LeRobotDataset (v3): what it must hold, which episodes are judged, what was done in them.

Axes: t frame of an episode, f judged frame, h chunk step, d action dim.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from lerobot_policy_quantile.calibration.policy_facts import PolicyFacts
from lerobot_policy_quantile.evaluation.plan import parse_numbers
from lerobot_policy_quantile.util.digests import digest_each
from lerobot_policy_quantile.util.quantiles import Array

if TYPE_CHECKING:
    from lerobot.datasets import LeRobotDataset

INFO = Path("meta") / "info.json"
STATE, ACTION = "observation.state", "action"


@dataclass(frozen=True)
class DatasetFacts:
    """What a dataset's metadata says."""

    name: str
    """As the user gave it."""
    repo_id: str
    root: Path
    features: Mapping[str, Any]
    episodes: int

    @property
    def label(self) -> str:
        """What a file may call it: its name on the hub, or the last part of its folder's path."""
        return self.root.resolve().name if Path(self.name).is_dir() else self.repo_id

    @property
    def action_dim(self) -> int:
        """Length of an action."""
        return int(self.features[ACTION]["shape"][0])


@dataclass(frozen=True)
class Recording:
    """One episode: its actions in the robot's units, and the dataset's rows that hold its frames."""

    episode: int
    actions: Float[Array, "t d"]
    rows: Int[Array, " t"]

    def judged(self, every: int) -> Int[Array, " f"]:
        """Every so manieth frame, the first among them."""
        return np.arange(0, len(self.actions), every)


def read_dataset(name: str) -> DatasetFacts:
    """The metadata of a dataset's folder, or of USER/NAME on the hub, whose metadata alone is fetched."""
    root = Path(name)
    if not (root / INFO).is_file():
        root = _fetched(name)
    info = json.loads((root / INFO).read_bytes())
    version = str(info.get("codebase_version"))
    if not version.startswith("v3"):
        raise ValueError(
            f"--dataset must be a LeRobotDataset of version v3; got {version} in {root}: convert it with python -m"
            " lerobot.scripts.convert_dataset_v21_to_v30"
        )
    for key in (ACTION, STATE):
        if key not in info["features"]:
            raise ValueError(f"--dataset must hold {key}; got {', '.join(sorted(info['features']))} in {root}")
    if not info["total_episodes"]:
        raise ValueError(f"--dataset must hold at least one episode; got none in {root}")
    repo_id = "local/held_out" if Path(name).is_dir() else name
    return DatasetFacts(name, repo_id, root, info["features"], int(info["total_episodes"]))


def _fetched(name: str) -> Path:
    if Path(name).exists() or name.count("/") != 1 or name.startswith((".", "/")):
        raise ValueError(
            f"--dataset must be the folder of a LeRobotDataset (with {INFO}) or USER/NAME on the hub; got {name!r}"
        )
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata

    try:
        return Path(LeRobotDatasetMetadata(name).root)
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ValueError(
            f"--dataset {name!r} is neither a folder with {INFO} nor a dataset that the hub or its local cache has"
            f" ({type(error).__name__}); give a folder, or fetch it where there is a network: hf download --repo-type"
            f" dataset {name}"
        ) from error


def choose_episodes(data: DatasetFacts, text: str | None) -> tuple[int, ...]:
    """The numbers of a text such as `0-9,12`, in order; all of the dataset without one."""
    if text is None:
        return tuple(range(data.episodes))
    numbers = tuple(sorted(parse_numbers("--episodes", text)))
    if beyond := [number for number in numbers if number >= data.episodes]:
        raise ValueError(f"--episodes must lie in 0-{data.episodes - 1}, the episodes of {data.name}; got {beyond[0]}")
    return numbers


def require_fitting(policy: PolicyFacts, data: DatasetFacts) -> None:
    """Refuse a dataset that lacks what the policy reads, or whose actions are other ones."""
    pictures = [key for key, feature in data.features.items() if feature.get("dtype") in ("image", "video")]
    for camera in policy.cameras:
        source = policy.source_of(camera)
        if source not in pictures:
            raise ValueError(
                f"--dataset must have the camera {source}, which policy {policy.name} reads; got"
                f" {', '.join(pictures) or 'no camera'}; where it is there under another name, say so: --rename"
                f" {pictures[0] if pictures else 'NAME'}={camera}"
            )
    if data.action_dim != policy.action_dim:
        raise ValueError(
            f"--dataset must have actions of {policy.action_dim} dimensions, as policy {policy.name} predicts; got"
            f" {data.action_dim} in {data.name}: choose a dataset of the policy's robot"
        )
    state = int(data.features[STATE]["shape"][0])
    if state != policy.state_dim:
        raise ValueError(
            f"--dataset must have {STATE} of {policy.state_dim} dimensions, as policy {policy.name} reads; got {state}"
            f" in {data.name}: choose a dataset of the policy's robot"
        )


def open_dataset(data: DatasetFacts, episodes: Sequence[int]) -> "LeRobotDataset":
    """The dataset with these episodes; those of the hub are fetched now."""
    from lerobot.datasets import LeRobotDataset

    local = Path(data.name).is_dir()
    return LeRobotDataset(data.repo_id, root=data.root if local else None, episodes=list(episodes))


def read_recordings(dataset: "LeRobotDataset", episodes: Sequence[int]) -> list[Recording]:
    """Every episode's actions, in the order of its frames; pictures are not looked at."""
    from lerobot_policy_quantile.policy.normalisation import require_finite_frames

    columns = dataset.hf_dataset.select_columns([ACTION, "episode_index", "frame_index"]).with_format("numpy")[:]
    actions = np.asarray(columns[ACTION], dtype=np.float32).reshape(len(columns["episode_index"]), -1)
    episode, frame = (np.asarray(columns[name]).reshape(-1) for name in ("episode_index", "frame_index"))
    found = []
    for number in episodes:
        rows = np.flatnonzero(episode == number)
        if not len(rows):
            raise ValueError(f"--episodes must have frames; episode {number} of the dataset has none: leave it out")
        rows = rows[np.argsort(frame[rows], kind="stable")]
        require_finite_frames(ACTION, actions[rows], episode[rows], frame[rows])
        found.append(Recording(number, actions[rows], rows))
    return found


def data_digest(dataset: "LeRobotDataset", episodes: Sequence[int]) -> str:
    """Of everything but pictures in these episodes, frame by frame; empty if the dataset was opened without them."""
    pictures = {key for key, feature in dataset.meta.features.items() if feature["dtype"] in ("image", "video")}
    names = sorted(set(dataset.hf_dataset.column_names) - pictures - {"index"})
    table = dataset.hf_dataset.select_columns(names).with_format("numpy")
    episode = np.asarray(table["episode_index"]).reshape(-1)
    wanted = np.flatnonzero(np.isin(episode, list(episodes)))
    if set(np.unique(episode[wanted])) != set(episodes):
        return ""
    rows = table[wanted]
    return digest_each(piece for name in names for piece in (name, np.asarray(rows[name]).tobytes()))


def chunks(
    actions: Float[Array, "t d"], frames: Int[Array, " f"], chunk_size: int
) -> tuple[Float[Array, "f h d"], Bool[Array, "f h"]]:
    """The next actions from each frame on, and which of them there are; zeros beyond the end of the episode."""
    steps = frames[:, None] + np.arange(chunk_size)
    valid = steps < len(actions)
    target = np.where(valid[..., None], actions[np.minimum(steps, len(actions) - 1)], 0.0)
    return target.astype(np.float32), valid
