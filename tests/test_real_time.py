"""LeRobot's real-time chunking with the policy: a chunk takes over from the rest of the last one."""

import json
import logging

import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature, RTCAttentionSchedule
from lerobot.policies.rtc import RTCConfig, RTCProcessor
from lerobot.rollout.inference.rtc import supports_rtc_inference
from torch import Tensor

from lerobot_policy_quantile.core.decoders import Handover
from lerobot_policy_quantile.core.decoders.handover import LEROBOT_SCHEDULES, handover_weights
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.policy.real_time import relaxation
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.command_line import BIN, run
from tests.support.datasets import TASK
from tests.support.policies import STATS, make_batch, make_policy

DELAY = 3


@pytest.fixture(scope="module")
def policy() -> QuantilePolicy:
    return make_policy(decoder="independent").eval()


@pytest.fixture(scope="module")
def flow() -> QuantilePolicy:
    return make_policy(head="flow").eval()


def ask(policy: QuantilePolicy, *, rows: int = 1, seed: int = 0, **real_time) -> Tensor:
    policy.reset(seeds=list(range(rows)))
    return policy.predict_action_chunk(make_batch(policy.config, rows, seed=seed), **real_time)


@pytest.mark.parametrize(
    ("head", "able"), [("quantile", True), ("flow", True), ("l1", False), ("l2", False), ("one_step_flow", False)]
)
def test_heads_with_a_law_or_a_flow_support_rtc(head, able):
    assert supports_rtc_inference(make_policy(head=head)) == able


def test_the_first_steps_are_the_left_over_and_the_last_are_the_policys_own(policy):
    own, old = ask(policy), ask(policy, seed=5)[0, 2:]
    chunk = ask(policy, inference_delay=DELAY, prev_chunk_left_over=old, execution_horizon=len(old))
    assert torch.equal(chunk[0, :DELAY], old[:DELAY])
    assert torch.equal(chunk[0, len(old) :], own[0, len(old) :])
    between = (chunk - own)[0, DELAY : len(old), :2]
    assert (between != 0).any()


def test_a_disabled_configuration_hands_nothing_over(policy):
    old = ask(policy, seed=5)[0, 2:]
    policy.config.rtc_config = RTCConfig(enabled=False)
    try:
        assert torch.equal(ask(policy, inference_delay=DELAY, prev_chunk_left_over=old), ask(policy))
    finally:
        policy.config.rtc_config = None


def test_schedule_and_horizon_are_lerobots(policy):
    own, old = ask(policy), ask(policy, seed=5)[0]
    policy.config.rtc_config = RTCConfig(prefix_attention_schedule=RTCAttentionSchedule.ONES, execution_horizon=6)
    try:
        chunk = ask(policy, inference_delay=DELAY, prev_chunk_left_over=old)
    finally:
        policy.config.rtc_config = None
    assert torch.equal(chunk[0, 6:], own[0, 6:])
    assert not torch.equal(chunk[0, 5, :2], own[0, 5, :2])


def test_without_a_configuration_the_left_over_fades_and_guidance_is_lerobots(policy, flow):
    assert relaxation(policy.config) == ("fade", policy.config.chunk_size)
    assert relaxation(flow.config) == ("linear", RTCConfig().execution_horizon)
    policy.config.rtc_config = RTCConfig(prefix_attention_schedule=RTCAttentionSchedule.EXP, execution_horizon=4)
    try:
        assert relaxation(policy.config) == ("exp", 4)
    finally:
        policy.config.rtc_config = None


def test_zeros_that_lerobot_fills_up_with_are_no_left_over(policy):
    old = ask(policy, seed=5)[0, 4:]
    filled = torch.cat([old, torch.zeros(4, 3)])
    chunks = [ask(policy, inference_delay=DELAY, prev_chunk_left_over=rows) for rows in (old, filled)]
    assert torch.equal(*chunks)
    assert torch.equal(ask(policy, inference_delay=DELAY, prev_chunk_left_over=torch.zeros(10, 3)), ask(policy))


def test_a_delay_beyond_the_chunk_keeps_the_left_over_and_warns(policy, caplog):
    """LeRobot's estimate is the slowest answer so far: after a slow first one it exceeds the chunk for good."""
    old = ask(policy, seed=5)[0, 2:]
    with caplog.at_level(logging.WARNING):
        chunk = ask(policy, inference_delay=31, prev_chunk_left_over=old)
    assert torch.equal(chunk[0, : len(old)], old)
    assert "inference_delay should be below chunk_size = 10; got 31" in caplog.text


