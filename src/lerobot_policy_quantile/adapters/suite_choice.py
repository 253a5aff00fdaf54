"""Which episodes `qhead eval --suite` runs: tasks of a benchmark, all of their episodes or a stratified sample."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import batched

from lerobot_policy_quantile.adapters import suites
from lerobot_policy_quantile.adapters.suites import SuiteEntry
from lerobot_policy_quantile.evaluation.cost import shuffled, stratified
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.tables.benchmarks import LIMITS
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.util.names import require_choice


@dataclass(frozen=True)
class SuiteChoice:
    """The part of a benchmark that is run."""

    suite: str
    """Names separated by commas, such as `libero_spatial,libero_plus`."""
    protocol: str
    episodes: int | None
    """Per task; None: as many as the protocol has."""
    categories: list[str]
    """Of LIBERO-Plus; empty: all."""
    sample: int | None
    """Episodes in all, drawn in proportion from every task or category; None: every episode.

    LIBERO-Plus's instances for training (`scenes/libero/plus_split.py`) are never drawn.
    """
    seed: int
    indices: tuple[int, ...] | None = None
    """Initial states of every task, in place of `episodes`; None: the first ones."""

    def entries(self) -> list[SuiteEntry]:
        """The chosen tasks, including those that cannot be run here."""
        require_choice("--protocol", self.protocol, LIMITS)
        wanted = suites.parse_categories(self.categories)
        found = [entry for scene in suites.parse_suites(self.suite) for entry in suites.entries_of(scene)]
        return [entry for entry in found if not wanted or entry.category in wanted]

    def facts(self, entries: Sequence[SuiteEntry]) -> Facts:
        """Size of the whole benchmark, whatever part of it runs."""
        scenes = dict.fromkeys(entry.scene for entry in entries)
        whole = [entry for scene in scenes for entry in suites.entries_of(scene)] if self.categories else entries
        return suites.facts_of(whole, suites.default_episodes(self.protocol))

    def plan(
        self, entries: Sequence[SuiteEntry], lines: Sequence[tuple[str, str]], *, mixed: bool, models: int = 1
    ) -> Plan:
        """Every episode or the sample, for every (policy, decoder).

        With `models` that a worker keeps, so many policies take turns episode by episode: a simulator that stands
        serves all of them. With `mixed`, episodes come in a fixed random order, so that a run that ends early has
        covered every task.
        """
        count = suites.default_episodes(self.protocol) if self.episodes is None else self.episodes
        if self.sample is not None:
            entries = [entry for entry in entries if not suites.is_for_training(entry)]
        strata = {(e.scene, e.task): (e.scene, e.task if e.category is None else e.category) for e in entries}
        keys = suites.keys_of(entries, lines[:1], count=count, seed=self.seed, indices=self.indices)
        if self.sample is not None:
            keys = stratified(keys, lambda key: strata[key.scene, key.task], self.sample)
        decoders: dict[str, list[str]] = {}
        for policy, decoder in lines:
            decoders.setdefault(policy, []).append(decoder)
        # One group of policies after the other, so that each worker loads each model once.
        keys = [
            replace(key, policy=policy, decoder=decoder)
            for group in batched(decoders.items(), models)
            for key in keys
            for policy, own in group
            for decoder in own
        ]
        if not keys:
            raise ValueError("no task of the suite can be run here; --dry-run lists the reasons")
        mixed = mixed or (self.sample is not None and models == 1)
        return Plan(tuple(shuffled(keys) if mixed else keys))


def listing(entries: Sequence[SuiteEntry]) -> list[str]:
    """One tab-separated line per task (scene, task, category, why not available, name), then the counts."""
    lines = [
        "\t".join((entry.scene, str(entry.task), entry.category or "-", entry.reason or "available", entry.name))
        for entry in entries
    ]
    return lines + suites.summary_lines(entries)
