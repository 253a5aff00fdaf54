import io
import os
import resource
import signal
import subprocess
import sys
import time
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.side_files import SideFiles, film_strip
from lerobot_policy_quantile.evaluation.video import OPTIONS, encode_video
from lerobot_policy_quantile.util.files import write_atomically
from tests.support.fake_worlds import FakePolicy, FakeWorld
from tests.support.waiting import wait_until

KEY = EpisodeKey("fake", 0, 4, 0, "fake", "median")


def test_arrays_come_back_as_they_were(tmp_path):
    trace = run_episode(FakeWorld(), FakePolicy(), KEY).trace
    files = SideFiles(tmp_path / "side")
    files.write(KEY, trace)
    read = files.read(KEY)
    assert np.array_equal(read["actions"], trace.actions)
    assert np.array_equal(read["states"], trace.states)
    assert read["quantiles"].shape == (4, 8, 7, 3)
    assert read["query_steps"].tolist() == [0, 5, 10, 15]
    assert read["contacts"].sum() == 1
    assert sorted(p.suffix for p in files.folder.iterdir()) == [".mp4", ".npz", ".png"]


def test_the_video_runs_in_the_robots_time_and_shows_every_frame_in_order(tmp_path):
    trace = run_episode(FakeWorld(), FakePolicy(), KEY).trace
    trace.frames = [np.full((16, 32, 3), 30 * i, np.uint8) for i in range(len(trace.frames))]
    files = SideFiles(tmp_path)
    files.write(KEY, trace)
    with av.open(str(files.path(KEY, ".mp4"))) as video:
        (stream,) = video.streams
        shown = [frame.to_ndarray(format="rgb24") for frame in video.decode(stream)]
        assert stream.codec_context.name == "h264"
        assert stream.average_rate == Fraction(20, 5)  # the robot moves at 20 Hz and asks every five steps
        assert stream.duration * stream.time_base == Fraction(len(trace.query_steps) * 5, 20)
    assert len(shown) == len(trace.query_steps)
    assert [int(np.round(frame.mean() / 30)) for frame in shown] == [0, 1, 2, 3]


def test_pictures_with_odd_sides_are_filmed_too():
    film = encode_video([np.zeros((5, 7, 3), np.uint8)] * 3, Fraction(2))
    with av.open(io.BytesIO(film)) as video:
        assert [(frame.width, frame.height) for frame in video.decode(video=0)] == [(8, 6)] * 3


@pytest.mark.parametrize(("frames", "rate"), [([], 2), ([np.zeros((4, 4, 3), np.uint8)], 0)])
def test_a_video_of_nothing_or_at_no_rate_is_refused(frames, rate):
    with pytest.raises(ValueError, match="must"):
        encode_video(frames, Fraction(rate))


def test_videos_can_be_left_out(tmp_path):
    files = SideFiles(tmp_path, video=False)
    files.write(KEY, run_episode(FakeWorld(), FakePolicy(), KEY).trace)
    assert sorted(p.suffix for p in files.folder.iterdir()) == [".npz", ".png"]


def test_a_video_that_cannot_be_encoded_costs_neither_arrays_nor_strip(tmp_path, monkeypatch):
    monkeypatch.setitem(OPTIONS, "preset", "no such preset")
    trace = run_episode(FakeWorld(), FakePolicy(), KEY).trace
    with pytest.raises(OSError, match="the video could not be encoded"):
        SideFiles(tmp_path).write(KEY, trace)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".npz", ".png"]


def test_a_film_strip_shows_first_and_last_frame_and_at_most_twelve():
    frames = [np.full((2, 6, 3), i, np.uint8) for i in range(40)]
    strip = np.asarray(Image.open(io.BytesIO(film_strip(frames))))
    assert strip.shape == (24, 6, 3)
    assert (strip[0, 0, 0], strip[-1, 0, 0]) == (0, 39)
    assert np.asarray(Image.open(io.BytesIO(film_strip(frames[:3])))).shape == (6, 6, 3)


def test_a_killed_writer_leaves_the_old_file_or_the_new_one_and_sweep_removes_the_rest(tmp_path):
    path = tmp_path / "a.npz"
    code = f"""
from pathlib import Path
from lerobot_policy_quantile.util.files import write_atomically
n = 0
while True:
    write_atomically(Path({str(path)!r}), bytes([n % 256]) * 300_000)
    n += 1
"""
    for moment in (0.01, 0.03, 0.05):
        writer = subprocess.Popen([sys.executable, "-c", code])
        path.unlink(missing_ok=True)
        wait_until(path.exists, "a file")
        time.sleep(moment)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        content = path.read_bytes()
        assert len(content) == 300_000
        assert len(set(content)) == 1
    SideFiles(tmp_path).sweep()
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_raises_and_leaves_nothing_half_written(tmp_path):
    write_atomically(tmp_path / "a", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(tmp_path / "a", b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"
