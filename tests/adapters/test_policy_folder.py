"""A broken policy folder is told apart from its files, with the file's name and what to do."""

import json
import shutil

import pytest

from lerobot_policy_quantile.adapters.policy_folder import require_policy_folder
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint

STATE = "policy_preprocessor_step_2_normalizer_processor.safetensors"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(base_checkpoint(), tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_whole_folder_passes(folder):
    require_policy_folder(folder)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("config.json", "does not exist; LeRobot's trainer saves it"),
        ("model.safetensors", "does not exist: copy the whole folder, weights included"),
        ("policy_preprocessor.json", "for a checkpoint of an early LeRobot run: python -m lerobot.processor.migrate"),
        ("policy_postprocessor.json", "for a checkpoint of an early LeRobot run: python -m lerobot.processor.migrate"),
        (STATE, "does not exist: copy the whole folder"),
    ],
)
def test_a_missing_file_is_named_with_the_fix(folder, name, said):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=said) as error:
        require_policy_folder(folder)
    assert str(folder / name) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b'{"type": ', "must be JSON; .*: copy the folder again"),
        ("config.json", b"[]", "must hold a JSON object; got list"),
        ("config.json", json.dumps({"type": 3}).encode(), "must name the policy's type; got 3"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
        ("model.safetensors", b"", "is cut off or no safetensors file"),
        (STATE, b"\x80\x04K\x01.", "is cut off or no safetensors file"),
    ],
)
def test_a_broken_file_is_named_with_the_fix(folder, name, content, said):
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        require_policy_folder(folder)
    assert str(folder / name) in str(error.value)


def test_weights_that_lost_their_last_byte_are_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is cut off"):
        require_policy_folder(folder)
