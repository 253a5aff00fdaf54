"""The paper's claims as comparisons of two lines of a study, and whether they hold in its outcomes."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from lerobot_policy_quantile.adapters.suites import parse_suites
from lerobot_policy_quantile.contract import OWN_DECODER
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import SEED_MARK
from lerobot_policy_quantile.evaluation.tables.benchmarks import CONTROLS, PRO
from lerobot_policy_quantile.evaluation.tables.intervals import PairedDifference, mean_over_seeds, paired_over_seeds
from lerobot_policy_quantile.evaluation.tables.pairing import Episode
from lerobot_policy_quantile.evaluation.tables.published import Rate
from lerobot_policy_quantile.util.names import require_choice

Verdict = Literal["holds", "does not hold", "cannot be told", "not run"]
DIRECTIONS = ("above", "below", "near", "always", "never")
ALONE = {"always": True, "never": False}
"""Directions without a second line -> the outcome that every episode has."""
SUCCESS, SECONDS, SPREAD, PASSES = "success", "seconds", "spread", "passes"
MEASURES = (SUCCESS, SECONDS, SPREAD, PASSES)
FLOOR = 0.05
"""Two variants that hardly ever succeed are not evidence that they do equally well."""

Line = tuple[str, str]
"""Variant and decoder."""
BySeed = Mapping[str, Mapping[Episode, bool]]
"""Training seed -> episode -> success."""


@dataclass(frozen=True)
class Claim:
    """A comparison of `a` with `b`, or a statement on `a` alone."""

    study: str
    suite: str
    text: str
    place: str
    """Where the paper says so."""
    a: Line
    b: Line | None
    direction: str
    paper: tuple[Rate, ...]
    """The paper's values of both: rates in per cent, or what `measure` says; empty where it prints none."""
    margin: float = 0.0
    """Percentage points, or units of the measure."""
    measure: str = SUCCESS
    b_study: str = ""
    """Study of `b`, if it is another one."""

    @property
    def scale(self) -> float:
        """From what `Paired` has to what is printed."""
        return 100.0 if self.measure == SUCCESS else 1.0


@dataclass(frozen=True)
class Paired:
    """Two lines of a study on the same episodes."""

    a: float
    b: float
    """Success rates on the shared episodes, or means of another measure; mean over seeds."""
    episodes: int
    """Shared by both, of all seeds."""
    difference: PairedDifference

    @property
    def seeds(self) -> int:
        """Training seeds that both have."""
        return len(self.difference.by_seed)


def all_claims() -> list[Claim]:
    """Every claim, in the file's order."""
    content = tomllib.loads(files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))
    return [_claim(entry) for entry in content["claim"]]


def claims_of(study: str) -> list[Claim]:
    """The paper's claims that belong to a study."""
    return [claim for claim in all_claims() if claim.study == study]


def _claim(entry: dict[str, Any]) -> Claim:
    require_choice("direction", entry["direction"], DIRECTIONS)
    require_choice("measure", entry.get("measure", SUCCESS), MEASURES)
    if ("b" in entry) == (entry["direction"] in ALONE):
        raise ValueError(f"b must be given unless direction is always or never; got claim {entry['text']!r}")
    named = _phase if entry.get("measure") == SPREAD else line_named
    lines = {side: named(entry[side]) if side in entry else None for side in ("a", "b")}
    rates = tuple(tuple(rate) if isinstance(rate, list) else rate for rate in entry["paper"])
    return Claim(**{**entry, **lines, "paper": rates})


def line_named(text: str) -> Line:
    """`VARIANT` with the median, or `VARIANT/DECODER`."""
    variant, _, decoder = text.partition("/")
    return variant, decoder if decoder == OWN_DECODER else canonical_text(decoder or "median")


def _phase(text: str) -> Line:
    variant, _, phase = text.partition("/")
    return variant, phase


def judge(claim: Claim, found: Paired | None) -> Verdict:
    """Whether the claim holds: by the 95 % interval of the difference, whose units are at least two training seeds.

    One episode against it is enough for a claim on all episodes.
    """
    if found is None:
        return "not run"
    if claim.direction in ALONE and found.difference.value != 0:
        return "does not hold"
    if found.seeds < 2:
        return "cannot be told"
    if claim.direction in ALONE:
        return "holds"
    low, high = claim.scale * found.difference.low, claim.scale * found.difference.high
    if claim.direction == "near":
        if low > claim.margin or high < -claim.margin:
            return "does not hold"
        inside = -claim.margin <= low and high <= claim.margin and min(found.a, found.b) > FLOOR
        return "holds" if inside else "cannot be told"
    if claim.direction == "below":
        low, high = -high, -low
    if low > claim.margin:
        return "holds"
    return "does not hold" if high < claim.margin else "cannot be told"


