"""Processors: affine normalisation by exact quantiles, state bins, prompt, tokens, images."""

import copy
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.factory import make_policy as lerobot_make_policy
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.pi05.processor_pi05 import Pi05PrepareStateTokenizerProcessorStep
from lerobot.processor import PolicyProcessorPipeline
from lerobot.processor.converters import create_transition
from safetensors.torch import load_file
from tokenizers import Tokenizer

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint, base_statistics
from lerobot_policy_quantile.policy.normalisation import (
    SMALLEST_RANGE,
    exact_statistics,
    normalisation_range,
    put_statistics,
    write_exact_statistics,
)
from lerobot_policy_quantile.policy.tokenizer import load_tokenizer
from lerobot_policy_quantile.processor_quantile import (
    ImageStep,
    PromptTokenizerStep,
    make_quantile_pre_post_processors,
    prompt_text,
    state_bins,
)
from tests.support.datasets import CAMERA, TASK, make_dataset
from tests.support.policies import STATS, make_config, make_policy, raw_batch


@pytest.fixture
def pipelines():
    return make_quantile_pre_post_processors(make_config(), STATS)


# --- normalisation ----------------------------------------------------------------------------


def test_normalisation_is_affine_without_clipping(pipelines):
    """q01 -> -1, q99 -> 1, and five ranges beyond q99 -> 11."""
    batch = raw_batch(3)
    low, high = STATS["action"]["q01"], STATS["action"]["q99"]
    batch["action"] = torch.stack([low, high, high + 5 * (high - low)])[:, None].repeat(1, 10, 1)
    out = pipelines[0](batch)["action"]
    torch.testing.assert_close(out[:, 0], torch.tensor([[-1.0] * 3, [1.0] * 3, [11.0] * 3]))
    torch.testing.assert_close(pipelines[1](out), batch["action"])


def test_a_fresh_pipeline_without_statistics_is_refused():
    with pytest.raises(ValueError, match=r"dataset_stats must hold q01, q99 of observation.state"):
        make_quantile_pre_post_processors(make_config(), None)


# --- state and prompt -------------------------------------------------------------------------


def test_state_bins_are_pi05s_inside_the_range_and_clipped_outside():
    inside = torch.cat([torch.linspace(-1, 1, 4001), torch.tensor([-1e-9, 0.0, 1 / 128, -1 / 128])])[:, None]
    pi05 = np.digitize(inside.numpy(), bins=np.linspace(-1, 1, 257)[:-1]) - 1
    np.testing.assert_array_equal(state_bins(inside).numpy(), pi05)
    assert state_bins(torch.tensor([[-1.5, -1.0, 0.0, 1.0, 7.0]])).tolist() == [[0, 0, 128, 255, 255]]


def test_prompt_is_pi05s_word_for_word():
    state = torch.tensor([[0.1, -0.99], [0.5, 0.0]])
    tasks = [" pick_up the\ncup ", "stack"]
    transition = create_transition(observation={"observation.state": state}, complementary_data={"task": list(tasks)})
    theirs = Pi05PrepareStateTokenizerProcessorStep()(transition)["complementary_data"]["task"]
    assert [prompt_text(task, bins) for task, bins in zip(tasks, state_bins(state).tolist(), strict=True)] == theirs


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_refused_with_row_and_frame(pipelines, value):
    batch = raw_batch(4)
    batch["observation.state"][2, 1] = value
    with pytest.raises(ValueError, match=r"observation.state must be finite; row 2 \(frame index 102\), dimension 1"):
        pipelines[0](batch)


@pytest.mark.parametrize(("key", "says"), [("task", "task is missing"), ("observation.state", "observation.state is")])
def test_missing_task_or_state_is_refused(pipelines, key, says):
    batch = raw_batch()
    del batch[key]
    with pytest.raises(ValueError, match=says):
        pipelines[0](batch)


# --- tokenizer --------------------------------------------------------------------------------


