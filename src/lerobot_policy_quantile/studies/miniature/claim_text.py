"""A claim, the paper's figures and ours as table cells."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lerobot_policy_quantile.evaluation.tables.benchmarks import SUITES
from lerobot_policy_quantile.evaluation.tables.intervals import PairedDifference
from lerobot_policy_quantile.evaluation.tables.published import Rate
from lerobot_policy_quantile.evaluation.tables.sheet import MISSING, TITLES
from lerobot_policy_quantile.studies.miniature.claims import ALONE, SUCCESS, Claim, Paired

_DIGITS = {SUCCESS: 1, "seconds": 1, "spread": 2, "passes": 0}


def theirs(claim: Claim) -> str:
    """The paper's figures."""
    return " vs ".join(printed(rate) for rate in claim.paper) or MISSING


def ours(claim: Claim, found: Paired | None) -> str:
    """Our figures."""
    if found is None:
        return MISSING
    values = [found.a] if claim.direction in ALONE else [found.a, found.b]
    return " vs ".join(f"{claim.scale * value:.{_DIGITS[claim.measure]}f}" for value in values)


def interval(claim: Claim, found: Paired | None) -> str:
    """Difference of both with its 95 % interval, in percentage points or units of the measure."""
    if found is None or claim.direction in ALONE:
        return MISSING
    return spelled(found.difference, claim.scale, max(1, _DIGITS[claim.measure]))


def scope(settings: Mapping[str, Any]) -> str:
    """Which suites a study's settings leave, if they leave some out."""
    told = [
        f"Evaluated on {' and '.join(_suite_names(suites))} only;"
        f" claims have the paper's figures for {TITLES.get(whole) or _suite_names(whole)[0]}."
        for whole, suites in settings.get("suites", {}).items()
    ]
    return " ".join(told)


def _suite_names(suites: str) -> list[str]:
    return [f"LIBERO-{SUITES[name]}" if name in SUITES else name for name in suites.split(",")]


def points(difference: PairedDifference) -> str:
    """Such as `+3.0 [-1.2, +7.2]` in percentage points."""
    return spelled(difference, 100.0, 1)


def spelled(difference: PairedDifference, scale: float, digits: int) -> str:
    """The mean difference and the ends of its interval, if it has any."""
    ends: Sequence[float] = (difference.low, difference.high)
    told = f"{scale * difference.value:+.{digits}f}"
    if not all(map(math.isfinite, ends)):
        return told
    return f"{told} [{', '.join(f'{scale * end:+.{digits}f}' for end in ends)}]"


def printed(rate: Rate) -> str:
    """A figure of the paper, or the range that its text gives."""
    return " to ".join(f"{figure:g}" for figure in rate) if isinstance(rate, tuple) else f"{rate:g}"
