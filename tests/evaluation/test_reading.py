"""Journals where nothing can be written: read by a process that has no right to, on a copy of the folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lerobot_policy_quantile.evaluation.journal import Journal
from tests.evaluation.test_damage import outcome

READ = """
import json, sys
from pathlib import Path
from lerobot_policy_quantile.evaluation.journal import read_rows
print(json.dumps([row.key.index for row in read_rows(Path(sys.argv[1]))]))
"""


def read_without_rights(folder: Path) -> list[int]:
    """The indices of a journal's rows, read where folder and files are read-only."""
    wrapper: list[str] = []
    if os.geteuid() == 0:  # root writes everywhere; without its capabilities it does not
        if shutil.which("setpriv") is None:
            pytest.skip("root ignores file modes and setpriv (util-linux) is not there to take that away")
        wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    before = sorted(path.name for path in folder.iterdir())
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        command = [*wrapper, sys.executable, "-c", READ, str(folder / "journal.sqlite")]
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
    return json.loads(done.stdout)


def test_a_finished_journal_is_read_where_nothing_can_be_written(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        for index in range(5):
            journal.record(outcome(index))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.lock", "journal.sqlite"]
    assert read_without_rights(tmp_path) == [0, 1, 2, 3, 4]


def test_rows_that_a_killed_run_left_in_the_write_ahead_file_are_read_too(tmp_path):
    archive = tmp_path / "archive"
    archive.mkdir()
    with Journal(tmp_path / "journal.sqlite") as journal:
        for index in range(5):
            journal.record(outcome(index))
        for name in ("journal.sqlite", "journal.sqlite-wal"):
            shutil.copy(tmp_path / name, archive / name)
    assert read_without_rights(archive) == [0, 1, 2, 3, 4]
