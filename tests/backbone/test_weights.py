"""A checkpoint that LeRobot wrote arrives whole, or the error lists what is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lerobot_policy_quantile.backbone import VARIANTS, Backbone, load_pi05_weights
from lerobot_policy_quantile.backbone import weights as weights_module
from lerobot_policy_quantile.backbone.weight_files import SHARD_INDEX, SINGLE_FILE, StoredTensor
from lerobot_policy_quantile.backbone.weights import LM_HEADS, TEXT_EMBEDDING, load_own_weights
from lerobot_policy_quantile.core.heads import Head, PointHead, QuantileHead
from tests.backbone.lerobot_reference import lerobot_checkpoint
from tests.backbone.samples import ACTION_DIM, CHUNK, MODEL_DIM, observation

TINY = VARIANTS["tiny"]
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory):
    """A folder that PI05Policy.save_pretrained wrote, and the policy."""
    folder = tmp_path_factory.mktemp("pi05")
    return folder, lerobot_checkpoint(TINY, folder)


def fresh() -> tuple[Backbone, QuantileHead]:
    backbone = Backbone(TINY, model_dim=MODEL_DIM)
    return backbone, QuantileHead(backbone.expert_width, CHUNK, ACTION_DIM, MODEL_DIM)


def rewritten(written, folder: Path, change) -> Path:
    tensors = load_file(written[0] / SINGLE_FILE)
    change(tensors)
    save_file(tensors, folder / SINGLE_FILE)
    return folder


def test_every_vlm_expert_and_projection_key_arrives(written):
    folder, policy = written
    backbone, head = fresh()
    report = load_pi05_weights(backbone, head, str(folder))
    theirs = policy.model.state_dict()
    assert set(report.loaded) == theirs.keys() - set(LM_HEADS)
    assert set(report.dropped) == set(LM_HEADS)
    assert report.new == ("prompts", "head.gap_projection.weight", "head.gap_projection.bias")
    ours = backbone.state_dict() | {f"action_out_proj.{n}": w for n, w in head.projection.state_dict().items()}
    for name in report.loaded:
        assert torch.equal(ours[name], theirs[name]), name


def test_a_fresh_output_projection_keeps_its_values_and_the_checkpoints_is_dropped(written):
    backbone, head = fresh()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    report = load_pi05_weights(backbone, head, str(written[0]), output_projection="fresh")
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())
    assert set(report.dropped) == {*LM_HEADS, "action_out_proj.weight", "action_out_proj.bias"}
    assert set(report.new) >= {"head.projection.weight", "head.projection.bias", "prompts"}
    assert torch.equal(backbone.action_in_proj.weight, written[1].model.action_in_proj.weight)


def test_weights_arrive_in_pieces(tmp_path, monkeypatch):
    """Rows of several pieces, one row larger than a piece, a scalar, another precision."""
    monkeypatch.setattr(weights_module, "PIECE", 64)
    sizes, opened = [], StoredTensor.rows

    def piece(entry, rows):
        part = opened(entry, rows)
        sizes.append(part.numel() * part.element_size())
        return part

    monkeypatch.setattr(StoredTensor, "rows", piece)
    module = torch.nn.Module()
    module.rows = torch.nn.Parameter(torch.zeros(9, 5))
    module.wide = torch.nn.Parameter(torch.zeros(2, 30))
    module.brief = torch.nn.Parameter(torch.zeros(7, dtype=torch.bfloat16))
    module.register_buffer("number", torch.tensor(0))
    stored = {"rows": torch.randn(9, 5), "wide": torch.randn(2, 30), "brief": torch.randn(7), "number": torch.tensor(3)}
    save_file(stored, tmp_path / SINGLE_FILE)
    load_own_weights(module, tmp_path)
    for name, value in module.state_dict().items():
        assert torch.equal(value, stored[name].to(value.dtype)), name
    assert len(sizes) == 3 + 2 + 1 + 1
    del stored["wide"]
    save_file(stored, tmp_path / SINGLE_FILE)
    with pytest.raises(ValueError, match="does not fit this model:\n1 missing:\n  wide"):
        load_own_weights(module, tmp_path)


def test_loaded_prefix_equals_lerobots(written):
    """Keys and values that LeRobot's prefix pass leaves in its cache, at the valid tokens."""
    folder, policy = written
    backbone, head = fresh()
    load_pi05_weights(backbone, head, str(folder))
    seen = observation(TINY)
    caches = []
    towers = policy.model.paligemma_with_expert
    original = towers.forward

    def spy(**kwargs):
        result = original(**kwargs)
        caches.append(result[1])
        return result

    towers.forward = spy
    try:
        policy.model.sample_actions(*seen, num_steps=1)
    finally:
        del towers.forward
    prefix = backbone.prefix(seen)
    theirs = [(keys, values) for keys, values, _ in caches[0]]
    assert len(theirs) == len(prefix.layers) == TINY.depth
    for their_layer, our_layer in zip(theirs, prefix.layers, strict=True):
        for their_tensor, our_tensor in zip(their_layer, our_layer, strict=True):
            assert their_tensor.abs().mean() > 1e-2
            torch.testing.assert_close(our_tensor, their_tensor, atol=1e-5, rtol=1e-5)


