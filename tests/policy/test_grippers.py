"""Grippers are part of the policy: read from names, settable, saved, and the same for all who ask."""

import json
import logging
from types import SimpleNamespace

import pytest
import torch

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.grippers import action_names, gripper_indices, named_grippers, settle_grippers
from lerobot_policy_quantile.policy.model_card import describe
from tests.support.policies import make_batch, make_config, make_policy

ARM = ["waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper"]
TWO_ARMS = [f"{side}_{joint}" for side in ("left", "right") for joint in ARM]


def meta(names):
    return SimpleNamespace(features={"action": {"names": names}})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (TWO_ARMS, [6, 13]),
        (["x", "y", "z", "Gripper.pos"], [3]),
        (["panda_finger_joint1", "x", "robotiq_jaw", "claw"], [0, 2, 3]),
        (["x", "y"], []),
        (["shoulder_pan.pos", "joint_2.pos"], []),
        (["motor_0", "motor_1"], None),
        (["0", "1", "2"], None),
        (["joint", "joint"], None),
        (["x", "gripper", "x", "gripper"], [1, 3]),
    ],
)
def test_names_tell_where_they_say_so(names, expected):
    assert named_grippers(names) == expected


@pytest.mark.parametrize(
    "names",
    [["x", "y", "gripper"], {"motors": ["x", "y", "gripper"]}, {"gripper": 2, "x": 0, "y": 1}, ("x", "y", "gripper")],
)
def test_names_are_read_in_every_form_a_dataset_has(names):
    assert action_names({"action": {"names": names}}, 3) == ["x", "y", "gripper"]


@pytest.mark.parametrize("names", [None, ["actions"], {"motors": ["x", "y"]}, "xyz"])
def test_anything_but_a_name_per_dimension_tells_nothing(names):
    assert action_names({"action": {"names": names}}, 3) is None
    assert action_names({}, 3) is None


def test_indices_are_counted_from_either_end():
    assert gripper_indices([13, 6], 14) == (6, 13)
    assert gripper_indices([-1], 7) == (6,)
    assert gripper_indices([], 7) == ()
    assert gripper_indices(None, 7) == (6,)  # checkpoints older than the field


@pytest.mark.parametrize("wrong", [[7], [-8], [6, 6], [6, -1], list(range(7))])
def test_indices_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"grippers must .* the 7 action dimensions"):
        gripper_indices(wrong, 7)


def test_features_and_grippers_are_checked_together():
    with pytest.raises(ValueError, match=r"grippers must be different indices of the 3 action dimensions; got \[5\]"):
        make_config(grippers=[5]).validate_features()


def test_names_fill_the_field_which_wins_where_it_is_set(caplog):
    caplog.set_level(logging.INFO)
    read, told = make_config(), make_config(grippers=[])
    settle_grippers(read, meta(["x", "gripper", "y"]), must_tell=True)
    settle_grippers(told, meta(["x", "gripper", "y"]), must_tell=True)
    assert (read.grippers, told.grippers) == ([1], [])
    assert caplog.messages == [
        "grippers: action dimension 1 (gripper); the other 2 are motion (the dataset's action names)",
        "grippers: none; all 3 action dimensions are motion (policy.grippers)",
    ]


def test_names_that_do_not_tell_are_refused_for_a_new_quantile_policy_only():
    unknown = meta(["motor_0", "motor_1", "motor_2"])
    with pytest.raises(ValueError, match=r"got motor_0, motor_1, motor_2; give their indices, such as .*=\[2\], or \["):
        settle_grippers(make_config(), unknown, must_tell=True)
    with pytest.raises(ValueError, match="got no name per dimension"):
        settle_grippers(make_config(), meta(["actions"]), must_tell=True)
    for config, must_tell in ((make_config(head="l1"), True), (make_config(), False)):
        settle_grippers(config, unknown, must_tell=must_tell)
        assert config.grippers == [2]


def ranks(policy: QuantilePolicy, decoder: str | None = None) -> torch.Tensor:
    """Of one chunk in each of four episodes."""
    batch = make_batch(policy.config)
    chosen = None if decoder is None else [policy.choose_decoder(decoder)] * 4
    return policy.decide(policy.prefix(batch), [Episode(seed) for seed in range(4)], chosen)[2]


@pytest.mark.parametrize("chosen", [None, "independent"])
@pytest.mark.parametrize("grippers", [[], [0], [0, 2]])
def test_decoders_leave_these_and_only_these_at_their_median(grippers, chosen):
    policy = make_policy(grippers=grippers, decoder="window(l=0.1)").eval()
    drawn = ranks(policy, chosen)
    for dimension in range(3):
        assert bool((drawn[..., dimension] == 0.5).all()) == (dimension in grippers)


def test_they_are_saved_and_old_checkpoints_keep_the_last_dimension(tmp_path):
    policy = make_policy(grippers=[-3], decoder="independent")
    policy.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["grippers"] == [0]
    assert (ranks(QuantilePolicy.from_pretrained(tmp_path).eval())[..., 0] == 0.5).all()
    del saved["grippers"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    old = QuantilePolicy.from_pretrained(tmp_path).eval()
    assert old.config.gripper_dims == (2,)
    assert (ranks(old) == 0.5).all(-2).all(0).tolist() == [False, False, True]


@pytest.mark.parametrize(("grippers", "said"), [([0, 2], "| Grippers | 0, 2 |"), ([], "| Grippers | none |")])
def test_the_model_card_says_them(grippers, said):
    assert said in describe(make_config(grippers=grippers), {})


def test_the_field_is_read_from_a_command_line():
    import draccus

    for text, expected in (("[]", []), ("[6,13]", [6, 13]), ("null", None)):
        config = draccus.parse(QuantileConfig, args=[f"--grippers={text}", "--device=cpu"])
        assert config.grippers == expected
