"""The proof of the base checkpoint: what counts as picked up, the table, and runs that resume."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lerobot_policy_quantile.adapters.scripted_expert import ExpertPolicy
from lerobot_policy_quantile.contract import UnusablePolicyError
from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError, read_rows
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.whole_run import JOURNAL, UnfinishedError
from lerobot_policy_quantile.pretraining.proof import HEIGHTS, WatchedScene, proof_plan, prove, took_another
from lerobot_policy_quantile.scenes.embedded import NAMES
from tests.support.fake_worlds import FakePolicy, FakeWorld


def key(task, index):
    return EpisodeKey("embedded", task, index, 0, "base", "median")


class NotingWorld(FakeWorld):
    """Even indices succeed; index 4 lifts the cereal box, whatever was named."""

    def notes(self):
        return {HEIGHTS: np.array([0.2, 0.0, 0.0, 0.2 if self.index == 4 else 0.029])}


@dataclass(frozen=True)
class NotingFactory:
    folder: Path
    weights: str = "first"
    usable: bool = True
    scene: str = "fake"

    def world(self, scene):
        return NotingWorld(self.scene, folder=self.folder)

    def policy(self, policy):
        if not self.usable:
            raise UnusablePolicyError("nothing is left to run")
        return Named(weights=self.weights)


@dataclass
class Named(FakePolicy):
    weights: str = ""

    @property
    def context(self):
        return {"policy": self.weights}


CAN = Plan(tuple(key(4, index) for index in range(6)))


def test_a_proof_counts_what_the_worlds_noted_and_runs_every_episode_once(tmp_path):
    out, quiet = tmp_path / "proof", Console(quiet=True)
    first = prove(NotingFactory(tmp_path), Plan(CAN.keys[:4]), out, 1, quiet)
    assert first[0]["episodes"] == 4
    found = prove(NotingFactory(tmp_path), CAN, out, 2, quiet)
    row = {"episodes": 6, "in the basket": 3, "rate": "50%", "95 %": "19% to 81%", "wrong thing picked": 1}
    assert found[0] == {"states": "mixed, all", **row}
    assert found[1] == {"states": "mixed, can", **row}
    assert found[-1] == {
        "states": "task 0",
        "episodes": 0,
        "in the basket": 0,
        "rate": "-",
        "95 %": "-",
        "wrong thing picked": 0,
    }
    assert prove(NotingFactory(tmp_path, usable=False), CAN, out, 1, quiet) == found
    with pytest.raises(EngineError, match="nothing is left"):
        prove(NotingFactory(tmp_path, usable=False), CAN + Plan((key(4, 6),)), out, 1, quiet)


def test_episodes_of_two_checkpoints_are_not_counted_together(tmp_path):
    quiet = Console(quiet=True)
    prove(NotingFactory(tmp_path), Plan((key(4, 0),)), tmp_path / "proof", 1, quiet)
    with pytest.raises(JournalError, match="policy: journal has 'first', this run has 'second'"):
        prove(NotingFactory(tmp_path, "second"), CAN, tmp_path / "proof", 1, quiet)


def test_an_error_is_no_failure_and_no_proof(tmp_path):
    with pytest.raises(UnfinishedError, match="the simulator exploded"):
        prove(NotingFactory(tmp_path, scene="raises"), Plan((key(4, 3),)), tmp_path / "proof", 1, Console(quiet=True))
    assert [row.status for row in read_rows(tmp_path / "proof" / JOURNAL)] == ["error"]


def test_the_proof_has_100_mixed_states_that_no_choice_was_made_on_and_50_of_task_0():
    keys = [(k.task, k.index) for k in proof_plan()]
    assert len(keys) == len(set(keys)) == 150
    assert keys[:5] == [(1, 25), (2, 25), (3, 25), (4, 25), (1, 26)]
    assert keys[100:] == [(0, index) for index in range(50)]


@pytest.mark.parametrize(
    ("task", "heights", "wrong"),
    [(0, [0.1, 0, 0, 0], False), (1, [0.1, 0, 0, 0], True), (1, [0.03, 0.2, 0, 0], False), (3, [0, 0, 0, 0.4], False)],
)
def test_wrong_is_what_was_lifted_three_centimetres_and_not_named(task, heights, wrong):
    assert list(NAMES) == ["can", "milk", "bread", "cereal"]
    assert took_another(key(task, 0), np.array(heights)) is wrong


def test_the_watched_scene_notes_how_high_each_thing_was_lifted():
    scene = WatchedScene(camera_size=32)
    try:
        rollout = run_episode(scene, ExpertPolicy(), key(0, 0))
    finally:
        scene.close()
    assert rollout.outcome.status == "success"
    can, *others = rollout.trace.arrays()[HEIGHTS]
    assert can > 0.1
    assert max(others) < 0.01