@pytest.mark.parametrize(
    ("left_over", "message"),
    [
        (torch.zeros(4, 5), r"prev_chunk_left_over must have shape \(t, 3\) or \(1, t, 3\).*got \(4, 5\)"),
        (torch.zeros(2, 4, 3), r"prev_chunk_left_over must have shape"),
        (torch.full((4, 3), torch.nan), r"prev_chunk_left_over must be finite"),
        (torch.full((4, 3), 90.0), r"left_over must be normalised actions of this policy, within \+-20; got 90"),
    ],
)
def test_a_bad_left_over_is_refused_and_the_episode_has_drawn_nothing(policy, left_over, message):
    expected = ask(policy)
    policy.reset(seeds=[0])
    batch = make_batch(policy.config, 1)
    with pytest.raises(ValueError, match=message):
        policy.predict_action_chunk(batch, inference_delay=0, prev_chunk_left_over=left_over)
    assert torch.equal(policy.predict_action_chunk(batch), expected)


def test_a_point_head_says_that_it_cannot():
    with pytest.raises(ValueError, match=r"prev_chunk_left_over needs head = quantile or flow; this policy's is 'l1'"):
        ask(make_policy(head="l1").eval(), inference_delay=0, prev_chunk_left_over=torch.ones(4, 3))


def test_flow_is_guided_by_lerobots_rtc(flow):
    """The guided chunk is nearer to the left-over where LeRobot's weights are high, and the same without one."""
    own, old = ask(flow), ask(flow, seed=5)[0] + 0.5
    calls = flow.backbone.expert_calls
    chunk = ask(flow, inference_delay=DELAY, prev_chunk_left_over=old)
    assert flow.backbone.expert_calls == calls + 10
    distance = [(x[0, :DELAY] - old[:DELAY]).abs().mean() for x in (own, chunk)]
    assert distance[1] < 0.2 * distance[0]
    assert torch.equal(ask(flow), own)


def test_rows_of_a_flow_batch_are_guided_each_by_its_own(flow):
    _, after = make_quantile_pre_post_processors(flow.config, STATS)
    old = ask(flow, rows=3, seed=5)
    handovers = [Handover(old[0], 2), None, Handover(old[2, 4:], 4)]

    def decoded(rows: list[int]) -> Tensor:
        batch = {k: v[rows] if isinstance(v, Tensor) else v for k, v in make_batch(flow.config, 3).items()}
        episodes = [flow.begin_episode(seed) for seed in rows]
        return flow.predict_decoded(batch, after, episodes=episodes, handovers=[handovers[r] for r in rows]).actions

    together = decoded([0, 1, 2])
    for row in range(3):
        torch.testing.assert_close(decoded([row])[0], together[row], rtol=1e-4, atol=1e-5)


def test_surprise_comes_with_the_chunk():
    policy = make_policy().eval()
    batch = make_batch(policy.config, 2)
    _, after = make_quantile_pre_post_processors(policy.config, STATS)
    inside, far = policy.predict_action_chunk(batch)
    handovers = [Handover(inside), Handover(far + 2)]
    assert policy.predict_decoded(batch, after, handovers=handovers).surprises == pytest.approx(
        # Before training every gap is 0.02: the interval reaches 0.2 to either side and is 0.4 wide.
        [0, (2 - 0.2) / 0.4],
        rel=1e-4,
    )


@pytest.mark.slow
@pytest.mark.parametrize("head", ["quantile", "flow"])
def test_lerobots_rollout_runs_in_real_time(tmp_path, head):
    """Unmodified LeRobot, a simulated robot: chunks are asked for while the arm moves, until it has had its actions."""
    state = PolicyFeature(FeatureType.STATE, (3,))
    cameras = {"observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 32, 32))}
    policy = make_policy(head=head, input_features={"observation.state": state, **cameras})
    policy.save_pretrained(tmp_path / "policy")
    stats = STATS | {"observation.state": {"q01": -torch.ones(3), "q99": torch.ones(3)}}
    for pipeline in make_quantile_pre_post_processors(policy.config, stats):
        pipeline.save_pretrained(tmp_path / "policy")
    text = run(
        BIN / "lerobot-rollout",
        f"--policy.path={tmp_path / 'policy'}",
        "--inference.type=rtc",
        "--robot.type=toy_arm",
        "--robot.discover_packages_path=tests.support.toy_arm",
        f"--robot.journal={tmp_path / 'actions.json'}",
        "--fps=5",
        f"--task={TASK}",
        "--play_sounds=false",
        "--return_to_initial_position=false",
        log=tmp_path / "rollout.log",
    )
    assert len(json.loads((tmp_path / "actions.json").read_text())) == 30
    assert "RTC inference thread started" in text
    assert "RTC inference error" not in text


@pytest.mark.parametrize("schedule", LEROBOT_SCHEDULES)
@pytest.mark.parametrize(("start", "end", "total"), [(0, 10, 10), (4, 10, 10), (4, 6, 10), (8, 6, 10), (3, 12, 10)])
def test_weights_are_lerobots(schedule, start, end, total):
    theirs = RTCProcessor(RTCConfig(prefix_attention_schedule=RTCAttentionSchedule[schedule.upper()]))
    end = min(end, total)
    expected = theirs.get_prefix_weights(start, end, total)
    torch.testing.assert_close(handover_weights(schedule, start, end, total), expected)
