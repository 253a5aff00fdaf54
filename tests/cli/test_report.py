import json
import shutil

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.scenes.libero import assets as libero_assets
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.records import load_study
from lerobot_policy_quantile.studies.two_demo.report.write import write_study_report
from tests.support.study_folder import write_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("studies") / "small", episodes=1, updates=100, video=False)


def test_a_report_is_written_and_can_be_written_again(folder):
    for _ in range(2):
        result = CliRunner().invoke(app, ["report", str(folder)])
        assert result.exit_code == 0, result.output
        assert str(folder / "report.html") in result.output
        assert (folder / "report.html").read_text().startswith("<!doctype html>")
        assert (folder / "report.md").read_text().startswith("# Two demonstrations")


def test_a_folder_without_a_study_is_refused_by_name(tmp_path):
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "study.json" in result.stderr
    assert str(tmp_path) in result.stderr


def test_a_broken_journal_is_an_error_and_no_report(folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "study", ignore=shutil.ignore_patterns("report*"))
    (broken / "embedded" / records.JOURNAL).write_bytes(b"not a database" * 100)
    result = CliRunner().invoke(app, ["report", str(broken)])
    assert result.exit_code == 1
    assert "journal" in result.stderr
    assert not (broken / "report.html").exists()


def libero_study(folder, tmp_path, assets):
    copy = shutil.copytree(folder, tmp_path / "study")
    (copy / "embedded").rename(copy / "libero_object")
    facts = json.loads((copy / "libero_object" / records.ARM).read_text())
    facts["versions"]["assets"] = assets
    (copy / "libero_object" / records.ARM).write_text(json.dumps(facts))
    settings = json.loads((copy / records.STUDY).read_text()) | {"arms": ["libero_object"]}
    (copy / records.STUDY).write_text(json.dumps(settings))
    return load_study(copy)


def test_stand_ins_are_named_for_the_assets_that_the_study_ran_with(folder, tmp_path, monkeypatch):
    assets = tmp_path / "data" / "assets"
    (assets / "scenes").mkdir(parents=True)
    (assets / "scenes" / "libero_floor_base_style.xml").write_text("<mujoco/>")
    (tmp_path / "data" / "MANIFEST.txt").write_text(
        "# list\nSTANDIN assets/objects/basket/visual/basket.msh\nSTANDIN assets/objects/plate/texture.png  (copy)\n"
    )
    monkeypatch.setenv(libero_assets.VARIABLE, str(tmp_path / "data"))
    page = write_study_report(libero_study(folder, tmp_path, libero_assets.assets_hash(assets)))
    assert "2 visual files are stand-ins" in page.read_text()
    assert "(basket, plate)" in page.read_text()


def test_stand_ins_of_other_assets_are_unknown(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(libero_assets, "_places", lambda: iter([("nowhere", tmp_path)]))
    page = write_study_report(libero_study(folder, tmp_path, "0123456789ab"))
    assert "LIBERO assets 0123456789ab: not on this machine, stand-ins unknown." in page.read_text()