def test_new_gaps_start_at_delta0_and_new_prompts_small(written):
    backbone, head = fresh()
    load_pi05_weights(backbone, head, str(written[0]))
    with torch.no_grad():
        features = backbone.expert(backbone.prefix(observation(TINY)))(torch.zeros(3, CHUNK, MODEL_DIM), torch.zeros(3))
        gaps = head.quantiles(features).diff(dim=-1)
    torch.testing.assert_close(gaps, torch.full_like(gaps, 0.02), atol=1e-5, rtol=0)
    assert 0.01 < backbone.prompts.std() < 0.03


def test_sharded_checkpoint_and_keys_without_prefix_load_the_same(written, tmp_path: Path):
    whole = load_file(written[0] / SINGLE_FILE)
    names = sorted(whole)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name.removeprefix("model."): whole[name] for name in members}, tmp_path / file)
    weight_map = {name.removeprefix("model."): file for file, members in shards.items() for name in members}
    (tmp_path / SHARD_INDEX).write_text(json.dumps({"weight_map": weight_map}))
    one, two = fresh(), fresh()
    load_pi05_weights(*one, str(written[0]))
    load_pi05_weights(*two, str(tmp_path))
    assert_same_pi05(one, two)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"does not have: model-00002-of-00002.safetensors"):
        load_pi05_weights(*two, str(tmp_path))


def test_text_embedding_stored_only_as_the_tied_head_still_arrives(written, tmp_path: Path):
    """The hub's pi05_base holds the embedding under the name of the language-model head alone."""

    def tie(tensors: Tensors) -> None:
        tensors[f"model.{LM_HEADS[0]}"] = tensors.pop(f"model.{TEXT_EMBEDDING}")

    backbone, head = fresh()
    report = load_pi05_weights(backbone, head, str(rewritten(written, tmp_path, tie)))
    theirs = written[1].model.state_dict()[TEXT_EMBEDDING]
    assert torch.equal(backbone.state_dict()[TEXT_EMBEDDING], theirs)
    assert report.dropped == LM_HEADS[1:]


def test_one_error_lists_missing_unexpected_and_misshaped_keys_and_writes_nothing(written, tmp_path: Path):
    missing = "paligemma_with_expert.gemma_expert.model.layers.1.mlp.up_proj.weight"
    misshaped = "paligemma_with_expert.paligemma.model.language_model.layers.0.self_attn.q_proj.weight"

    def spoil(tensors: Tensors) -> None:
        del tensors[f"model.{missing}"]
        tensors[f"model.{misshaped}"] = torch.zeros(5, 7)
        tensors["model.state_proj.weight"] = torch.zeros(2, 2)

    backbone, head = fresh()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit") as error:
        load_pi05_weights(backbone, head, str(rewritten(written, tmp_path, spoil)))
    text = str(error.value)
    assert f"1 missing:\n  {missing}" in text
    assert "1 unexpected:\n  state_proj.weight" in text
    assert f"1 mis-shaped:\n  {misshaped}: (5, 7) in the checkpoint, (128, 128) here" in text
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.state_dict().items())


