import os
import subprocess
import sys

import pytest

from lerobot_policy_quantile.scenes.libero import assets


def test_missing_assets_are_reported_with_every_place_that_was_looked_at(monkeypatch, tmp_path):
    monkeypatch.setenv(assets.VARIABLE, str(tmp_path / "mine"))
    monkeypatch.setattr(assets, "MARK", tmp_path / "nowhere.xml")
    with pytest.raises(ValueError, match="LIBERO assets must be in one of these places") as error:
        assets.find_assets()
    for place in (str(tmp_path / "mine" / "assets"), "beside the checkout", "inside hf-libero", "hub cache"):
        assert place in str(error.value)


def test_the_variable_comes_first(monkeypatch, tmp_path):
    mark = tmp_path / "assets" / assets.MARK
    mark.parent.mkdir(parents=True)
    mark.touch()
    monkeypatch.setenv(assets.VARIABLE, str(tmp_path))
    assert assets.find_assets() == tmp_path / "assets"


def test_the_hash_sees_content_and_names(tmp_path):
    hashes = set()
    for number, (name, text) in enumerate([("a", "1"), ("a", "2"), ("b", "1")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(text)
        hashes.add(assets.assets_hash(folder))
    assert len(hashes) == 3


@pytest.mark.libero
def test_a_fresh_machine_is_asked_nothing(tmp_path):
    """No configuration, an empty home, standard input closed: hf-libero would ask and fail."""
    fresh = {name: value for name, value in os.environ.items() if name != "LIBERO_CONFIG_PATH"}
    code = "from lerobot_policy_quantile.scenes.libero.assets import import_libero; print(import_libero().__name__)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**fresh, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "libero.libero"
    assert not (tmp_path / ".libero").exists()


def test_perturbations_are_found_beside_the_assets_or_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("QHEAD_LIBERO_DATA", str(tmp_path))
    monkeypatch.setattr(assets, "find_assets", lambda: tmp_path / "elsewhere" / "assets")
    (tmp_path / "plus").mkdir()
    assert assets.find_data("plus") == tmp_path / "plus"
    with pytest.raises(ValueError, match="LIBERO data must hold the folder 'pro'") as error:
        assets.find_data("pro")
    said = "git clone https://github.com/Zxy-MLlab/LIBERO-PRO, then qhead data pro --from LIBERO-PRO"
    assert said in str(error.value)
    (tmp_path / "elsewhere" / "pro").mkdir(parents=True)
    assert assets.find_data("pro") == tmp_path / "elsewhere" / "pro"


def test_stand_ins_are_counted_from_the_manifest(tmp_path):
    (tmp_path / "assets").mkdir()
    assert assets.stand_ins.__wrapped__(tmp_path / "assets") == []
    (tmp_path / "MANIFEST.txt").write_text("# STANDIN is a word\nSTANDIN assets/a.png\nSTANDIN assets/b.msh\n0 1 c\n")
    assert assets.stand_ins.__wrapped__(tmp_path / "assets") == ["assets/a.png", "assets/b.msh"]
