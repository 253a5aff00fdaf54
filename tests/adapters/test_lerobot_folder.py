"""Policy folders in the closed loop: batch = alone, noise by episode, weights really loaded."""

import json
import shutil
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.factory import make_pre_post_processors
from safetensors.torch import load_file, save_file

from lerobot_policy_quantile.adapters.cameras import parse_cameras, require_cameras
from lerobot_policy_quantile.adapters.lerobot_folder import (
    EpisodicPolicy,
    PlainPolicy,
    fingerprint,
    load_lerobot_policy,
)
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.contract import CAMERA_KEYS, Observation, UnusablePolicyError
from lerobot_policy_quantile.core.decoders import PRESETS
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy

FEATURES = {
    "input_features": {
        "observation.state": PolicyFeature(FeatureType.STATE, (8,)),
        **{camera: PolicyFeature(FeatureType.VISUAL, (3, 32, 32)) for camera in CAMERA_KEYS.values()},
    },
    "output_features": {"action": PolicyFeature(FeatureType.ACTION, (7,))},
    "device": "cpu",
    "push_to_hub": False,
}
STATS = {
    name: {"q01": -torch.ones(n), "q99": torch.ones(n), "mean": torch.zeros(n), "std": torch.ones(n)}
    for name, n in (("observation.state", 8), ("action", 7))
} | {camera: {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)} for camera in CAMERA_KEYS.values()}


def save(policy, folder):
    policy.save_pretrained(folder)
    for pipeline in make_pre_post_processors(policy.config, dataset_stats=STATS):
        pipeline.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    torch.manual_seed(0)
    return save(QuantilePolicy(QuantileConfig(backbone="tiny", **FEATURES)), tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def act(tmp_path_factory):
    torch.manual_seed(0)
    small = {"dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "n_encoder_layers": 1, "latent_dim": 4}
    config = ACTConfig(
        **FEATURES, **small, chunk_size=6, n_action_steps=4, pretrained_backbone_weights=None, n_vae_encoder_layers=1
    )
    return save(ACTPolicy(config), tmp_path_factory.mktemp("act"))


def observations(count: int, seed: int = 0) -> list[Observation]:
    rng = np.random.default_rng(seed)
    return [
        Observation(
            {name: rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for name in CAMERA_KEYS},
            rng.uniform(-1, 1, 8),
            f"put the can number {row} into the basket",
        )
        for row in range(count)
    ]


@pytest.fixture(scope="module")
def episodic(ours, tmp_path_factory):
    """With a correlation beside the weights, which the decoder `copula` reads."""
    folder = tmp_path_factory.mktemp("copula")
    shutil.copytree(ours, folder, dirs_exist_ok=True)
    size = 7 * QuantileConfig(backbone="tiny", **FEATURES).chunk_size
    save_file({"correlation": 0.5 * torch.eye(size) + 0.5}, folder / "copula.safetensors")
    return load_lerobot_policy(folder)


@pytest.mark.parametrize("decoder", ["own", *PRESETS, "shared(l=0.1, rho=0.9)"])
def test_eight_rows_in_a_batch_equal_eight_alone(episodic, decoder):
    policy = episodic
    assert isinstance(policy, EpisodicPolicy)
    together, alone = ([policy.begin(seed, None, decoder) for seed in range(8)] for _ in range(2))
    for query in range(2):
        seen = observations(8, seed=query)
        batch = policy.act(seen, together)
        for row, chunk in enumerate(batch):
            (single,) = policy.act([seen[row]], [alone[row]])
            assert chunk.actions.shape == (policy.n_action_steps, 7)
            assert chunk.quantiles.shape == (policy.n_action_steps, 7, 21)
            np.testing.assert_allclose(chunk.actions, single.actions, atol=2e-6)
            np.testing.assert_allclose(chunk.quantiles, single.quantiles, atol=2e-6)


def test_a_policy_whose_dataset_calls_its_cameras_otherwise(ours, tmp_path):
    """The same weights under other names give the same actions, once it is said which camera is which."""
    shutil.copytree(ours, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.json"):
        text = file.read_text().replace('"observation.images.image2"', '"observation.images.hand"')
        file.write_text(text.replace('"observation.images.image"', '"observation.images.front"'))
    with pytest.raises(
        ValueError, match=r"reads the pictures observation\.images\.front.*--camera external=observation"
    ):
        require_cameras(tmp_path, parse_cameras(["wrist=observation.images.hand"]))
    cameras = parse_cameras(["external=observation.images.front", "wrist=observation.images.hand"])
    require_cameras(tmp_path, cameras)
    crossed = dict(zip(cameras, reversed(cameras.values()), strict=True))
    seen = observations(2)

    def actions(folder, named):
        policy = load_lerobot_policy(folder, cameras=named)
        return np.stack(
            [chunk.actions for chunk in policy.act(seen, [policy.begin(s, None, "median") for s in (0, 1)])]
        )

    expected = actions(ours, None)
    np.testing.assert_array_equal(actions(tmp_path, cameras), expected)
    assert not np.array_equal(actions(tmp_path, crossed), expected)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["side=observation.images.side"],
            "--camera must read like external=observation.images.front, of external, wrist",
        ),
        (["external"], "got 'external'"),
        (["wrist="], "got 'wrist='"),
        (["wrist=observation.images.image"], "must name a feature once"),
    ],
)
def test_cameras_are_named_one_by_one(texts, said):
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        parse_cameras(texts)


def test_pictures_that_are_never_sent_need_no_camera(ours, tmp_path):
    """LeRobot's pi policies declare `empty_camera_0` and fill it themselves."""
    config = json.loads((ours / "config.json").read_text())
    picture = config["input_features"]["observation.images.image"]
    config["input_features"]["observation.images.empty_camera_0"] = picture
    (tmp_path / "config.json").write_text(json.dumps(config))
    require_cameras(tmp_path, CAMERA_KEYS)


