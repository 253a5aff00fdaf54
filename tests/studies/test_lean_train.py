"""The lean loader: LeRobot's samples, with fewer pictures decoded."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Image
from lerobot.datasets.dataset_reader import DatasetReader
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from lerobot_policy_quantile.studies.lean_train import keep_pictures, read_columns

FEATURES = {
    "observation.images.image": {"dtype": "image", "shape": (8, 8, 3), "names": ["height", "width", "channels"]},
    "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
    "action": {"dtype": "float32", "shape": (2,), "names": None},
}
CHUNK = {"action": [step / 20 for step in range(4)]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("lean") / "dataset"
    made = LeRobotDataset.create("qhead/lean", 20, FEATURES, root=root, use_videos=False)
    noise = np.random.default_rng(0)
    for _ in range(2):
        for _ in range(6):
            made.add_frame(
                {
                    "observation.images.image": noise.integers(0, 255, (8, 8, 3), np.uint8),
                    "observation.state": noise.normal(size=3).astype(np.float32),
                    "action": noise.normal(size=2).astype(np.float32),
                    "task": "move",
                }
            )
        made.save_episode()
    made.finalize()
    return root


@pytest.fixture
def decoded(monkeypatch):
    """A list with an entry per picture that is decoded from now on."""
    seen, decode = [], Image.decode_example
    monkeypatch.setattr(Image, "decode_example", lambda *words, **named: seen.append(1) or decode(*words, **named))
    return seen


def samples(folder, episodes=None):
    read = LeRobotDataset("qhead/lean", root=folder, episodes=episodes, delta_timestamps=CHUNK)
    return [read[i] for i in range(len(read))]


def require_same(theirs, ours):
    for a, b in zip(theirs, ours, strict=True):
        assert list(a) == list(b)
        for name, value in a.items():
            assert torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name]


@pytest.mark.parametrize("episodes", [None, [1]])
def test_samples_are_lerobots_and_one_picture_is_decoded_for_each(folder, monkeypatch, decoded, episodes):
    theirs = samples(folder, episodes)
    monkeypatch.setattr(DatasetReader, "_query_hf_dataset", read_columns)
    decoded.clear()
    ours = samples(folder, episodes)
    assert len(decoded) == len(ours) == (12 if episodes is None else 6)
    require_same(theirs, ours)


@pytest.mark.parametrize("episodes", [None, [1]])
def test_pictures_are_decoded_once_for_all_trainings(folder, monkeypatch, tmp_path, decoded, episodes):
    theirs = samples(folder, episodes)
    monkeypatch.setattr(DatasetReader, "_query_hf_dataset", read_columns)
    monkeypatch.setattr(DatasetReader, "_load_hf_dataset", DatasetReader._load_hf_dataset)
    keep_pictures([f"--policy.prefix_cache={tmp_path}"])
    require_same(theirs, samples(folder, episodes))
    decoded.clear()
    require_same(theirs, samples(folder, episodes))
    assert not decoded


@pytest.mark.parametrize("words", [[], ["--policy.prefix_cache=memory"]])
def test_without_a_folder_nothing_is_kept(monkeypatch, words):
    before = DatasetReader._load_hf_dataset
    monkeypatch.setattr(DatasetReader, "_load_hf_dataset", before)
    keep_pictures(words)
    assert DatasetReader._load_hf_dataset is before


def test_the_trainer_knows_the_policy():
    words = [sys.executable, "-m", "lerobot_policy_quantile.studies.lean_train", "--policy.type=quantile", "--steps=x"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "invalid choice" not in ended.stderr
    assert "steps" in ended.stderr