def test_shipped_tokenizer_reads_any_text_and_gives_each_bin_one_token():
    tokenizer = load_tokenizer("shipped")
    for text in (prompt_text(TASK, [0, 127, 255]), "Zażółć gęślą jaźń 😀\t\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert all(len(tokenizer.encode(f" {bin_}").ids) == 2 for bin_ in range(256))  # <bos> and the bin


def test_tokens_are_padded_on_the_right_and_marked(pipelines):
    batch = raw_batch(2)
    batch["task"] = ["push", "push the cart aside to the left"]
    out = pipelines[0](batch)
    tokens, valid = out["observation.language.tokens"], out["observation.language.attention_mask"]
    assert tokens.shape == valid.shape == (2, 64)
    assert valid.dtype == torch.bool
    assert (valid.int().diff(dim=1) <= 0).all()  # real tokens first
    assert (tokens[~valid] == load_tokenizer("shipped").token_to_id("<pad>")).all()
    assert valid[0].sum() < valid[1].sum()


def test_a_prompt_is_never_cut():
    before, _ = make_quantile_pre_post_processors(make_config(tokenizer_max_length=8), STATS)
    with pytest.raises(ValueError, match=r"raise policy.tokenizer_max_length"):
        before(raw_batch())


def test_a_tokenizer_larger_than_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="tokenizer must fit the backbone's vocabulary of 100"):
        PromptTokenizerStep(64, "shipped", vocab_size=100)


def test_a_local_tokenizer_travels_with_the_checkpoint(tmp_path):
    """Saved from a folder that is then deleted: the copied pipeline still gives the same tokens."""
    source, saved, moved = tmp_path / "tokenizer", tmp_path / "saved", tmp_path / "elsewhere"
    source.mkdir()
    load_tokenizer("shipped").save(str(source / "tokenizer.json"))
    before, _ = make_quantile_pre_post_processors(make_config(tokenizer=str(source)), STATS)
    expected = before(raw_batch())["observation.language.tokens"]
    before.save_pretrained(saved)
    shutil.rmtree(source)
    saved.rename(moved)
    assert str(tmp_path) not in "".join(path.read_text() for path in moved.glob("*.json"))
    loaded = PolicyProcessorPipeline.from_pretrained(moved, config_filename="policy_preprocessor.json")
    torch.testing.assert_close(loaded(raw_batch())["observation.language.tokens"], expected)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"folder with tokenizer.json"):
        load_tokenizer(str(tmp_path))


def test_the_committed_tokenizer_is_the_scripts(tmp_path, monkeypatch):
    from importlib import resources
    from runpy import run_path

    from tests.support.command_line import ROOT

    script = run_path(str(ROOT / "scripts" / "make_tokenizer.py"))
    monkeypatch.setitem(script["main"].__globals__, "TARGET", tmp_path / "tokenizer.json")
    script["main"]()
    shipped = resources.files("lerobot_policy_quantile.policy").joinpath("tokenizer.json").read_text()
    assert (tmp_path / "tokenizer.json").read_text() == shipped
    assert Tokenizer.from_str(shipped).get_vocab_size() <= 1024


# --- images -----------------------------------------------------------------------------------


def fitted(image: torch.Tensor) -> torch.Tensor:
    transition = {TransitionKey.OBSERVATION: {CAMERA: image}}
    return ImageStep([CAMERA], [64, 64])(transition)[TransitionKey.OBSERVATION][CAMERA]


def test_images_keep_their_ratio_and_are_padded_with_black():
    image = fitted(torch.ones(1, 3, 32, 64))
    assert image.shape == (1, 3, 64, 64)
    assert (image[:, :, 16:48] == 1).all()
    assert (image[:, :, :16] == -1).all()
    assert (image[:, :, 48:] == -1).all()


def test_bytes_and_fractions_mean_the_same_image():
    bytes_ = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    torch.testing.assert_close(fitted(bytes_), fitted(bytes_ / 255))


@pytest.mark.parametrize(("image", "says"), [(torch.full((1, 3, 8, 8), 200.0), "0, 1"), (torch.zeros(1, 8, 8), "axes")])
def test_images_in_other_units_or_shapes_are_refused(image, says):
    with pytest.raises(ValueError, match=says):
        fitted(image)


