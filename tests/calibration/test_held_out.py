"""Datasets and policies are looked at before anything is loaded."""

import json

import numpy as np
import pytest

from lerobot_policy_quantile.calibration.held_out import (
    choose_episodes,
    chunks,
    open_dataset,
    read_dataset,
    read_recordings,
    require_fitting,
)
from lerobot_policy_quantile.calibration.policy_facts import parse_policies, parse_renames, read_policy
from lerobot_policy_quantile.calibration.run import seen_in_training
from tests.support.datasets import ACTION_DIM, CAMERA, make_dataset


def test_chunks_end_with_the_episode():
    actions = np.arange(10.0).reshape(5, 2)
    target, valid = chunks(actions, np.array([0, 3, 4]), 3)
    assert valid.tolist() == [[True] * 3, [True, True, False], [True, False, False]]
    assert target[0].tolist() == actions[:3].tolist()
    assert target[1].tolist() == [[6, 7], [8, 9], [0, 0]]


def test_recordings_hold_the_chosen_episodes_in_the_order_of_their_frames(toy_set):
    data = read_dataset(str(toy_set))
    dataset = open_dataset(data, [1, 3])
    first, second = read_recordings(dataset, [1, 3])
    assert (first.episode, second.episode) == (1, 3)
    for recording in (first, second):
        assert recording.actions.shape == (12, ACTION_DIM)
        for frame in (0, 7):
            row = dataset[int(recording.rows[frame])]
            assert (int(row["episode_index"]), int(row["frame_index"])) == (recording.episode, frame)
            np.testing.assert_array_equal(row["action"].numpy(), recording.actions[frame])
    assert first.judged(5).tolist() == [0, 5, 10]


def test_numbers_of_episodes(toy_set):
    data = read_dataset(str(toy_set))
    assert choose_episodes(data, None) == (0, 1, 2, 3)
    assert choose_episodes(data, "3,0-1") == (0, 1, 3)
    with pytest.raises(ValueError, match=r"--episodes must lie in 0-3, the episodes of .*; got 7"):
        choose_episodes(data, "2,7")
    with pytest.raises(ValueError, match=r"--episodes must read like 0-9 or 0,2,5-7; got ''"):
        choose_episodes(data, "")


def rewrite(root, **changes):
    """The metadata with other entries; a dotted name reaches into the features."""
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    for name, value in changes.items():
        info[name] = value
    path.write_text(json.dumps(info))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"codebase_version": "v2.1"}, "--dataset must be a LeRobotDataset of version v3; got v2.1 .* convert it"),
        ({"total_episodes": 0}, "--dataset must hold at least one episode; got none"),
        ({"features": {"action": {}}}, r"--dataset must hold observation\.state; got action"),
    ],
)
def test_datasets_that_cannot_be_judged_are_refused(tmp_path, changes, complaint):
    root = tmp_path / "set"
    make_dataset(root, episodes=1, frames=2)
    rewrite(root, **changes)
    with pytest.raises(ValueError, match=complaint):
        read_dataset(str(root))


@pytest.mark.parametrize("name", ["nowhere", "/no/such/folder", "a/b/c", "."])
def test_what_is_no_dataset_at_all_is_refused(name):
    with pytest.raises(
        ValueError, match=r"--dataset must be the folder of a LeRobotDataset \(with meta/info.json\) or"
    ):
        read_dataset(name)


def test_a_dataset_that_the_hub_cannot_give_is_refused_with_the_way_to_get_it():
    with pytest.raises(ValueError, match="hf download --repo-type dataset nobody/nothing"):
        read_dataset("nobody/nothing")


def test_nan_in_an_action_is_refused_with_its_frame(tmp_path):
    make_dataset(tmp_path / "set", episodes=2, poison="action")
    data = read_dataset(str(tmp_path / "set"))
    with pytest.raises(ValueError, match="action must be finite; episode 1, frame 4, dimension 1 holds nan"):
        read_recordings(open_dataset(data, [0, 1]), [0, 1])


# --- policies ---------------------------------------------------------------------------------


def test_facts_come_from_the_files_alone(saved):
    facts = read_policy("ours", saved["quantile"])
    assert (facts.head, facts.cameras, facts.state_dim, facts.action_dim, facts.chunk_size) == (
        "quantile",
        (CAMERA,),
        2,
        3,
        4,
    )


def test_a_dataset_must_have_the_policys_cameras_actions_and_state(saved, toy_set):
    policy, data = read_policy("ours", saved["quantile"]), read_dataset(str(toy_set))
    require_fitting(policy, data)
    for key, change, complaint in (
        (
            CAMERA,
            {"dtype": "float32"},
            f"must have the camera {CAMERA}, which policy ours reads; got no camera; .*NAME",
        ),
        ("action", {"shape": [7]}, "must have actions of 3 dimensions, as policy ours predicts; got 7"),
        ("observation.state", {"shape": [8]}, r"must have observation\.state of 2 dimensions, .* got 8"),
    ):
        features = {**data.features, key: {**data.features[key], **change}}
        with pytest.raises(ValueError, match=f"--dataset {complaint}"):
            require_fitting(policy, type(data)(data.name, data.repo_id, data.root, features, 4))


def test_another_name_of_a_camera_can_be_given(saved, toy_set):
    data = read_dataset(str(toy_set))
    front = "observation.images.front"
    features = {front if key == CAMERA else key: value for key, value in data.features.items()}
    renamed = type(data)(data.name, data.repo_id, data.root, features, 4)
    with pytest.raises(ValueError, match=f"--rename {front}={CAMERA}"):
        require_fitting(read_policy("ours", saved["quantile"]), renamed)
    (policy,) = parse_policies([f"ours={saved['quantile']}"], parse_renames([f"{front}={CAMERA}"]))
    require_fitting(policy, renamed)


@pytest.mark.parametrize("texts", [["front"], ["=x"], ["a="], ["a=x", "a=y"], ["a=x", "b=x"]])
def test_renames_must_be_pairs_each_name_once(texts):
    with pytest.raises(ValueError, match="--rename must read like"):
        parse_renames(texts)


def test_policies_must_be_ours_whole_and_named_once(saved, tmp_path):
    with pytest.raises(ValueError, match="--policy must use a name once"):
        parse_policies([f"a={saved['l1']}", f"a={saved['flow']}"])
    with pytest.raises(ValueError, match="--policy nowhere must be a folder saved by LeRobot"):
        parse_policies(["nowhere"])
    with pytest.raises(ValueError, match="--policy must be given at least once"):
        parse_policies([])
    for file in saved["l1"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "type": "act"}))
    with pytest.raises(ValueError, match=r"--policy other must be of type 'quantile', .* got 'act'"):
        parse_policies([f"other={tmp_path}"])


def test_episodes_that_the_trainer_saw_are_named(saved, toy_set, tmp_path):
    for file in saved["l1"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    policy, data = read_policy("ours", tmp_path), read_dataset(str(toy_set))
    assert seen_in_training(policy, data, [0, 1]) == ""
    trained = {"repo_id": "x/y", "root": str(toy_set), "episodes": [1, 2]}
    (tmp_path / "train_config.json").write_text(json.dumps({"dataset": trained}))
    assert "trained on 1 of the 2 episodes" in seen_in_training(policy, data, [0, 1])
    assert seen_in_training(policy, data, [0, 3]) == ""
