"""Side files: what an episode did, step by step, beside the journal.

They are written to a temporary name, synchronised and renamed: a name that exists holds a whole file. They come before
the journal row and the row never depends on them: if they cannot be written, the row says why and stands.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.video import encode_video
from lerobot_policy_quantile.util.digests import plain_digest
from lerobot_policy_quantile.util.files import TEMPORARY, write_atomically

STRIP_FRAMES = 12


@dataclass
class Trace:
    """The steps of one episode as they happen."""

    actions: list[Float[Array, " d"]] = field(default_factory=list)
    states: list[Float[Array, " s"]] = field(default_factory=list)
    """One more than actions: the start comes first."""
    contacts: list[int] = field(default_factory=list)
    query_steps: list[int] = field(default_factory=list)
    quantiles: list[Float[Array, "h d k"]] = field(default_factory=list)
    """One entry per query of a policy that predicts them."""
    surprises: list[float] = field(default_factory=list)
    """One entry per query: how far the left-over of the old chunk lay outside the new law; NaN where nobody can say."""
    alarms: list[bool] = field(default_factory=list)
    """One entry per query of an episode that an alarm watches: whether it was on."""
    frames: list[UInt8[Array, "y x 3"]] = field(default_factory=list)
    """What the policy saw, cameras side by side, one entry per query."""
    frame_rate: Fraction | None = None
    """Queries per second of the robot's time: at this rate the frames run as fast as the robot moved."""
    notes: Mapping[str, Array] = field(default_factory=dict)
    """What a `NotingWorld` kept."""

    seams: Mapping[str, Array] = field(default_factory=dict)
    """Of an episode whose answers took time: where chunks met, by how much they differed, how long the robot stood."""

    def arrays(self) -> dict[str, Array]:
        """Everything but the frames; without quantiles or alarm if there were none."""
        found = {
            "actions": np.asarray(self.actions),
            "states": np.asarray(self.states),
            "contacts": np.asarray(self.contacts, dtype=np.int64),
            "query_steps": np.asarray(self.query_steps, dtype=np.int64),
        }
        perhaps = {"quantiles": self.quantiles, "alarm": self.alarms}
        there = {name: np.asarray(values) for name, values in perhaps.items() if values}
        return {**self.notes, **found, **self.seams, **there}


@dataclass(frozen=True)
class SideFiles:
    """A folder with one `.npz` per episode and, where there were pictures, one film strip `.png` and one `.mp4`."""

    folder: Path
    video: bool = True
    """Whether a video is encoded: about 0.05 s per episode with cameras of 96 px, 0.2 s with 256 px."""

    def path(self, key: EpisodeKey, suffix: str = ".npz") -> Path:
        """Where a key's file is."""
        return self.folder / f"{key.digest}{suffix}"

    def write(self, key: EpisodeKey, trace: Trace) -> dict[str, str]:
        """Write an episode's files; suffix -> digest of each. Raises OSError if the disk does not take them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        digests = {}
        for suffix, content in self._contents(key, trace):
            write_atomically(self.path(key, suffix), content)
            digests[suffix] = plain_digest(content)
        return digests

    def _contents(self, key: EpisodeKey, trace: Trace) -> Iterator[tuple[str, bytes]]:
        if trace.frames:
            yield ".png", film_strip(trace.frames)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, key=np.asarray(key.text), **trace.arrays())
        yield ".npz", buffer.getvalue()
        if self.video and trace.frames and trace.frame_rate is not None:
            yield ".mp4", encode_video(trace.frames, trace.frame_rate)

    def read(self, key: EpisodeKey) -> dict[str, Array]:
        """A key's arrays."""
        with np.load(self.path(key), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if name != "key"}

    def sweep(self) -> None:
        """Remove what killed writers left behind."""
        for leftover in self.folder.glob(f"*{TEMPORARY}"):
            leftover.unlink(missing_ok=True)


def film_strip(frames: Sequence[UInt8[Array, "y x 3"]]) -> bytes:
    """A PNG of at most twelve frames, evenly spaced from the first to the last, one below the other."""
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate([frames[i] for i in strip_places(len(frames))])).save(buffer, "png")
    return buffer.getvalue()


def strip_places(frames: int) -> list[int]:
    """Which of so many frames a film strip shows."""
    return [int(place) for place in np.unique(np.linspace(0, frames - 1, STRIP_FRAMES).round())]
