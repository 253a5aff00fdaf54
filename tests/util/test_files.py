import pytest

from lerobot_policy_quantile.util.files import require_writable


def test_a_folder_that_can_be_written_passes_and_nothing_is_left_behind(tmp_path):
    require_writable("--out", tmp_path)
    require_writable("--out", tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=f"--out must be a folder that can be written; got {place} "):
            require_writable("--out", place)
