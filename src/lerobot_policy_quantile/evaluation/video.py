"""Frames -> an H.264 video in memory, as every browser plays it."""

import io
from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from jaxtyping import UInt8

from lerobot_policy_quantile.contract import Array

OPTIONS = {"preset": "veryfast", "crf": "28", "threads": "1"}


def encode_video(frames: Sequence[UInt8[Array, "y x 3"]], frame_rate: Fraction) -> bytes:
    """An MP4 of all frames; raises OSError if the encoder does not take them."""
    if not frames:
        raise ValueError("frames must hold at least one picture; got none")
    if not frame_rate > 0:
        raise ValueError(f"frame_rate must be positive frames per second; got {frame_rate}")
    buffer = io.BytesIO()
    try:
        with av.open(buffer, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=frame_rate, options=dict(OPTIONS))
            first = _even(frames[0])
            stream.height, stream.width, stream.pix_fmt = first.shape[0], first.shape[1], "yuv420p"
            for frame in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(_even(frame), format="rgb24")))
            container.mux(stream.encode())
    except av.FFmpegError as error:
        raise OSError(f"the video could not be encoded: {error}") from error
    return buffer.getvalue()


def _even(frame: UInt8[Array, "y x 3"]) -> UInt8[Array, "y x 3"]:
    """H.264 halves the colour resolution: an odd side repeats its last line."""
    height, width, _ = frame.shape
    return np.ascontiguousarray(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