def test_a_missing_camera_is_refused_with_what_is_there(pipelines):
    batch = raw_batch()
    batch["observation.images.side"] = batch.pop(CAMERA)
    with pytest.raises(ValueError, match=r"cameras missing: the policy reads observation.images.top") as error:
        pipelines[0](batch)
    assert "observation.images.side" in str(error.value)
    assert "--rename_map" in str(error.value)


# --- exact statistics -------------------------------------------------------------------------


def test_exact_quantiles_are_the_datas_and_lerobots_are_not(tmp_path):
    """Two episodes on the two sides of zero: neither the mean of their quantiles (LeRobot 0.6.1) nor the widest of them
    (later) is the data's."""
    dataset = make_dataset(tmp_path / "data", episodes=2, frames=40)
    actions = np.stack([np.asarray(row["action"]) for row in dataset.hf_dataset])
    expected = np.quantile(actions.astype(np.float64), [0.01, 0.99], axis=0)
    exact = exact_statistics(tmp_path / "data")["action"]
    np.testing.assert_allclose([exact["q01"], exact["q99"]], expected, rtol=1e-6)
    assert abs(np.stack([dataset.meta.stats["action"][name] for name in ("q01", "q99")]) - expected).max() > 0.01
    theirs = copy.deepcopy(before := dataset.meta.stats)
    put_statistics(dataset.meta, make_config())
    np.testing.assert_allclose(dataset.meta.stats["action"]["q99"], expected[1], rtol=1e-6)
    assert "mean" in dataset.meta.stats["action"]
    np.testing.assert_equal(before, theirs)  # the old statistics, which others may hold, are what they were


def test_a_new_policys_processors_are_exact_and_the_datasets_metadata_is_left_alone(tmp_path):
    """As `lerobot-train --policy.type=quantile` does it: policy first, then new processors with the metadata's own
    statistics, which LeRobot after 0.6.1 copies. Statistics of the caller's own are taken as they are."""
    dataset = make_dataset(tmp_path / "data", episodes=2, frames=40)
    theirs = copy.deepcopy(dataset.meta.stats)
    policy = lerobot_make_policy(make_config(), ds_meta=dataset.meta)
    exact = exact_statistics(tmp_path / "data")["action"]
    for given in (dataset.meta.stats, {key: dict(values) for key, values in dataset.meta.stats.items()}):
        before, after = make_pre_post_processors(policy.config, dataset_stats=given)
        torch.testing.assert_close(after(torch.ones(4, 3))[0], torch.as_tensor(exact["q99"]))
        before.save_pretrained(tmp_path / "saved")
        saved = load_file(next((tmp_path / "saved").glob("*normalizer*.safetensors")))
        torch.testing.assert_close(saved["action.q01"], torch.as_tensor(exact["q01"]))
    np.testing.assert_equal(dataset.meta.stats, theirs)
    _, after = make_pre_post_processors(policy.config, dataset_stats=STATS)
    torch.testing.assert_close(after(torch.ones(4, 3))[0], STATS["action"]["q99"])


def base_sized(**settings):
    """A configuration with the base's cameras, states and actions."""
    saved = PreTrainedConfig.from_pretrained(base_checkpoint())
    return replace(saved, backbone_weights="base", normalise_by="base", **settings)


def test_a_policy_that_starts_at_the_base_can_keep_the_ranges_in_which_its_vlm_reads_states():
    config = base_sized()
    ranges = base_statistics(config)
    others = {key: {end: 3 * values for end, values in ends.items()} for key, ends in ranges.items()}
    _, after = make_quantile_pre_post_processors(config, others)
    torch.testing.assert_close(after(torch.ones(1, 7))[0], ranges["action"]["q99"])
    _, after = make_quantile_pre_post_processors(replace(config, normalise_by="dataset"), others)
    torch.testing.assert_close(after(torch.ones(1, 7))[0], others["action"]["q99"])
    meta = SimpleNamespace(stats={"action": {"q99": torch.zeros(7), "mean": torch.zeros(7)}})
    put_statistics(meta, config)  # as when training of a saved policy goes on
    torch.testing.assert_close(meta.stats["action"]["q99"], ranges["action"]["q99"])
    assert "mean" in meta.stats["action"]


