"""What a replan costs that takes over from the last chunk: expert passes and time, all policies in one run."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lerobot_policy_quantile.adapters.lerobot_folder import load_parts, read_config
from lerobot_policy_quantile.policy.real_time import RTC_HEADS

REPEATS, WARM_UP, DELAY = 30, 3, 4


@dataclass(frozen=True)
class ReplanCost:
    """Of one policy, with what is left over handed in where its head takes that."""

    expert_passes: int
    plain_ms: float
    joined_ms: float | None
    """Median time of a replan; None for a head that does not take over."""


def replan_costs(policies: Mapping[str, str]) -> dict[str, ReplanCost]:
    """Medians over repeats in which the policies take turns, so that a busy moment meets all of them."""
    parts = {name: load_parts(Path(folder), read_config(Path(folder), "cpu")) for name, folder in policies.items()}
    asks: dict[tuple[str, bool], tuple[Any, Any, dict[str, Any]]] = {}
    for name, (policy, before, _, _) in parts.items():
        config = policy.config
        draw = np.random.default_rng(0)
        raw = {
            key: torch.from_numpy(draw.random((1, *feature.shape), dtype=np.float32))
            for key, feature in config.input_features.items()
        }
        batch = before({**raw, "task": ["pick up the can and place it in the basket"]})
        left = policy.predict_action_chunk(batch)[0, DELAY:]
        asks[name, False] = (policy, batch, {})
        if config.head in RTC_HEADS:
            asks[name, True] = (policy, batch, {"inference_delay": DELAY, "prev_chunk_left_over": left})
    times: dict[tuple[str, bool], list[float]] = {ask: [] for ask in asks}
    passes = {}
    for repeat in range(WARM_UP + REPEATS):
        for ask, (policy, batch, joining) in asks.items():
            calls, began = policy.backbone.expert_calls, time.perf_counter()
            policy.predict_action_chunk(batch, **joining)
            if repeat >= WARM_UP:
                times[ask].append(1e3 * (time.perf_counter() - began))
            passes[ask] = policy.backbone.expert_calls - calls
    return {
        name: ReplanCost(
            passes.get((name, True), passes[name, False]),
            statistics.median(times[name, False]),
            statistics.median(times[name, True]) if (name, True) in times else None,
        )
        for name in policies
    }
