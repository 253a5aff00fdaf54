"""How long a run will take, estimated before it starts."""

import time
from collections.abc import Sequence

import numpy as np

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.evaluation.cost import estimate_seconds, spell_duration
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.benchmarks import limit_of
from lerobot_policy_quantile.scenes.contract import ACTION_DIM

_PROBE_STEPS = 20
_UNKNOWN_LIMIT = 500
"""Steps per episode assumed for a scene without a protocol's limit."""


def estimate(pending: Sequence[EpisodeKey], rows: Sequence[Row], factory: SceneFactory, workers: int) -> str:
    """Time for the pending episodes: from those already run, or else a bound from a few steps of the first scene."""
    if not pending:
        return "nothing left to run"
    measured = estimate_seconds(pending, rows, {}, workers)
    if measured is not None:
        return f"{len(pending)} episodes, about {spell_duration(measured)} by those already run"
    reset, step = _probe(factory, pending[0])
    limits = {
        key.scene: factory.limit or limit_of(key.scene, factory.protocol or "paper") or _UNKNOWN_LIMIT
        for key in pending
    }
    bound = estimate_seconds(pending, rows, {s: reset + n * step for s, n in limits.items()}, workers)
    return (
        f"{len(pending)} episodes, at most about {spell_duration(bound or 0)} of simulation; the policy's time is extra"
    )


def _probe(factory: SceneFactory, key: EpisodeKey) -> tuple[float, float]:
    """Seconds of a reset and of a step, measured in the key's scene."""
    scene = factory.scene(key.scene)
    try:
        began = time.perf_counter()
        scene.reset(key.task, key.index, key.seed)
        reset = time.perf_counter() - began
        for _ in range(_PROBE_STEPS):
            scene.step(np.zeros(ACTION_DIM))
        return reset, (time.perf_counter() - began - reset) / _PROBE_STEPS
    finally:
        scene.close()