def test_projection_of_another_action_width_is_misshaped(written):
    backbone = Backbone(TINY, model_dim=24)
    head = PointHead(backbone.expert_width, CHUNK, ACTION_DIM, 24, norm="l1")
    with pytest.raises(ValueError, match=r"3 mis-shaped:\n  action_in_proj.weight: \(128, 32\)"):
        load_pi05_weights(backbone, head, str(written[0]))


def test_bfloat16_backbone_loads_a_float32_checkpoint(written):
    backbone = Backbone(TINY, model_dim=MODEL_DIM, precision="bfloat16")
    head = PointHead(backbone.expert_width, CHUNK, ACTION_DIM, MODEL_DIM, norm="l2")
    load_pi05_weights(backbone, head, str(written[0]))
    theirs = written[1].model.state_dict()[TEXT_EMBEDDING]
    assert torch.equal(backbone.state_dict()[TEXT_EMBEDDING], theirs.to(torch.bfloat16))


def test_a_hub_id_is_fetched_and_a_folder_is_not(written, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def download(repository: str, **settings: object) -> str:
        asked.append((repository, settings["revision"]))
        return str(written[0])

    monkeypatch.setattr(weights_module, "snapshot_download", download)
    load_pi05_weights(*fresh(), str(written[0]))
    assert not asked
    load_pi05_weights(*fresh(), "lerobot/pi05_base", revision="main")
    assert asked == [("lerobot/pi05_base", "main")]


def test_a_hub_id_that_cannot_be_had_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def download(repository: str, **settings: object) -> str:
        raise FileNotFoundError("no connection\nand many more lines")

    monkeypatch.setattr(weights_module, "snapshot_download", download)
    with pytest.raises(ValueError, match=r"'lerobot/pi05_base' cannot be had from the hub .*no connection\)") as error:
        load_pi05_weights(*fresh(), "lerobot/pi05_base")
    assert "\n" not in str(error.value)


def test_a_wider_model_takes_over_the_dimensions_that_are_there(written):
    backbone = Backbone(TINY, model_dim=40)
    head = PointHead(backbone.expert_width, CHUNK, 40, 40, norm="l1")
    before = backbone.action_in_proj.weight.detach().clone()
    report = load_pi05_weights(backbone, head, str(written[0]), output_projection="fresh")
    theirs = written[1].model.action_in_proj.weight
    assert torch.equal(backbone.action_in_proj.weight[:, :MODEL_DIM], theirs)
    assert torch.equal(backbone.action_in_proj.weight[:, MODEL_DIM:], before[:, MODEL_DIM:])
    assert f"action_in_proj.weight[:, {MODEL_DIM}:]" in report.new


@pytest.mark.parametrize("source", ["/no/such/folder", "pi05_base", "./missing", ""])
def test_neither_folder_nor_hub_id_is_refused(source: str):
    with pytest.raises(ValueError, match="existing folder or a hub id"):
        load_pi05_weights(*fresh(), source)


def test_folder_without_weights_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"weights must be model.safetensors, or shards"):
        load_pi05_weights(*fresh(), str(tmp_path))


def assert_same_pi05(one: tuple[Backbone, Head], two: tuple[Backbone, Head]) -> None:
    for first, second in zip(one, two, strict=True):
        others = second.state_dict()
        for name, tensor in first.state_dict().items():
            assert name == "prompts" or torch.equal(tensor, others[name]), name


def test_at_full_size_the_names_are_those_of_the_public_checkpoint():
    """lerobot/pi05_base has 812 keys: ours, both heads over the vocabulary, and no text embedding (tied to a head)."""
    with torch.device("meta"):
        backbone = Backbone(VARIANTS["pi05"], model_dim=32, n_prompts=16)
        head = QuantileHead(backbone.expert_width, 50, 7, 32)
    names = weights_module._targets(backbone, head).keys()
    assert len({*names, *LM_HEADS} - {TEXT_EMBEDDING}) == 812
    assert len(names) == 811
    vision = f"{weights_module.ROOT}paligemma.model.vision_tower.vision_model."
    assert {f"{vision}embeddings.patch_embedding.weight", "action_out_proj.weight", "time_mlp_in.bias"} <= names
