"""The study's policies: what its page says of an L1 head straight from a base; which states heads are trained on."""

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import OWN_DECODER, Observation
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.suite_proof import head_folders
from lerobot_policy_quantile.studies.real_time.policies import PLAN, SUITE, SUITES_BASE, TRAINED_ON
from lerobot_policy_quantile.studies.real_time.run import FINE_TUNED_HANDOVERS, FIRST_STATE


@pytest.mark.parametrize("base", ["base", "base_suites"])
def test_an_l1_head_straight_from_a_base_answers_as_the_median_does(base, tmp_path):
    factory = SceneFactory(head_folders(base_checkpoint(base), tmp_path, ("quantile", "l1")), 96)
    draw = np.random.default_rng(0)
    images = {camera: draw.integers(0, 255, (96, 96, 3), dtype=np.uint8) for camera in ("external", "wrist")}
    seen = Observation(images, draw.normal(0, 0.1, 8), "pick up the milk and place it in the basket")
    found = []
    for name, decoder in (("quantile", "median"), ("l1", OWN_DECODER)):
        policy = factory.policy(name)
        (chunk,) = policy.act([seen], [policy.begin(0, None, decoder)])
        found.append(chunk.actions)
    assert np.abs(found[0]).max() > 0.01
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


def test_a_head_straight_from_a_base_is_the_same_policy_whenever_it_is_made(tmp_path):
    folders = {name: head_folders(base_checkpoint(SUITES_BASE), tmp_path / name, ("flow",))["flow"] for name in "ab"}
    factory = SceneFactory(folders, 96)
    first, again = (factory.policy_context(name)["policy"] for name in folders)
    assert first == again


def test_heads_are_fine_tuned_on_other_states_than_those_they_are_judged_on():
    judged = range(FIRST_STATE[SUITE], FIRST_STATE[SUITE] + 10)
    assert not set(TRAINED_ON) & set(judged)
    assert {variant.policy.get("head", "quantile") for variant in PLAN.variants} == set(FINE_TUNED_HANDOVERS)