def found_in(claim: Claim, rows: Sequence[Row]) -> Paired | None:
    """What a study's rows say about a claim on success or time."""
    if claim.measure == SECONDS and claim.b is not None:
        return compared_seconds(rows, claim.suite, claim.a, claim.b)
    if claim.direction in ALONE:
        scenes = {scene for scene in parse_suites(claim.suite) if not is_control(scene)}
        of_a = outcomes_by_seed(rows, scenes, claim.a)
        wanted = {seed: dict.fromkeys(episodes, ALONE[claim.direction]) for seed, episodes in of_a.items()}
        return paired(shared_pairs(of_a, wanted))
    return None if claim.b is None else compared(rows, claim.suite, claim.a, claim.b)


def compared(rows: Sequence[Row], suite: str, a: Line, b: Line) -> Paired | None:
    """Two lines on the episodes of a suite that both were judged on, seed by seed; None without any."""
    return across(rows, rows, suite, a, b)


def across(of_a: Sequence[Row], of_b: Sequence[Row], suite: str, a: Line, b: Line) -> Paired | None:
    """Lines of two studies on the episodes that both were judged on, seed by seed; None without any."""
    scenes = {scene for scene in parse_suites(suite) if not is_control(scene)}
    return paired(shared_pairs(outcomes_by_seed(of_a, scenes, a), outcomes_by_seed(of_b, scenes, b)))


def paired(pairs: Sequence[Sequence[tuple[bool, bool]]]) -> Paired | None:
    """Paired outcomes, a list per training seed; None without any."""
    if not pairs:
        return None
    a_rate, b_rate = (sum(sum(p[side] for p in seed) / len(seed) for seed in pairs) / len(pairs) for side in (0, 1))
    return Paired(a_rate, b_rate, sum(map(len, pairs)), paired_over_seeds(pairs))


def compared_seconds(rows: Sequence[Row], suite: str, a: Line, b: Line) -> Paired | None:
    """Simulated seconds per episode of two lines, seed by seed, on the scenes that both have; None without any."""
    scenes = parse_suites(suite)
    times: list[dict[str, dict[str, list[float]]]] = []
    for line in (a, b):
        found: dict[str, dict[str, list[float]]] = {}
        for row in rows:
            variant, _, seed = row.key.policy.partition(SEED_MARK)
            if row.status != "error" and row.key.scene in scenes and (variant, row.key.decoder) == line:
                found.setdefault(seed, {}).setdefault(row.key.scene, []).append(row.simulated_seconds)
        times.append(found)
    means, episodes = [], 0
    for seed in sorted(times[0].keys() & times[1].keys()):
        shared = times[0][seed].keys() & times[1][seed].keys()
        if shared:
            means.append([sum(sum(of[seed][s]) / len(of[seed][s]) for s in shared) / len(shared) for of in times])
            episodes += sum(len(times[0][seed][scene]) for scene in shared)
    return seedwise([(one, other) for one, other in means], episodes)


def seedwise(means: Sequence[tuple[float, float]], episodes: int) -> Paired | None:
    """Two lines of which every training seed has one mean each; None without any seed."""
    if not means:
        return None
    a, b = (sum(values) / len(means) for values in zip(*means, strict=True))
    return Paired(a, b, episodes, mean_over_seeds([one - other for one, other in means]))


def shared_pairs(of_a: BySeed, of_b: BySeed) -> list[list[tuple[bool, bool]]]:
    """Outcomes of both on the episodes that both were judged on, a list per training seed that has some."""
    pairs = []
    for seed in sorted(of_a.keys() & of_b.keys()):
        shared = sorted(of_a[seed].keys() & of_b[seed].keys())
        if shared:
            pairs.append([(of_a[seed][episode], of_b[seed][episode]) for episode in shared])
    return pairs


def outcomes_by_seed(rows: Sequence[Row], scenes: set[str], line: Line) -> dict[str, dict[Episode, bool]]:
    """Training seed -> episode -> whether a line succeeded in it; errors are left out."""
    found: dict[str, dict[Episode, bool]] = {}
    for row in rows:
        variant, _, seed = row.key.policy.partition(SEED_MARK)
        if row.status != "error" and row.key.scene in scenes and (variant, row.key.decoder) == line:
            episode = (row.key.scene, row.key.task, row.key.index, row.key.seed)
            found.setdefault(seed, {})[episode] = row.status == "success"
    return found


def is_control(scene: str) -> bool:
    """LIBERO-Pro's average leaves two of its kinds out."""
    return scene.startswith(PRO) and scene.endswith(tuple(f"_{kind}" for kind in CONTROLS))
