"""Draws at the shared start, and what a replan costs: both on trained policies, without a simulator (App. B.3).

Axes: n draw, h chunk step, d action dim, k level.
"""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import Expert, QuantileHead
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.cache import LessonCache, open_cache, processed
from lerobot_policy_quantile.studies.two_demo.demos import load_lesson
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings
from lerobot_policy_quantile.studies.two_demo.start import Fresh, base_fingerprint, only_float32
from lerobot_policy_quantile.studies.two_demo.training import made_from
from lerobot_policy_quantile.util.files import write_atomically, write_json
from lerobot_policy_quantile.util.stamps import Stamp

REPEATS = 20
DRAW_SEED = 500_000
_ROWS = 100


def stamp_of(folder: Path, settings: StudySettings, base: str) -> Stamp:
    """What draws and costs depend on."""
    inputs = {"draws": settings.draws, "updates": settings.updates, "base": base_fingerprint(base)}
    return Stamp(folder, "first_draws", inputs)


@torch.no_grad()
def draw_and_time(arm: Path, training_seed: int, settings: StudySettings, base: str) -> None:
    """Write first_draws.npz and cost.json of one training run."""
    torch.set_num_threads(1)
    only_float32()
    folder = records.seed_folder(arm, training_seed)
    heads = _load_heads(folder / records.POLICIES, settings.device)
    lesson = load_lesson(arm)
    instruction, demonstrations = lesson.instruction, lesson.demonstrations
    cache = open_cache(arm, heads["quantile"], lesson, made_from(heads["quantile"], base, lesson))
    _write_arrays(folder / records.DRAWS, _draws(heads, cache, len(demonstrations[0].actions), settings.draws))
    start = torch.zeros(1, dtype=torch.long)
    costs = time_replans(heads, lambda fresh: processed(fresh, instruction, demonstrations, start))
    write_json(folder / records.COST, costs)
    stamp_of(folder, settings, base).write()


def _load_heads(folder: Path, device: str) -> dict[str, Fresh]:
    """All heads on one frozen VLM, which is the same in every one of them: a device need not hold it four times."""
    from lerobot.policies.factory import make_pre_post_processors

    heads: dict[str, Fresh] = {}
    for head in records.HEADS:
        config: Any = QuantileConfig.from_pretrained(folder / head)
        config.device = "cpu"
        policy = QuantilePolicy.from_pretrained(folder / head, config=config)
        config.device = device
        for other in heads.values():
            policy.backbone.paligemma_with_expert.paligemma = other.policy.backbone.paligemma_with_expert.paligemma
        before, after = make_pre_post_processors(
            config, pretrained_path=str(folder / head), preprocessor_overrides={"device_processor": {"device": device}}
        )
        heads[head] = Fresh(policy.to(device), before, after)
    for fresh in heads.values():
        fresh.policy.optimize()
    return heads


def _draws(heads: dict[str, Fresh], cache: LessonCache, second: int, count: int) -> dict[str, Any]:
    """All heads' draws from the same episodes; sample 0 is the shared start, `second` the other demonstration's."""
    after = heads["quantile"].after
    arrays: dict[str, Any] = {}
    for head, fresh in heads.items():
        drawn = torch.cat([_draw(fresh.policy, cache, n, min(_ROWS, count - n)) for n in range(0, count, _ROWS)]).cpu()
        arrays[f"{head}.normalised"] = drawn.numpy()
        arrays[f"{head}.actions"] = after(drawn).numpy()
    targets = cache.target[[0, second]]
    law = _start_law(heads["quantile"].policy, cache)
    arrays["demonstrations_normalised"], arrays["demonstrations"] = targets.numpy(), after(targets).numpy()
    arrays["levels"] = law.levels.cpu().numpy()
    arrays["quantiles"] = after(law.quantiles[0].cpu().transpose(-1, -2)).transpose(-1, -2).numpy()
    return arrays


def _start_law(policy: QuantilePolicy, cache: LessonCache) -> QuantileFunction:
    """The quantile head's prediction at the shared start."""
    expert = policy.backbone.expert(cache.rows(torch.zeros(1, dtype=torch.long), policy.noise_key.device))
    law = policy.head.predict(expert, episodes_from_seeds([0])).quantiles
    if law is None:
        raise ValueError(f"head must be quantile to predict a law; got {policy.config.head}")
    return law


def _draw(policy: QuantilePolicy, cache: LessonCache, first: int, rows: int) -> Tensor:
    """Chunks in normalised units. The quantile head runs once: one uniform rank per draw for all motion coordinates."""
    episodes = episodes_from_seeds([DRAW_SEED + first + row for row in range(rows)])
    if isinstance(policy.head, QuantileHead):
        law = _start_law(policy, cache)
        wide = QuantileFunction(law.levels, law.quantiles.expand(rows, -1, -1, -1))
        return policy.choose_decoder("shared").decode(wide, episodes).actions
    prefix = cache.rows(torch.zeros(rows, dtype=torch.long), policy.noise_key.device)
    expert = policy.backbone.expert(prefix, episodes=episodes)
    return policy.head.predict(expert, episodes).actions


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def time_replans(heads: dict[str, Fresh], observe: Callable[[Fresh], dict[str, Any]]) -> list[dict[str, Any]]:
    """Milliseconds and expert passes of one replan per head, repeats interleaved: a busy machine slows all alike."""
    spent: dict[str, list[tuple[float, float, float]]] = {head: [] for head in heads}
    passes = dict.fromkeys(heads, 0)
    for repeat in range(REPEATS + 1):
        for head, fresh in heads.items():
            fresh.policy.backbone.expert_calls = 0
            with _expert_clock(fresh.policy) as expert:
                began = _now()
                prefix = fresh.policy.prefix(observe(fresh))
                seen = _now()
                fresh.policy.decide(prefix, episodes_from_seeds([repeat]))
                decided = _now()
            passes[head] = fresh.policy.backbone.expert_calls
            if repeat:  # the first one warms up
                spent[head].append((seen - began, sum(expert), decided - seen - sum(expert)))
    return [_cost(head, passes[head], spent[head]) for head in heads]


def _now() -> float:
    """The time when everything asked of a GPU has been done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _cost(head: str, passes: int, spent: list[tuple[float, float, float]]) -> dict[str, Any]:
    prefix, expert, decode = (1000 * median(part) for part in zip(*spent, strict=True))
    times = {"prefix_ms": prefix, "expert_ms": expert, "decode_ms": decode}
    return {"head": head, "expert_passes": passes, **times, "repeats": len(spent)}


@contextmanager
def _expert_clock(policy: QuantilePolicy) -> Iterator[list[float]]:
    """Seconds of every expert pass made inside."""
    seconds: list[float] = []
    make = policy.backbone.expert

    def timed(*given: Any, **source: Any) -> Expert:
        expert = make(*given, **source)

        def call(actions: Tensor, noise_time: Tensor) -> Tensor:
            began = _now()
            features = expert(actions, noise_time)
            seconds.append(_now() - began)
            return features

        return call

    policy.backbone.expert = timed  # type: ignore[assignment, method-assign]
    try:
        yield seconds
    finally:
        del policy.backbone.expert
