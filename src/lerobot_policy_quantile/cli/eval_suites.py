"""`qhead eval --suite`: benchmarks, what they cost, and their dry run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.adapters.suites import SuiteEntry
    from lerobot_policy_quantile.evaluation.engine import Halt
    from lerobot_policy_quantile.evaluation.journal import Row
    from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
    from lerobot_policy_quantile.evaluation.tables.facts import Facts

_PROBE_STEPS = 20


@dataclass(frozen=True)
class Choice:
    """What --suite and the options around it say."""

    suite: str
    protocol: str
    episodes: int | None
    categories: list[str]
    sample: int | None
    seed: int

    def entries(self) -> list["SuiteEntry"]:
        """The tasks that were asked for, those that cannot be run included."""
        from lerobot_policy_quantile.adapters.suites import entries_of, parse_categories, parse_suites
        from lerobot_policy_quantile.evaluation.tables.benchmarks import LIMITS

        if self.protocol not in LIMITS:
            raise ValueError(f"--protocol must be one of {', '.join(LIMITS)}; got {self.protocol!r}")
        wanted = parse_categories(self.categories)
        found = [entry for scene in parse_suites(self.suite) for entry in entries_of(scene)]
        return [entry for entry in found if not wanted or entry.category in wanted]

    def facts(self, entries: Sequence["SuiteEntry"]) -> "Facts":
        """The whole benchmark's size, whatever part of it runs."""
        from lerobot_policy_quantile.adapters.suites import default_episodes, entries_of, facts_of

        scenes = dict.fromkeys(entry.scene for entry in entries)
        whole = [entry for scene in scenes for entry in entries_of(scene)] if self.categories else entries
        return facts_of(whole, default_episodes(self.protocol))

    def plan(self, entries: Sequence["SuiteEntry"], lines: Sequence[tuple[str, str]], *, mixed: bool) -> "Plan":
        """Every episode, or the sample; `mixed` lets a run that ends early have seen a part of everything."""
        from lerobot_policy_quantile.adapters.suites import default_episodes, keys_of
        from lerobot_policy_quantile.evaluation.cost import shuffled, stratified
        from lerobot_policy_quantile.evaluation.plan import Plan

        count = default_episodes(self.protocol) if self.episodes is None else self.episodes
        strata = {(e.scene, e.task): (e.scene, e.task if e.category is None else e.category) for e in entries}
        keys = keys_of(entries, lines[:1], count=count, seed=self.seed)
        if self.sample is not None:
            keys = stratified(keys, lambda key: strata[key.scene, key.task], self.sample)
        decoders: dict[str, list[str]] = {}
        for policy, decoder in lines:
            decoders.setdefault(policy, []).append(decoder)
        # One policy after the other, so that whoever runs them loads each model once.
        keys = [_for(key, policy, decoder) for policy, own in decoders.items() for key in keys for decoder in own]
        if not keys:
            raise ValueError("no task of the suite can be run here; --dry-run says why")
        return Plan(tuple(shuffled(keys) if mixed or self.sample is not None else keys))


def _for(key: "EpisodeKey", policy: str, decoder: str) -> "EpisodeKey":
    from dataclasses import replace

    return replace(key, policy=policy, decoder=decoder)


def print_listing(entries: Sequence["SuiteEntry"]) -> None:
    """One line per task, then the counts."""
    from lerobot_policy_quantile.adapters.suites import summary_lines

    for entry in entries:
        typer.echo(
            "\t".join((entry.scene, str(entry.task), entry.category or "-", entry.reason or "available", entry.name))
        )
    for line in summary_lines(entries):
        typer.echo(line)


def halts_of(budget: str | None, until: float | None, plan: "Plan", rows: Sequence["Row"]) -> list["Halt"]:
    """What --budget and --until say."""
    from lerobot_policy_quantile.evaluation.cost import Budget, NarrowEnough, parse_duration

    found: list[Halt] = []
    if budget is not None:
        found.append(Budget(parse_duration("--budget", budget)))
    if until is not None:
        if not 0 < until < 100:
            raise ValueError(f"--until must be a width in points between 0 and 100; got {until:g}")
        lines = frozenset((key.policy, key.decoder) for key in plan)
        found.append(NarrowEnough(until / 100, lines).count(rows))
    return found


def estimate(plan: "Plan", rows: Sequence["Row"], factory: "SceneFactory", workers: int) -> str:
    """How long the pending episodes will take, in words."""
    from lerobot_policy_quantile.evaluation.cost import estimate_seconds, spell_duration
    from lerobot_policy_quantile.evaluation.tables.benchmarks import limit_of

    settled = {row.key for row in rows}
    pending = [key for key in plan if key not in settled]
    if not pending:
        return "nothing left to run"
    measured = estimate_seconds(pending, rows, {}, workers)
    if measured is not None:
        return f"{len(pending)} episodes, about {spell_duration(measured)} by those already run"
    reset, step = _probe(factory, pending[0])
    limits = {k.scene: factory.limit or limit_of(k.scene, factory.protocol or "paper") or 500 for k in pending}
    bound = estimate_seconds(pending, rows, {s: reset + n * step for s, n in limits.items()}, workers)
    return (
        f"{len(pending)} episodes, at most about {spell_duration(bound or 0)} of simulation; the policy's time is extra"
    )


def _probe(factory: "SceneFactory", key: "EpisodeKey") -> tuple[float, float]:
    """Seconds of a reset and of a step, measured on the first episode's world."""
    import numpy as np

    scene = factory.scene(key.scene)
    try:
        began = time.perf_counter()
        scene.reset(key.task, key.index, key.seed)
        reset = time.perf_counter() - began
        for _ in range(_PROBE_STEPS):
            scene.step(np.zeros(7))
        return reset, (time.perf_counter() - began - reset) / _PROBE_STEPS
    finally:
        scene.close()
