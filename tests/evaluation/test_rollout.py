from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.contract import Chunk
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode, run_episodes
from tests.support.fake_worlds import LIMIT, FakePolicy, FakeWorld


def key(index: int, scene: str = "fake") -> EpisodeKey:
    return EpisodeKey(scene, 0, index, 11, "fake", "median")


def comparable(rollout):
    """The outcome without its wall time and the lines of its traceback."""
    error = None if rollout.outcome.traceback is None else rollout.outcome.traceback.splitlines()[-1]
    return replace(rollout.outcome, wall_seconds=0.0, traceback=error)


def test_success_is_the_worlds_flag_and_ends_the_episode():
    rollout = run_episode(FakeWorld(), FakePolicy(), key(4))
    outcome, trace = rollout.outcome, rollout.trace
    assert (outcome.status, outcome.steps, outcome.simulated_seconds) == ("success", 17, 0.85)
    assert outcome.contacts == 1
    assert outcome.first_action == tuple(trace.actions[0])
    assert outcome.final_state == tuple(trace.states[-1])
    assert (len(trace.states), len(trace.contacts)) == (18, 17)
    assert outcome.scene_context == {"fake": "1", "camera_size": "4", "limit": str(LIMIT)}
    assert outcome.policy_context == {"policy": "fake", "n_action_steps": "5"}


def test_no_flag_within_the_limit_is_a_failure():
    assert run_episode(FakeWorld(), FakePolicy(), key(1)).outcome.steps == LIMIT
    outcome = run_episode(FakeWorld(), FakePolicy(), key(4), limit=16).outcome
    assert (outcome.status, outcome.steps, outcome.scene_context["limit"]) == ("failure", 16, "16")
    assert run_episode(FakeWorld(), FakePolicy(), key(4), limit=17).outcome.status == "success"
    with pytest.raises(ValueError, match="limit must be at least one step; got 0"):
        run_episode(FakeWorld(), FakePolicy(), key(4), limit=0)


def test_the_policy_is_asked_again_after_n_action_steps_and_frames_are_made_only_then():
    world = FakeWorld()
    trace = run_episode(world, FakePolicy(n_action_steps=5), key(1)).trace
    assert trace.query_steps == world.rendered == [0, 5, 10, 15, 20]
    assert [int(frame[0, 0, 0]) for frame in trace.frames] == trace.query_steps
    assert trace.frames[0].shape == (4, 8, 3)
    assert len(trace.quantiles) == 5


def test_a_chunk_shorter_than_n_action_steps_is_executed_whole():
    trace = run_episode(FakeWorld(), FakePolicy(n_action_steps=50), key(1)).trace
    assert trace.query_steps == [0, 8, 16]


def test_no_frame_is_rendered_for_a_policy_that_looks_at_none():
    world = FakeWorld()
    run_episode(world, FakePolicy(needs_images=False), key(1))
    assert world.rendered == []


def test_the_last_step_before_the_limit_renders_nothing():
    class Watched(FakeWorld):
        asked: tuple[int, ...] = ()

        def step(self, action, *, observe=False):
            super().step(action, observe=observe)
            self.asked += (self.count,) * observe

    world = Watched()
    run_episode(world, FakePolicy(n_action_steps=5), key(1), limit=15)
    assert world.asked == (5, 10)


def test_an_exception_is_an_error_with_its_traceback_and_never_a_failure():
    outcome = run_episode(FakeWorld("raises"), FakePolicy(), key(3, "raises")).outcome
    assert (outcome.status, outcome.steps) == ("error", 7)
    assert "FloatingPointError: the simulator exploded" in outcome.traceback
    assert "fake_worlds.py" in outcome.traceback


def test_a_policy_that_answers_nonsense_is_an_error():
    class Nonsense(FakePolicy):
        def act(self, observations, memories):
            return [Chunk(np.full((8, 7), np.nan))]

    outcome = run_episode(FakeWorld(), Nonsense(), key(0)).outcome
    assert outcome.status == "error"
    assert "ValueError: actions must be finite" in outcome.traceback
    with pytest.raises(ValueError, match=r"actions must have axes \(h, d\)"):
        Chunk(np.zeros(7))


def test_eight_worlds_in_step_equal_eight_alone(tmp_path):
    keys = [key(index, "raises") for index in range(8)]
    folders = [tmp_path / "together", tmp_path / "alone"]
    for folder in folders:
        folder.mkdir()
    together = run_episodes([FakeWorld("raises", folder=folders[0]) for _ in keys], FakePolicy(), keys)
    alone = [run_episode(FakeWorld("raises", folder=folders[1]), FakePolicy(), k) for k in keys]
    assert [r.outcome.status for r in together].count("error") == 2
    for a, b in zip(together, alone, strict=True):
        assert comparable(a) == comparable(b)
        assert np.array_equal(a.trace.actions, b.trace.actions)


def test_videos_run_as_fast_as_the_robot_moved_however_far_chunks_are_followed():
    """At 20 Hz: five steps per query are 4 frames per second, 3 queries in 12 steps are 5."""

    class Cut(FakePolicy):
        def act(self, observations, memories):
            (whole,) = super().act(observations, memories)
            self.asked = getattr(self, "asked", -1) + 1
            return [Chunk(whole.actions[: (3, 5, 4)[self.asked % 3]])]

    assert run_episode(FakeWorld(), FakePolicy(n_action_steps=5), key(1)).trace.frame_rate == 4
    cut = run_episode(FakeWorld(), Cut(n_action_steps=8), key(1), limit=13).trace
    assert cut.query_steps == [0, 3, 8, 12]
    assert cut.frame_rate == 5


def test_what_a_world_notes_goes_into_the_side_file():
    class Noting(FakeWorld):
        def notes(self):
            return {"count": np.array(self.count), "actions": np.array("never in place of the episode's own")}

    arrays = run_episode(Noting(), FakePolicy(), key(4)).trace.arrays()
    assert arrays["count"] == 17
    assert arrays["actions"].shape == (17, 7)
    assert "count" not in run_episode(FakeWorld(), FakePolicy(), key(4)).trace.arrays()
