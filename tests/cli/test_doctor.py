"""`qhead doctor RUN`: a run's folder, whole and damaged."""

import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.evaluation.journal import Journal, read_rows
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.run_check import examine_run
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from tests.evaluation.test_damage import without_triggers
from tests.support.fake_run import plan
from tests.support.fake_worlds import FakePolicy, FakeWorld
from tests.support.old_journal import write_old_journal


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    files = SideFiles(folder / "side", video=False)
    with Journal(folder / "journal.sqlite") as journal:
        for key in plan(4):
            rollout = run_episode(FakeWorld(), FakePolicy(), key)
            rollout.outcome.side_files.update(files.write(key, rollout.trace))
            journal.record(rollout.outcome)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def doctor(folder):
    result = CliRunner().invoke(app, ["doctor", str(folder)], env={"COLUMNS": "300"})
    return result.exit_code, result.output


def test_a_whole_run_passes(folder):
    code, text = doctor(folder)
    assert code == 0, text
    for said in ("4 results, 0 attempts", "4 results match their checksums", "8 files of 4 episodes", "scene fake"):
        assert said in text
    assert doctor(folder / "journal.sqlite")[0] == 0


def test_a_side_file_that_is_missing_or_altered_is_named(folder):
    first, second, third, _ = sorted((folder / "side").glob("*.npz"))
    first.unlink()
    second.write_bytes(third.read_bytes())
    code, text = doctor(folder)
    assert code == 1
    assert f"{first.name} of " in text
    assert f"{second.name} of " in text
    assert "6 files of 4 episodes match their digests" in text


def test_altered_and_lost_rows_are_listed_beside_what_is_whole(folder):
    rows = read_rows(folder / "journal.sqlite")
    db = without_triggers(folder / "journal.sqlite")
    db.execute("UPDATE results SET steps = steps + 1 WHERE rowid = 1")
    db.execute("DELETE FROM results WHERE rowid = 2")
    db.commit()
    db.close()
    found = {finding.what: finding for finding in examine_run(folder)}
    assert found["altered rows"].found == f"results {rows[0].key.text}"
    assert found["lost rows"].found == f"results {rows[1].key.text}"
    assert found["whole rows"].found == "2 results match their checksums"
    assert found["side files without a row"].status == "warn"
    assert doctor(folder)[0] == 1


def test_what_is_whole_can_be_rescued_and_the_rest_is_run_again(folder, tmp_path):
    rows = read_rows(folder / "journal.sqlite")
    db = without_triggers(folder / "journal.sqlite")
    db.execute("UPDATE results SET steps = steps + 1 WHERE rowid = 1")
    db.commit()
    db.close()
    target = tmp_path / "rescued"
    result = CliRunner().invoke(app, ["doctor", str(folder), "--rescue", str(target)])
    assert result.exit_code == 1
    assert f"3 results rescued into {target}" in result.output
    assert read_rows(target / "journal.sqlite") == rows[1:]
    with Journal(target / "journal.sqlite") as journal:
        outcome = run_episode(FakeWorld(), FakePolicy(), rows[0].key).outcome
        assert journal.record(replace(outcome, side_files=rows[0].side_files))
    assert examine_run(target)[-1].found == "8 files of 4 episodes match their digests"
    again = CliRunner().invoke(app, ["doctor", str(folder), "--rescue", str(target)])
    assert "must name a new folder" in again.output
    assert CliRunner().invoke(app, ["doctor", "--rescue", str(target)]).exit_code == 2


def test_rescued_rows_without_checksums_stay_without(tmp_path):
    keys = [key.text for key in plan(3)]
    (tmp_path / "old").mkdir()
    write_old_journal(tmp_path / "old" / "journal.sqlite", keys, {"fake": "1"}, {"policy": "abc"})
    assert CliRunner().invoke(app, ["doctor", str(tmp_path / "old"), "--rescue", str(tmp_path / "new")]).exit_code == 0
    found = {finding.what: finding.found for finding in examine_run(tmp_path / "new")}
    assert found["whole rows"] == "0 results match their checksums and 3 carry none"


def test_a_run_without_a_journal_and_a_truncated_one_exit_one(folder, tmp_path):
    assert doctor(tmp_path)[0] == 1
    path = folder / "journal.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    code, text = doctor(folder)
    assert code == 1
    assert "Traceback" not in text


def test_a_row_made_with_something_else_than_its_context_is_named(tmp_path):
    keys = [key.text for key in plan(2)]
    write_old_journal(tmp_path / "journal.sqlite", keys, {"fake": "1"}, {"policy": "abc"})
    found = {finding.what: finding for finding in examine_run(tmp_path)}
    assert (found["contexts"].status, found["whole rows"].status) == ("ok", "warn")
    assert found["whole rows"].found == "0 results match their checksums and 2 carry none"
    db = without_triggers(tmp_path / "journal.sqlite")
    db.execute("UPDATE contexts SET context = '{\"fake\": \"2\"}' WHERE scope = 'scene fake'")
    db.commit()
    db.close()
    assert {finding.what: finding.status for finding in examine_run(tmp_path)}["contexts"] == "fail"
