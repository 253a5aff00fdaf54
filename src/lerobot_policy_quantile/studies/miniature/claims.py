"""The paper's claims as comparisons of two variants, and whether they hold in a study's outcomes."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from lerobot_policy_quantile.adapters.suites import parse_suites
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import SEED_MARK
from lerobot_policy_quantile.evaluation.tables.benchmarks import CONTROLS, PRO
from lerobot_policy_quantile.evaluation.tables.intervals import PairedDifference, paired_over_seeds
from lerobot_policy_quantile.evaluation.tables.pairing import Episode
from lerobot_policy_quantile.evaluation.tables.published import Rate
from lerobot_policy_quantile.util.names import require_choice

Verdict = Literal["holds", "does not hold", "cannot be told", "not run"]
DIRECTIONS = ("above", "below", "near")
FLOOR = 0.05
"""Two variants that hardly ever succeed are not evidence that they do equally well."""

Line = tuple[str, str]
"""Variant and decoder."""


@dataclass(frozen=True)
class Claim:
    """A comparison of two variants, `a` with `b`."""

    study: str
    suite: str
    text: str
    a: Line
    b: Line
    direction: str
    paper: tuple[Rate, Rate]
    """The paper's rates of both, in per cent."""
    margin: float = 0.0
    """Percentage points."""


@dataclass(frozen=True)
class Paired:
    """Two lines of a study on the same episodes."""

    a: float
    b: float
    """Success rates on the shared episodes, mean over seeds."""
    episodes: int
    """Shared by both, of all seeds."""
    difference: PairedDifference

    @property
    def seeds(self) -> int:
        """Training seeds that both have."""
        return len(self.difference.by_seed)


def claims_of(study: str) -> list[Claim]:
    """The paper's claims that belong to a study."""
    content = tomllib.loads(files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))
    return [claim for claim in map(_claim, content["claim"]) if claim.study == study]


def _claim(entry: dict[str, object]) -> Claim:
    require_choice("direction", str(entry["direction"]), DIRECTIONS)
    rates = [tuple(rate) if isinstance(rate, list) else rate for rate in entry["paper"]]  # type: ignore[attr-defined]
    lines = {side: line_named(str(entry[side])) for side in ("a", "b")}
    return Claim(**{**entry, **lines, "paper": tuple(rates)})  # type: ignore[arg-type]


def line_named(text: str) -> Line:
    """`VARIANT` with the median, or `VARIANT/DECODER`."""
    variant, _, decoder = text.partition("/")
    return variant, canonical_text(decoder or "median")


def judge(claim: Claim, found: Paired | None) -> Verdict:
    """Whether the claim holds: by the 95 % interval of the difference, whose units are at least two training seeds."""
    if found is None:
        return "not run"
    if found.seeds < 2:
        return "cannot be told"
    low, high = 100 * found.difference.low, 100 * found.difference.high
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


def compared(rows: Sequence[Row], suite: str, a: Line, b: Line) -> Paired | None:
    """Two lines on the episodes of a suite that both were judged on, seed by seed; None without any."""
    scenes = {scene for scene in parse_suites(suite) if not is_control(scene)}
    pairs = shared_pairs(*(outcomes_by_seed(rows, scenes, line) for line in (a, b)))
    if not pairs:
        return None
    a_rate, b_rate = (sum(sum(p[side] for p in seed) / len(seed) for seed in pairs) / len(pairs) for side in (0, 1))
    return Paired(a_rate, b_rate, sum(map(len, pairs)), paired_over_seeds(pairs))


def shared_pairs(
    of_a: Mapping[str, Mapping[Episode, bool]], of_b: Mapping[str, Mapping[Episode, bool]]
) -> list[list[tuple[bool, bool]]]:
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
