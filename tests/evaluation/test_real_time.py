"""The closed loop with answers that take time: which action is executed at which step, and what is written down."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from lerobot_policy_quantile.contract import Chunk, LeftOver, RealTime
from lerobot_policy_quantile.evaluation.rollout import run_episode
from tests.evaluation.test_rollout import key
from tests.support.fake_worlds import LIMIT, FakePolicy, FakeWorld

H = 8


@dataclass
class CountingPolicy(FakePolicy):
    """Action h of the chunk asked for at step s is 100 s + h in every coordinate, the gripper s + 1."""

    n_action_steps: int = 3
    real_time: RealTime = RealTime(0, "swap")
    grippers: tuple[int, ...] = (6,)
    asked: list[LeftOver | None] = field(default_factory=list)

    def begin(self, seed, world, decoder):
        return world

    def act(self, observations, memories):
        chunks = []
        for observation, world in zip(observations, memories, strict=True):
            self.asked.append(observation.left_over)
            actions = np.tile(100.0 * world.count + np.arange(H)[:, None], (1, 7))
            actions[:, 6] = world.count + 1
            chunks.append(Chunk(actions, surprise=None if observation.left_over is None else 0.5))
        return chunks


def run(delay: int, handover: str, steps: int = 3):
    policy = CountingPolicy(n_action_steps=steps, real_time=RealTime(delay, handover))
    world = FakeWorld()
    rollout = run_episode(world, policy, key(1))
    assert rollout.outcome.status == "failure", rollout.outcome.traceback
    assert rollout.outcome.steps == LIMIT
    assert world.rendered == rollout.trace.query_steps
    return policy, rollout.trace, [int(action[0]) for action in rollout.trace.actions]


def test_without_delay_swapping_is_the_plain_loop():
    _, trace, executed = run(0, "swap")
    assert executed[:7] == [0, 1, 2, 300, 301, 302, 600]
    assert trace.query_steps == list(range(0, LIMIT, 3))
    assert trace.seams["standing"] == 0


def test_the_old_chunk_goes_on_during_the_delay_and_the_new_one_begins_where_it_has_come_to():
    """Asked at 3 (period), there at 5: steps 3 and 4 are the old chunk's, then the new one's third action."""
    _, trace, executed = run(2, "swap")
    assert executed[:9] == [0, 1, 2, 3, 4, 302, 303, 304, 602]
    assert trace.query_steps[:3] == [0, 3, 6]
    seams = trace.seams
    assert seams["seam_steps"][:2].tolist() == [5, 8]
    np.testing.assert_allclose(seams["seam_jumps"][0], [302 - 5] * 6 + [3])


def test_pausing_stands_still_with_the_hand_as_it_is_and_executes_the_chunk_from_its_first_step():
    _, trace, executed = run(2, "pause")
    assert executed[:10] == [0, 1, 2, 0, 0, 300, 301, 302, 0, 0]
    assert [int(action[6]) for action in trace.actions[:8]] == [1, 1, 1, 1, 1, 4, 4, 4]
    assert trace.seams["standing"] == 9
    np.testing.assert_allclose(trace.seams["seam_jumps"][0, 0], 300 - 3)


def test_ensembling_is_acts_weighted_mean_of_all_chunks_that_hold_the_step():
    """At step 5: 5 of the first chunk, 302 of the second; the older one counts more."""
    _, trace, _ = run(2, "ensemble")
    weights = np.exp(-0.01 * np.arange(2))
    np.testing.assert_allclose(trace.actions[5][0], (5 + 302 * weights[1]) / weights.sum())
    np.testing.assert_allclose(trace.actions[4][0], 4)


def test_handing_over_tells_the_policy_what_is_left_and_what_will_be_gone():
    policy, trace, executed = run(2, "rank")
    assert policy.asked[0] is None
    assert policy.asked[1].actions[:, 0].tolist() == [3, 4, 5, 6, 7]
    assert policy.asked[1].delay == 2
    assert executed[:6] == [0, 1, 2, 3, 4, 302]
    surprises = trace.seams["surprises"]
    assert np.isnan(surprises[0])
    assert (surprises[1:] == 0.5).all()


@pytest.mark.parametrize("handover", ["swap", "rank", "ensemble"])
def test_a_delay_beyond_half_a_chunk_leaves_the_robot_standing(handover):
    """Eight actions, delay 5: asked at 5, there at 10; steps 8 and 9 have no action. One seam has no old action."""
    _, trace, executed = run(5, handover)
    assert executed[:11] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 505]
    assert trace.query_steps[:3] == [0, 5, 10]
    assert trace.seams["standing"] > 0
    assert 10 not in trace.seams["seam_steps"]


def test_asking_at_the_step_at_which_an_answer_arrives_hands_over_the_new_chunk():
    """Delay 4, period 3: asked at 4, there at 8, where the next is asked for."""
    policy, trace, _ = run(4, "rank")
    assert trace.query_steps[:3] == [0, 4, 8]
    assert policy.asked[2].actions[:, 0].tolist() == [404, 405, 406, 407]


def test_the_rule_is_checked():
    with pytest.raises(ValueError, match="handover must be one of pause, swap"):
        RealTime(2, "jump")
    with pytest.raises(ValueError, match="delay must be 0 or more steps; got -1"):
        RealTime(-1, "swap")
