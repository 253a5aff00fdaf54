"""What a run may cost: a stratified sample, a budget of time, an interval that is narrow enough, an estimate."""

import hashlib
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.intervals import wilson

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BLOCK = 50
"""Episodes after which a mixed run with several policies moves on to the next one."""

FEWEST = 20
"""Episodes per policy before an interval may stop a run: a handful of equal results looks surer than it is."""


def parse_duration(field: str, text: str) -> float:
    """Seconds in a text such as `90s`, `45m`, `2h`, `1h30m`."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise ValueError(f"{field} must read like 90s, 45m, 2h or 1h30m; got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([smhd])", text))


def spell_duration(seconds: float) -> str:
    """Such as `1 h 24 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def shuffled(keys: Iterable[EpisodeKey]) -> list[EpisodeKey]:
    """A fixed order that mixes tasks, so that a run stopped early has covered a fair part of everything.

    Episodes come in blocks of `BLOCK`. Within a block one policy follows the other, so that a model is loaded once per
    block and comparisons stay paired up to the block in which a run was stopped.
    """
    keys = list(keys)
    rank = {episode: i for i, episode in enumerate(sorted({_episode(key) for key in keys}, key=lambda e: e.digest))}
    places = {key: rank[_episode(key)] for key in keys}
    policies = {name: i for i, name in enumerate(dict.fromkeys(key.policy for key in keys))}
    return sorted(keys, key=lambda key: (places[key] // BLOCK, policies[key.policy], places[key], key))


def _turns(strata: Iterable[Hashable]) -> dict[Hashable, tuple[int, str]]:
    """An order of strata in which suites (the first part of a name) take turns and none of their tasks is preferred."""
    turns: dict[Hashable, tuple[int, str]] = {}
    before: dict[Hashable, int] = {}
    for digest, name in sorted((hashlib.sha256(repr(name).encode()).hexdigest(), name) for name in strata):
        suite = name[0] if isinstance(name, tuple) else name
        turns[name] = before.get(suite, 0), digest
        before[suite] = before.get(suite, 0) + 1
    return turns


def _episode(key: EpisodeKey) -> EpisodeKey:
    return EpisodeKey(key.scene, key.task, key.index, key.seed, "any", "any")


def stratified(keys: Sequence[EpisodeKey], strata: Callable[[EpisodeKey], Hashable], count: int) -> list[EpisodeKey]:
    """About `count` of the keys, every stratum in proportion (largest remainders); the same ones every time."""
    if count < 1:
        raise ValueError(f"sample must be at least 1 episode; got {count}")
    groups: dict[Hashable, list[EpisodeKey]] = {}
    for key in shuffled(keys):
        groups.setdefault(strata(key), []).append(key)
    shares = {name: min(count, len(keys)) * len(members) / len(keys) for name, members in groups.items()}
    taken = {name: int(share) for name, share in shares.items()}
    rest = min(count, len(keys)) - sum(taken.values())
    turns = _turns(groups)
    for name in sorted(groups, key=lambda name: (taken[name] - shares[name], turns[name]))[:rest]:
        taken[name] += 1
    return [key for name, members in groups.items() for key in members[: taken[name]]]


@dataclass
class Budget:
    """Ends a run when its wall time is spent; running episodes are finished."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    _began: float | None = None

    def reason(self) -> str | None:
        """Why no further episode shall start."""
        self._began = self.clock() if self._began is None else self._began
        return f"the budget of {spell_duration(self.seconds)} is spent" if self._left() <= 0 else None

    def _left(self) -> float:
        return self.seconds - (self.clock() - (self._began or 0.0))

    def note(self, outcome: Outcome) -> None:
        """Time passes by itself."""


@dataclass
class NarrowEnough:
    """Ends a run when the 95 % interval of every policy's pooled rate is at most `width` wide."""

    width: float
    expected: frozenset[tuple[str, str]]
    """Policy and decoder of every line that shall become narrow."""
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def count(self, rows: Iterable[Row]) -> "NarrowEnough":
        """Take what the journal already holds into account."""
        for row in rows:
            self._add((row.key.policy, row.key.decoder), row.status)
        return self

    def note(self, outcome: Outcome) -> None:
        """One attempt more."""
        self._add((outcome.key.policy, outcome.key.decoder), outcome.status)

    def _add(self, line: tuple[str, str], status: str) -> None:
        if status != "error":
            entry = self.counts.setdefault(line, [0, 0])
            entry[0] += status == "success"
            entry[1] += 1

    def reason(self) -> str | None:
        """Why no further episode shall start."""
        judged = [self.counts.get(line, [0, 0]) for line in self.expected]
        if any(n < FEWEST or wilson(wins / n, n).width > self.width for wins, n in judged):
            return None
        return f"every interval is at most {100 * self.width:g} points wide"


def estimate_seconds(
    pending: Sequence[EpisodeKey], past: Iterable[Row], probe: Mapping[str, float], workers: int
) -> float | None:
    """Wall time for the pending keys: the mean of past episodes of their scene and policy, else the scene's probe.

    A probe is an upper bound of a scene's own time, without the policy's. None if nothing is known of some scene.
    """
    known: dict[tuple[str, str], list[float]] = {}
    for row in past:
        if row.status != "error":
            known.setdefault((row.key.scene, row.key.policy), []).append(row.wall_seconds)
    total = 0.0
    for key in pending:
        seen = known.get((key.scene, key.policy))
        if seen is None and key.scene not in probe:
            return None
        total += sum(seen) / len(seen) if seen else probe[key.scene]
    return total / workers
