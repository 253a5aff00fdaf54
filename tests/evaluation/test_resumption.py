"""The same command on the same folder: its settings are compared and its side files looked for, pending keys or not."""

import shutil
from dataclasses import dataclass

import pytest
from rich.console import Console

from lerobot_policy_quantile.evaluation.journal import Journal, JournalError, read_rows
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.resumption import missing_side_files, require_same_settings
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.whole_run import JOURNAL, SIDE, UnfinishedError, run_whole
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from tests.support.fake_run import plan
from tests.support.fake_worlds import FakeFactory, FakePolicy, FakeWorld


@dataclass(frozen=True)
class Described(FakeFactory):
    """A factory whose world and policy can be other ones, and that says so without making the policy."""

    version: str = "1"
    steps: int = 5
    torch: str | None = None

    def world(self, scene: str) -> FakeWorld:
        world = super().world(scene)
        world.versions = {"fake": self.version}
        return world

    def policy(self, policy: str) -> FakePolicy:
        return FakePolicy(n_action_steps=self.steps)

    def policy_context(self, policy: str):
        context = dict(FakePolicy(n_action_steps=self.steps).context)
        return context if self.torch is None else {**context, "torch": self.torch}


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_whole(plan(2), folder, Described(folder), workers=1, console=Console(quiet=True))
    return folder


@pytest.fixture
def finished(run_once, tmp_path):
    return shutil.copytree(run_once, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "limit", "said"),
    [
        ({"version": "2"}, None, "scene fake is not .* fake: journal has '1', this run has '2'"),
        ({"steps": 6}, None, "policy fake is not .* n_action_steps: journal has '5', this run has '6'"),
        ({}, 23, "scene fake is not .* limit: journal has '24', this run has '23'"),
    ],
)
def test_another_setting_is_refused_although_nothing_is_pending(finished, change, limit, said):
    with Journal(finished / JOURNAL) as journal, pytest.raises(JournalError, match=said):
        require_same_settings(plan(2), journal, WorkerJob(Described(finished, **change), limit))
    if limit is None:
        with pytest.raises(JournalError, match=said):
            run_whole(plan(2), finished, Described(finished, **change), workers=1, console=Console(quiet=True))


def test_the_same_settings_and_other_scenes_pass(finished):
    with Journal(finished / JOURNAL) as journal:
        assert require_same_settings(plan(9), journal, WorkerJob(Described(finished))) == []
        other = Plan.cross(scenes=["elsewhere"], policies=["another"])
        assert require_same_settings(other, journal, WorkerJob(Described(finished, version="2", steps=6))) == []


def test_a_policy_that_nobody_can_describe_is_named_and_another_machines_torch_is_its_own(finished):
    with Journal(finished / JOURNAL) as journal:
        assert require_same_settings(plan(2), journal, WorkerJob(FakeFactory(finished))) == ["fake"]
        job = WorkerJob(Described(finished, torch="9"))
        assert require_same_settings(plan(2), journal, job, computed_here=False) == []
        with pytest.raises(JournalError, match="torch: journal has None, this run has '9'"):
            require_same_settings(plan(2), journal, job)


def test_a_side_file_that_is_gone_is_noticed_by_the_next_run(finished):
    rows, files = read_rows(finished / JOURNAL), SideFiles(finished / SIDE)
    assert all(set(row.side_files) == {".npz", ".png"} for row in rows)
    assert missing_side_files(rows, files) == []
    files.path(rows[1].key).unlink()
    assert missing_side_files(rows, files) == [files.path(rows[1].key)]
    assert missing_side_files(rows, None) == []
    with pytest.raises(UnfinishedError, match="1 side files of finished episodes are gone"):
        run_whole(plan(2), finished, Described(finished), workers=1, console=Console(quiet=True))
