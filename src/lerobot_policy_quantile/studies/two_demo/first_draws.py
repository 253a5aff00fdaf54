"""Draws at the shared start, and what a replan costs: both on trained policies, without a simulator (M37, M9).

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

from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import Expert, QuantileHead
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.evaluation.side_files import write_atomically
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.cache import FILE, LessonCache, load_cache, processed
from lerobot_policy_quantile.studies.two_demo.demos import load_lesson
from lerobot_policy_quantile.studies.two_demo.settings import Settings
from lerobot_policy_quantile.studies.two_demo.stages import Stamp, write_json
from lerobot_policy_quantile.studies.two_demo.start import Fresh, base_fingerprint
from lerobot_policy_quantile.studies.two_demo.training import made_from

REPEATS = 20
DRAW_SEED = 500_000
_ROWS = 100


def stamp_of(folder: Path, settings: Settings, base: str) -> Stamp:
    """What draws and costs depend on."""
    inputs = {"draws": settings.draws, "updates": settings.updates, "base": base_fingerprint(base)}
    return Stamp(folder, "first_draws", inputs)


@torch.no_grad()
def draw_and_time(arm: Path, training_seed: int, settings: Settings, base: str) -> None:
    """Write first_draws.npz and cost.json of one training run."""
    torch.set_num_threads(1)
    folder = records.seed_folder(arm, training_seed)
    heads = {head: _load(folder / records.POLICIES / head) for head in records.HEADS}
    lesson = load_lesson(arm)
    instruction, demonstrations = lesson.instruction, lesson.demonstrations
    cache = load_cache(arm / FILE, made_from(heads["quantile"], base, lesson))
    _write_arrays(folder / records.DRAWS, _draws(heads, cache, len(demonstrations[0].actions), settings.draws))
    start = torch.zeros(1, dtype=torch.long)
    costs = time_replans(heads, lambda fresh: processed(fresh, instruction, demonstrations, start))
    write_json(folder / records.COST, costs)
    stamp_of(folder, settings, base).write()


def _load(folder: Path) -> Fresh:
    from lerobot.policies.factory import make_pre_post_processors

    policy = QuantilePolicy.from_pretrained(folder).optimize()
    before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    return Fresh(policy, before, after)


def _draws(heads: dict[str, Fresh], cache: LessonCache, second: int, count: int) -> dict[str, Any]:
    """All heads' draws from the same episodes; sample 0 is the shared start, `second` the other demonstration's."""
    after = heads["quantile"].after
    arrays: dict[str, Any] = {}
    for head, fresh in heads.items():
        drawn = torch.cat([_draw(fresh.policy, cache, n, min(_ROWS, count - n)) for n in range(0, count, _ROWS)])
        arrays[f"{head}.normalised"] = drawn.numpy()
        arrays[f"{head}.actions"] = after(drawn).numpy()
    targets = cache.target[[0, second]]
    law = _start_law(heads["quantile"].policy, cache)
    arrays["demonstrations_normalised"], arrays["demonstrations"] = targets.numpy(), after(targets).numpy()
    arrays["levels"] = law.levels.numpy()
    arrays["quantiles"] = after(law.quantiles[0].transpose(-1, -2)).transpose(-1, -2).numpy()
    return arrays


def _start_law(policy: QuantilePolicy, cache: LessonCache) -> QuantileFunction:
    """The quantile head's prediction at the shared start."""
    expert = policy.backbone.expert(cache.rows(torch.zeros(1, dtype=torch.long)))
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
    expert = policy.backbone.expert(cache.rows(torch.zeros(rows, dtype=torch.long)), episodes=episodes)
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
                began = time.perf_counter()
                prefix = fresh.policy.prefix(observe(fresh))
                seen = time.perf_counter()
                fresh.policy.decide(prefix, episodes_from_seeds([repeat]))
                decided = time.perf_counter()
            passes[head] = fresh.policy.backbone.expert_calls
            if repeat:  # the first one warms up
                spent[head].append((seen - began, sum(expert), decided - seen - sum(expert)))
    return [_cost(head, passes[head], spent[head]) for head in heads]


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
            began = time.perf_counter()
            features = expert(actions, noise_time)
            seconds.append(time.perf_counter() - began)
            return features

        return call

    policy.backbone.expert = timed  # type: ignore[assignment, method-assign]
    try:
        yield seconds
    finally:
        del policy.backbone.expert