def test_ranges_of_the_base_are_refused_for_other_weights_and_other_sizes():
    with pytest.raises(ValueError, match=r"must be 'dataset' where backbone_weights is not a shipped base"):
        make_config(normalise_by="base", backbone_weights="none")
    small = base_sized(output_features={"action": PolicyFeature(FeatureType.ACTION, (3,))}, grippers=None)
    with pytest.raises(ValueError, match=r"normalise_by must be 'dataset' for action of shape \(3,\)"):
        make_quantile_pre_post_processors(small, {})


def test_exact_quantiles_can_be_written_to_the_dataset(tmp_path):
    make_dataset(tmp_path / "data", episodes=2)
    path = write_exact_statistics(tmp_path / "data")
    stored = json.loads(path.read_text())
    exact = exact_statistics(tmp_path / "data")
    np.testing.assert_allclose(stored["action"]["q01"], exact["action"]["q01"])
    assert CAMERA in stored


def test_near_constant_dimensions_get_a_least_range():
    """Column 0 rests and moves once, 1 never moves, 2 trembles, 3 is ordinary."""
    values = np.zeros((1000, 4), dtype=np.float32)
    values[500, 0] = 1.0
    values[:, 1] = 3.0
    values[:, 2] = 1e-6 * np.arange(1000) / 1000
    values[:, 3] = np.linspace(-1, 1, 1000)
    found = normalisation_range(values)
    np.testing.assert_allclose(found["q99"] - found["q01"], [1.0, SMALLEST_RANGE, SMALLEST_RANGE, 1.96], rtol=5e-3)
    assert found["q01"][1] < 3.0 < found["q99"][1]


@pytest.mark.parametrize("key", ["observation.state", "action"])
def test_nan_in_a_dataset_is_refused_with_episode_frame_and_key(tmp_path, key):
    make_dataset(tmp_path / "data", poison=key)
    with pytest.raises(ValueError, match=f"{key} must be finite; episode 1, frame 4, dimension 1"):
        exact_statistics(tmp_path / "data")


def test_a_folder_without_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="root must be a LeRobot dataset"):
        exact_statistics(tmp_path)


def test_fine_tuning_normalises_by_the_new_datasets_exact_quantiles(tmp_path):
    """As `lerobot-train --policy.path=...` does it: policy first, then saved processors with new statistics."""
    old = make_policy()
    for part in (old, *make_quantile_pre_post_processors(old.config, STATS)):
        part.save_pretrained(tmp_path / "saved")
    dataset = make_dataset(tmp_path / "data", episodes=2, frames=40)
    config = PreTrainedConfig.from_pretrained(tmp_path / "saved")
    config.pretrained_path = tmp_path / "saved"
    policy = lerobot_make_policy(config, ds_meta=dataset.meta)
    new = {"stats": dataset.meta.stats, "norm_map": config.normalization_mapping}
    features = {**policy.config.input_features, **policy.config.output_features}
    before, after = make_pre_post_processors(
        config,
        pretrained_path=config.pretrained_path,
        preprocessor_overrides={
            "device_processor": {"device": "cpu"},
            "normalizer_processor": {"features": features, **new},
            "rename_observations_processor": {"rename_map": {}},
        },
        postprocessor_overrides={"unnormalizer_processor": {"features": policy.config.output_features, **new}},
    )
    exact = exact_statistics(tmp_path / "data")["action"]
    top = torch.as_tensor(exact["q99"]).expand(4, 10, 3)
    torch.testing.assert_close(before({**raw_batch(4), "action": top.clone()})["action"], torch.ones(4, 10, 3))
    torch.testing.assert_close(after(torch.ones(4, 3)), top[:, 0])
