"""Policies asked beside the one that acts: it acts as it would alone, and their differences are kept."""

import pickle

import numpy as np

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import Chunk
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.studies.doubt.settings import DRIVER
from lerobot_policy_quantile.studies.doubt.shadows import (
    BESIDE,
    SAMPLES,
    SEEDS,
    NotedScene,
    ShadowedPolicy,
    ShadowFactory,
    shadow_factory,
)
from tests.support.fake_worlds import FakePolicy, FakeWorld

LEVELS = (0.25, 0.5, 0.75)
KEY = EpisodeKey("fake", 0, 1, 0, DRIVER, "median")


class ShiftedPolicy(FakePolicy):
    """Its law's median is its shift, everywhere; its actions are those of `FakePolicy`."""

    levels = LEVELS

    def __init__(self, shift=0.0):
        super().__init__()
        self.shift = shift

    def act(self, observations, memories):
        law = self.shift + np.broadcast_to(np.array([-1.0, 0.0, 1.0]), (8, 7, 3))
        return [Chunk(chunk.actions, law) for chunk in super().act(observations, memories)]


def shadowed(samples=4):
    return ShadowedPolicy(ShiftedPolicy(), [ShiftedPolicy(1.0), ShiftedPolicy(2.0)], ShiftedPolicy(), samples)


def test_the_driver_acts_as_it_would_alone():
    alone = run_episode(FakeWorld(), ShiftedPolicy(), KEY)
    watched = run_episode(NotedScene(FakeWorld()), shadowed(), KEY)
    assert watched.outcome.status == alone.outcome.status == "failure"
    assert watched.outcome.hashes == alone.outcome.hashes


def test_every_replan_has_the_deviation_of_medians_and_of_samples():
    arrays = run_episode(NotedScene(FakeWorld()), shadowed(), KEY).trace.arrays()
    replans = len(arrays["query_steps"])
    assert arrays[SEEDS].shape == arrays[SAMPLES].shape == (replans, 8, 7)
    np.testing.assert_allclose(arrays[SEEDS], 1.0), "medians 0, 1 and 2"
    assert (arrays[SAMPLES] > 0).all(), "samples have noise of their own"


def test_a_new_episode_begins_with_an_empty_notebook():
    world, policy = NotedScene(FakeWorld()), shadowed()
    first, again = (run_episode(world, policy, KEY).trace.arrays() for _ in range(2))
    np.testing.assert_array_equal(first[SAMPLES], again[SAMPLES])


def test_rows_say_who_was_asked_beside():
    assert shadowed().context[BESIDE] == "fake, fake, fake; 4 samples"
    factory = shadow_factory(("a", "b", "c"), "d", samples=8, replan="fixed:5", camera_size=96)
    assert factory.scenes.sources == {DRIVER: "a", "seed 1": "b", "seed 2": "c", "flow": "d"}
    assert factory.seeds == ("seed 1", "seed 2")
    assert pickle.loads(pickle.dumps(factory)) == factory, "it is sent to worker processes"


def test_the_context_is_told_without_loading(monkeypatch):
    monkeypatch.setattr(SceneFactory, "policy_context", lambda self, name: {"policy": self.sources[name]})
    factory = ShadowFactory(SceneFactory({DRIVER: "a", "seed 1": "b", "flow": "d"}), ("seed 1",), "flow", 8)
    assert factory.policy_context(DRIVER) == {"policy": "a", BESIDE: "b, d; 8 samples"}
