"""How far chunks are followed, as a setting of the closed loop."""

from types import MappingProxyType, SimpleNamespace

import pytest

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.adapters.replanning import FixedSteps, ReplannedPolicy, parse_replan, require_replannable
from lerobot_policy_quantile.contract import UnusablePolicyError
from lerobot_policy_quantile.evaluation.journal import Journal, JournalError
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.serving.spread import Replanning


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("fixed:10", FixedSteps(10)),
        ("adaptive:0.08", Replanning(0.08)),
        ("adaptive:1e-2,least=2", Replanning(0.01, 2)),
    ],
)
def test_a_rule_is_read_from_its_text(text, rule):
    assert parse_replan(text) == rule


@pytest.mark.parametrize(
    "text", ["10", "fixed:", "fixed:0", "adaptive", "adaptive:0", "adaptive:-1", "adaptive:1,2", "adaptive:1,least=0"]
)
def test_a_text_that_is_no_rule_is_refused(text):
    with pytest.raises(ValueError, match=r"must (read like fixed:10|be|lie)"):
        parse_replan(text)


@pytest.mark.parametrize("source", ["expert:left", "ws://host:8000"])
def test_only_policy_folders_can_be_replanned(source):
    require_replannable(None, {"a": source})
    with pytest.raises(ValueError, match="--replan is for policy folders; got 'a'"):
        require_replannable("fixed:2", {"a": source})


class Small:
    config = SimpleNamespace(chunk_size=10)
    context = MappingProxyType({"policy": "small"})
    levels, needs_images = (), True


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (FixedSteps(11), r"steps must lie in 1\.\.10, the policy's chunk; got 11"),
        (Replanning(0.1), "adaptive replanning needs a policy that predicts quantiles"),
    ],
)
def test_a_rule_must_fit_the_policy(rule, why):
    with pytest.raises(UnusablePolicyError, match=why):
        ReplannedPolicy(Small(), rule)


def test_rows_of_another_rule_are_refused(tmp_path):
    policy = SceneFactory({"base": str(base_checkpoint())}, replan="adaptive:0.08,least=2").policy("base")
    assert policy.n_action_steps == 10
    context = dict(policy.context)
    assert context.pop("replanning") == "Replanning(threshold=0.08, minimum=2, maximum=None)"
    assert context["n_action_steps"] == "3", "as it was saved"
    key = EpisodeKey("embedded", 0, 0, 0, "base", "own")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.record(Outcome(key, "success", policy_context=context))
        with pytest.raises(JournalError, match="replanning: journal has None, this run has 'Replanning"):
            journal.record(Outcome(key, "success", policy_context=policy.context))
