"""The pictures of an episode: all frames of its video, or of its film strip, and the control step of each.

They are decoded here and drawn or encoded anew, so that no program that shows them opens a run's file.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import strip_places
from lerobot_policy_quantile.explorer.run_reading import ExploredRun, alteration
from lerobot_policy_quantile.util.quantiles import Array

MOST_FRAMES = 2_000
MOST_PIXELS = 2**24
"""Of all frames together: larger ones are shrunk."""
LARGEST_FRAME = 4096
JPEG_QUALITY = 80
ENCODINGS = {"jpeg": {"quality": JPEG_QUALITY}, "webp": {"quality": 75, "method": 2}}
"""JPEG is encoded four times as fast; of robot scenes WebP needs half the room at the same error (39 dB)."""


@dataclass(frozen=True)
class Frames:
    """What the policy saw, cameras side by side."""

    pictures: list[UInt8[Array, "y x 3"]]
    steps: list[int]
    """Control step of each."""

    @property
    def cameras(self) -> int:
        """Square pictures beside each other."""
        height, width, _ = self.pictures[0].shape
        return max(1, round(width / height))


@dataclass(frozen=True)
class FrameSheet:
    """All frames in one picture, in rows of `columns`."""

    content: bytes
    encoding: str
    columns: int
    width: int
    height: int
    steps: list[int]
    cameras: int


def read_frames(run: ExploredRun, row: Row, query_steps: Int[Array, " q"] | None) -> tuple[Frames | None, list[str]]:
    """The frames, and in words why there are none or only a few."""
    if query_steps is None or not len(query_steps):
        return None, ["no pictures: which steps they belong to is not known"]
    try:
        path = run.side_file(row, ".mp4")
        pictures = _video(path, len(query_steps))
        return Frames(pictures, [int(step) for step in query_steps[: len(pictures)]]), alteration(path, row)
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        no_video = f"no video ({row.key.digest}.mp4: {_short(error)})"
    try:
        path = run.side_file(row, ".png")
        pictures = _strip(path, len(query_steps))
    except Exception as error:
        return None, [f"{no_video}, no film strip ({row.key.digest}.png: {_short(error)})"]
    steps = [int(query_steps[place]) for place in strip_places(len(query_steps))]
    few = f"{no_video}: {len(pictures)} pictures of the film strip are shown"
    return Frames(pictures, steps), [few, *alteration(path, row)]


def _short(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def frame_sheet(frames: Frames, encoding: str = "jpeg") -> FrameSheet:
    """The frames on one sheet, shrunk if they are too many for a page; `encoding` is one of `ENCODINGS`."""
    height, width, _ = frames.pictures[0].shape
    shrink = min(1.0, (MOST_PIXELS / (height * width * len(frames.pictures))) ** 0.5)
    size = (max(2, int(width * shrink)), max(2, int(height * shrink)))
    columns = max(1, int(np.ceil(np.sqrt(len(frames.pictures) * size[1] / size[0]))))
    rows = -(-len(frames.pictures) // columns)
    sheet = Image.new("RGB", (columns * size[0], rows * size[1]))
    for number, picture in enumerate(frames.pictures):
        place = (number % columns * size[0], number // columns * size[1])
        sheet.paste(Image.fromarray(picture).resize(size) if shrink < 1 else Image.fromarray(picture), place)
    buffer = io.BytesIO()
    sheet.save(buffer, encoding, **ENCODINGS[encoding])
    return FrameSheet(buffer.getvalue(), encoding, columns, *size, frames.steps, frames.cameras)


def _video(path: Path, queries: int) -> list[UInt8[Array, "y x 3"]]:
    pictures: list[Array] = []
    with av.open(str(path), format="mp4", mode="r") as container:
        stream = container.streams.video[0]
        if not (0 < stream.width <= LARGEST_FRAME and 0 < stream.height <= LARGEST_FRAME):
            raise ValueError(f"frames must be at most {LARGEST_FRAME} px; got {stream.width} x {stream.height}")
        most = min(MOST_FRAMES, queries, 2**30 // (3 * stream.width * stream.height))
        for frame in container.decode(stream):
            if len(pictures) == most:
                break
            pictures.append(frame.to_ndarray(format="rgb24"))
    if not pictures or len({picture.shape for picture in pictures}) > 1:
        raise ValueError("the video holds no frames of one size")
    return pictures


def _strip(path: Path, queries: int) -> list[UInt8[Array, "y x 3"]]:
    count = len(strip_places(queries))
    with Image.open(path, formats=["PNG"]) as image:
        width, height = image.size
        if width > LARGEST_FRAME or height > LARGEST_FRAME * count or height % count:
            raise ValueError(f"a strip of {count} frames cannot be {width} x {height} px")
        pixels = np.asarray(image.convert("RGB"))
    return list(pixels.reshape(count, height // count, width, 3))
