"""Robots other than one arm of seven: their datasets train, and every dimension of motion is sampled, no gripper is."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from lerobot.datasets import LeRobotDataset
from lerobot.policies.factory import make_policy, make_pre_post_processors
from torch import Tensor
from torch.utils.data import DataLoader

from lerobot_policy_quantile.adapters.served_policy import load_served_policy
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.decoders import PRESETS
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from tests.support.datasets import CAMERA, draw_cart

STEPS = 10
ARM = ["waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper"]
JOINTS = [f"{part}_{axis}" for part in ("neck", "torso", "left_leg", "right_leg") for axis in range(6)]
SAMPLING = sorted(name for name, preset in PRESETS.items() if not preset.deterministic and name != "copula")
CHOOSY = {"choice", "tracking"}
"""Decoders that sample only where the prediction is wide: here everywhere, by a width of zero."""


class Robot(NamedTuple):
    names: list[str]
    grippers: tuple[int, ...]
    settings: dict[str, object]


ROBOTS = {
    "2 without a gripper": Robot(["x", "y"], (), {}),
    "14 of two arms": Robot([f"{side}_{joint}" for side in ("left", "right") for joint in ARM], (6, 13), {}),
    "40 of a humanoid": Robot(
        [*JOINTS, *(f"{side}_{joint}" for side in ("left", "right") for joint in [*ARM[:6], "hand_yaw", "gripper"])],
        (31, 39),
        {"max_action_dim": 40, "output_projection": "fresh"},
    ),
}


def dataset_of(robot: Robot, root: Path) -> LeRobotDataset:
    """Two short episodes of random motion; grippers open and close."""
    rng, size = np.random.default_rng(0), len(robot.names)
    features = {
        "observation.state": {"dtype": "float32", "shape": (size,), "names": robot.names},
        "action": {"dtype": "float32", "shape": (size,), "names": robot.names},
        CAMERA: {"dtype": "image", "shape": (32, 32, 3), "names": ["height", "width", "channels"]},
    }
    dataset = LeRobotDataset.create("tests/robot", fps=10, features=features, root=root, use_videos=False)
    for _ in range(2):
        for frame in range(20):
            action = rng.normal(size=size).astype(np.float32)
            action[list(robot.grippers)] = frame > 10
            picture = draw_cart(frame / 20, 32)
            dataset.add_frame({"observation.state": action, "action": action, CAMERA: picture, "task": "go on"})
        dataset.save_episode()
    dataset.finalize()
    times = [step / 10 for step in range(QuantileConfig(device="cpu").chunk_size)]
    return LeRobotDataset("tests/robot", root=root, delta_timestamps={"action": times})


@pytest.fixture(scope="module", params=ROBOTS)
def trained(request, tmp_path_factory):
    """A policy after ten steps of LeRobot's parts, started as `--policy.type=quantile --policy.backbone=tiny` does."""
    robot = ROBOTS[request.param]
    folder = tmp_path_factory.mktemp("robot")
    dataset = dataset_of(robot, folder / "data")
    torch.manual_seed(0)
    config = QuantileConfig(backbone="tiny", device="cpu", push_to_hub=False, max_state_dim=40, **robot.settings)
    policy = make_policy(config, ds_meta=dataset.meta).train()
    before, after = make_pre_post_processors(config, dataset_stats=dataset.meta.stats)
    optimizer = config.get_optimizer_preset().build(policy.get_optim_params())
    start = {name: weight.detach().clone() for name, weight in policy.head.named_parameters()}
    losses = []
    batches = DataLoader(dataset, batch_size=4, shuffle=True)
    for batch, _ in zip(batches, range(STEPS), strict=False):
        loss, _ = policy(before(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert len(losses) == STEPS
    assert np.isfinite(losses).all()
    assert all(not torch.equal(weight, start[name]) for name, weight in policy.head.named_parameters())
    for part in (policy, before, after):
        part.save_pretrained(folder / "policy")
    shown = before(next(iter(DataLoader(dataset, batch_size=1))))
    return robot, folder / "policy", shown


def ranks(policy: QuantilePolicy, shown: dict[str, Tensor], decoder: str) -> Tensor:
    """Of the first chunk of six episodes that see the same."""
    episodes = [Episode(seed) for seed in range(6)]
    rows = {key: value.expand(6, *value.shape[1:]) for key, value in shown.items() if isinstance(value, Tensor)}
    return policy.decide(policy.prefix(rows), episodes, [policy.choose_decoder(decoder)] * 6)[2]


def test_all_motion_is_sampled_and_no_gripper(trained):
    robot, folder, shown = trained
    policy = QuantilePolicy.from_pretrained(folder).eval()
    assert policy.config.gripper_dims == robot.grippers
    for name in SAMPLING:
        drawn = ranks(policy, shown, f"{name}(w=0)" if name in CHOOSY else name)
        moved = (drawn != drawn[:1]).any(dim=0).any(dim=0)
        expected = [name == "density_all" or d not in robot.grippers for d in range(len(robot.names))]
        assert moved.tolist() == expected, name


def test_the_server_names_the_grippers(trained):
    robot, folder, _ = trained
    assert load_served_policy(folder).spec.grippers == robot.grippers