@pytest.mark.parametrize("decoder", ["median", "shared(l=0.1, rho=0.9)"])
def test_the_fast_path_answers_like_the_plain_one(ours, decoder):
    fast, plain = (load_lerobot_policy(ours, fast=fast) for fast in (True, False))
    assert (fast.context["path"], plain.context["path"]) == ("fast", "plain")
    assert fast._policy.backbone._fast_expert is not None
    assert plain._policy.backbone._fast_expert is None
    memories = [[policy.begin(seed, None, decoder) for seed in range(3)] for policy in (fast, plain)]
    for query in range(2):
        seen = observations(3, seed=query)
        answers = [policy.act(seen, own) for policy, own in zip((fast, plain), memories, strict=True)]
        for one, other in zip(*answers, strict=True):
            np.testing.assert_allclose(one.actions, other.actions, atol=1e-5)
            np.testing.assert_allclose(one.quantiles, other.quantiles, atol=1e-5)


def test_episodes_may_come_and_go_in_any_company(ours):
    policy, decoder = load_lerobot_policy(ours), "shared(l=0)"
    seen = observations(3)
    lonely = policy.begin(7, None, decoder)
    expected = [policy.act([seen[0]], [lonely])[0].actions for _ in range(2)]
    mixed, others = policy.begin(7, None, decoder), [policy.begin(seed, None, decoder) for seed in (8, 9)]
    first = policy.act(seen, [mixed, *others])[0].actions
    policy.act(seen[1:], others)
    second = policy.act([seen[2], seen[0]], [others[1], mixed])[1].actions
    np.testing.assert_allclose([first, second], expected, atol=2e-6)
    assert not np.allclose(first, second), "the decoder's latent must move on"


def test_the_decoder_is_the_keys_and_the_law_is_the_same(ours):
    seen = observations(1)
    policy = load_lerobot_policy(ours)
    chunks = [policy.act(seen, [policy.begin(5, None, d)])[0] for d in ("median", "own", "independent")]
    assert np.array_equal(chunks[0].actions, chunks[1].actions)
    assert not np.allclose(chunks[0].actions, chunks[2].actions)
    assert np.array_equal(chunks[0].quantiles, chunks[2].quantiles)
    assert np.array_equal(chunks[0].actions, chunks[0].quantiles[..., 10])


def test_a_closed_policy_leaves_no_model_behind(ours):
    policy = load_lerobot_policy(ours)
    policy.act(observations(1), [policy.begin(5, None, "independent")])
    model = weakref.ref(policy._policy)
    policy.close()
    assert model() is None


def test_heads_without_a_law_know_the_median_alone(tmp_path):
    policy = load_lerobot_policy(save(QuantilePolicy(QuantileConfig(backbone="tiny", head="l1", **FEATURES)), tmp_path))
    policy.begin(1, None, "median")
    with pytest.raises(UnusablePolicyError, match="decoder needs the quantile head"):
        policy.begin(1, None, "independent")


def test_any_other_lerobot_policy_answers_by_its_episode_alone(act):
    policy = load_lerobot_policy(act)
    assert isinstance(policy, PlainPolicy)
    assert policy.n_action_steps == 4
    seen = observations(2)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    both = policy.act(seen, [policy.begin(1, None), policy.begin(2, None)])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    (alone,) = policy.act(seen[1:], [policy.begin(2, None)])
    assert both[1].actions.shape == (6, 7)
    assert both[1].quantiles is None
    assert np.array_equal(both[1].actions, alone.actions)
    with pytest.raises(ValueError, match="decoder must be 'own' for a policy of type act; got 'median'"):
        policy.begin(1, None, "median")


def test_a_camera_the_world_lacks_is_named(ours):
    policy = load_lerobot_policy(ours)
    (seen,) = observations(1)
    only = replace(seen, images={"external": seen.images["external"]})
    with pytest.raises(ValueError, match=r"cameras must be among .*reads \['observation.images.image2'\]"):
        policy.act([only], [policy.begin(0, None)])


def test_a_folder_without_a_policy_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json does not exist; LeRobot's trainer saves it"):
        load_lerobot_policy(tmp_path)


def test_a_type_that_nobody_defines_is_refused_with_those_that_are(ours, tmp_path):
    shutil.copytree(ours, tmp_path, dirs_exist_ok=True)
    config = json.loads((ours / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "type": "quantil"}))
    with pytest.raises(ValueError, match=r"type in .*config\.json must be one of .*quantile.*; got 'quantil': install"):
        load_lerobot_policy(tmp_path)


def test_a_model_that_did_not_take_its_weights_is_refused(act, monkeypatch):
    torch.manual_seed(1)  # other weights than the saved ones
    random = ACTPolicy.from_pretrained
    monkeypatch.setattr(ACTPolicy, "from_pretrained", classmethod(lambda cls, folder, config: ACTPolicy(config)))
    with pytest.raises(ValueError, match=r"was not loaded: of the \d+ tensors .* other values in \d+ \(model"):
        load_lerobot_policy(act)
    monkeypatch.setattr(ACTPolicy, "from_pretrained", random)
    load_lerobot_policy(act)


def test_the_fingerprint_sees_weights_and_settings(ours, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for path in ours.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b") == fingerprint(ours)
    weights = load_file(tmp_path / "a" / "model.safetensors")
    next(iter(weights.values())).flatten()[0] += 1
    save_file(weights, tmp_path / "a" / "model.safetensors")
    config = json.loads((tmp_path / "b" / "config.json").read_text()) | {"n_action_steps": 3}
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    assert len({fingerprint(folder) for folder in (ours, tmp_path / "a", tmp_path / "b")}) == 3
