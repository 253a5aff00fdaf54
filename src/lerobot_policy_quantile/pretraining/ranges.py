"""Normalisation ranges of states and actions: the data's quantiles, but not narrower than a minimum."""

import numpy as np
from lerobot.utils.constants import ACTION, OBS_STATE

from lerobot_policy_quantile.policy.normalisation import normalisation_range
from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.pretraining.suite_samples import SuiteSamples
from lerobot_policy_quantile.scenes.contract import Array

STATE_RANGE = np.array([0.4, 0.6, 0.3, 0.3, 0.3, 0.3, 0.044, 0.044])
"""Smallest range of a state value, so that a value that hardly changes does not fill all 256 bins."""

ACTION_RANGE = np.array([0.6, 0.6, 0.6, 0.04, 0.04, 0.04, 2.0])
"""The same for actions. The expert never rotates the hand; a small range keeps the policy's rotations small."""


def widened(low: Array, high: Array, least: Array) -> dict[str, Array]:
    """q01 and q99 moved apart where they are nearer than `least`."""
    middle, half = (low + high) / 2, np.maximum(high - low, least) / 2
    return {"q01": (middle - half).astype(np.float32), "q99": (middle + half).astype(np.float32)}


def statistics_of(samples: Samples, suites: SuiteSamples | None = None) -> dict[str, dict[str, Array]]:
    """Statistics in the form that the policy's processors take; with suites, ranges that hold those of each."""
    sources = [(samples.state, samples.actions[samples.valid])]
    if suites is not None:
        for rows in (suites.suite == suite for suite in np.unique(suites.suite)):
            sources.append((suites.state[rows], suites.actions[rows][suites.valid[rows]]))
    state, actions = ([normalisation_range(source[kind]) for source in sources] for kind in range(2))
    return {OBS_STATE: _around(state, STATE_RANGE), ACTION: _around(actions, ACTION_RANGE)}


def _around(ranges: list[dict[str, Array]], least: Array) -> dict[str, Array]:
    low, high = np.min([one["q01"] for one in ranges], axis=0), np.max([one["q99"] for one in ranges], axis=0)
    return widened(low, high, least)
