"""A broken weight file is one sentence with its name; whole ones give their tensors."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lerobot_policy_quantile.backbone.weight_files import SHARD_INDEX, SINGLE_FILE, stored_tensors
from lerobot_policy_quantile.backbone.weights import pi05_tensors


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file({"a": torch.arange(6.0).view(3, 2), "b": torch.tensor(1.0)}, tmp_path / SINGLE_FILE)
    return tmp_path / SINGLE_FILE


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"\.safetensors") as error:
        stored_tensors(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_whole_file_gives_its_tensors(file):
    stored = stored_tensors(file.parent)
    assert {key: entry.shape for key, entry in stored.items()} == {"a": (3, 2), "b": ()}
    assert stored["a"].rows(slice(1, 2)).tolist() == [[2.0, 3.0]]


def test_a_truncated_file_says_how_much_of_it_is_there(file):
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert (
        refused(file.parent)
        == f"{file} is truncated: it has {len(whole) - 5:,} of {len(whole):,} bytes; fetch it again"
    )
    for length in (0, 7, 8, 40):
        file.write_bytes(whole[:length])
        assert "truncated or no safetensors file" in refused(file.parent)


def test_bytes_after_the_end_are_refused(file):
    with file.open("ab") as opened:
        opened.write(b"more")
    assert f"{file} has 4 bytes after its end" in refused(file.parent)


def test_a_git_lfs_pointer_names_the_command_that_fetches_the_weights(file):
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    assert refused(file.parent) == f"{file} is a git-lfs pointer, not the weights; fetch them with: git lfs pull"


@pytest.mark.parametrize("header", [b"not json", b"[]", b'{"a": 3}', b'{"a": {"data_offsets": []}}', b"\xff\xfe"])
def test_a_header_that_cannot_be_read_is_refused(file, header):
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert f"{file} is no safetensors file: its header cannot be read" in refused(file.parent)


def test_offsets_that_overlap_are_refused_by_name(file):
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"a": entry, "b": entry}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    assert str(file) in refused(file.parent)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": [1]}}']
)
def test_a_malformed_index_is_refused(file, text):
    (file.parent / SHARD_INDEX).write_text(text)
    assert "must be JSON with a weight_map" in refused(file.parent)


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "..\\x", "C:\\x"]
)
def test_an_index_that_points_outside_its_folder_is_refused(file, name):
    (file.parent / SHARD_INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    assert f"must name files inside its folder; got {name!r}" in refused(file.parent)


def test_an_empty_index_and_absent_shards_are_refused(file):
    index = file.parent / SHARD_INDEX
    index.write_text(json.dumps({"weight_map": {}}))
    assert "must name at least one file" in refused(file.parent)
    index.write_text(json.dumps({"weight_map": {"a": SINGLE_FILE, "b": "model-2.safetensors"}}))
    assert "does not have: model-2.safetensors" in refused(file.parent)


def test_a_key_in_two_shards_is_refused(file):
    other = file.with_name("model-2.safetensors")
    save_file({"a": torch.zeros(1)}, other)
    (file.parent / SHARD_INDEX).write_text(json.dumps({"weight_map": {"a": SINGLE_FILE, "b": other.name}}))
    assert "holds a, which model-2.safetensors holds too" in refused(file.parent)


def test_a_key_with_and_without_the_policys_prefix_is_refused(tmp_path):
    save_file({"x": torch.zeros(1), "model.x": torch.zeros(1)}, tmp_path / SINGLE_FILE)
    with pytest.raises(ValueError, match=r"model\.safetensors holds .*x, which is .*x in model\.safetensors"):
        pi05_tensors(tmp_path)


def test_a_folder_without_weights_says_what_they_are_called(tmp_path):
    assert "weights must be model.safetensors, or shards with" in refused(tmp_path)
