from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.policy.normalisation import exact_statistics
from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.demonstrations import (
    Demonstration,
    demonstrate,
    read_actions,
    replay,
    require_identical_starts,
    write_dataset,
)
from lerobot_policy_quantile.scenes.experts.waypoints import Route

KEY = (0, 0, 20260922)


@pytest.fixture(scope="module")
def scene():
    built = make_scene("embedded", camera_size=32)
    yield built
    built.close()


@pytest.fixture(scope="module")
def pair(scene) -> list[Demonstration]:
    """The first fifteen steps to the left and to the right."""
    return [demonstrate(scene, KEY, Route(side), limit=15) for side in ("left", "right")]


def test_two_routes_begin_at_the_same_pixel_and_part(pair):
    require_identical_starts(pair)
    assert np.abs(pair[0].end - pair[1].end).max() > 0.05


@pytest.mark.parametrize("what", ["simulator state", "robot state", "external picture", "wrist picture"])
def test_a_perturbed_start_is_refused(pair, what):
    camera = what.split()[0]
    wrong = replace(pair[1], states=list(pair[1].states), frames=[dict(pair[1].frames[0]), *pair[1].frames[1:]])
    if what == "simulator state":
        wrong.start = pair[1].start + 1e-12
    elif what == "robot state":
        wrong.states[0] = pair[1].states[0] + 1e-12
    else:
        wrong.frames[0][camera] = pair[1].frames[0][camera] ^ np.uint8(1)
    with pytest.raises(ValueError, match=f"starts must be identical; the {what} of demonstration 1"):
        require_identical_starts([pair[0], wrong])


def test_a_written_dataset_replays_to_the_same_end(scene, pair, tmp_path):
    write_dataset(pair, tmp_path / "set", "local/two")
    for episode, record in enumerate(pair):
        actions = read_actions(tmp_path / "set", episode)
        np.testing.assert_array_equal(actions, np.array(record.actions))
        _, end = replay(scene, KEY, actions)
        np.testing.assert_array_equal(end, record.end)


def test_lerobot_reads_the_dataset_and_its_statistics_are_exact(pair, tmp_path):
    from lerobot.datasets import LeRobotDataset

    write_dataset(pair, tmp_path / "set", "local/two")
    dataset = LeRobotDataset("local/two", root=tmp_path / "set")
    assert dataset.num_frames == 30
    item = dataset[16]
    assert item["task"] == "pick up the can and place it in the basket"
    np.testing.assert_allclose(item["observation.state"], pair[1].states[1], atol=1e-6)
    picture = pair[1].frames[1]["wrist"].transpose(2, 0, 1) / 255
    np.testing.assert_allclose(item["observation.images.image2"], picture, atol=1e-6)
    states = np.concatenate([record.states for record in pair]).astype(np.float32)
    expected = np.quantile(states[:, 1].astype(np.float64), [0.01, 0.99])
    found = exact_statistics(tmp_path / "set")["observation.state"]
    np.testing.assert_allclose([found["q01"][1], found["q99"][1]], expected, rtol=1e-6)


@pytest.mark.bad_input
def test_an_existing_folder_and_a_missing_episode_are_refused(pair, tmp_path):
    with pytest.raises(ValueError, match="root must not exist yet"):
        write_dataset(pair, tmp_path, "local/two")
    with pytest.raises(ValueError, match="episode must be one of"):
        read_actions(tmp_path, 3)
