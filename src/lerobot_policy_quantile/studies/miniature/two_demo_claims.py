"""The paper's claims about two demonstrations (App. B.3, B.4) in the small files of that study.

Decoders are paired: episode n has the same noise for all. Deterministic ones ran once and stand for every episode.
"""

from collections.abc import Sequence

from lerobot_policy_quantile.studies.miniature.claims import ALONE, PASSES, Claim, Line, Paired, paired, seedwise
from lerobot_policy_quantile.studies.two_demo.result import is_deterministic
from lerobot_policy_quantile.studies.two_demo.summary import ArmSummary

TWO_DEMO = "two_demo"
"""Name of this study in `claims.toml`; `suite` of a claim is an arm."""


def found_in_two_demo(claim: Claim, summaries: Sequence[ArmSummary]) -> Paired | None:
    """What the summaries say about a claim; None without its lines."""
    if claim.measure == PASSES:
        return expert_passes(claim, summaries)
    pairs = []
    for summary in summaries:
        if summary.arm == claim.suite:
            seed = _pairs(claim, summary)
            pairs += [seed] if seed else []
    return paired(pairs)


def expert_passes(claim: Claim, summaries: Sequence[ArmSummary]) -> Paired | None:
    """Passes of the action expert per replan of two heads, in every arm and seed that measured them."""
    means = []
    for summary in summaries:
        passes = {cost.head: float(cost.expert_passes) for cost in summary.costs}
        if claim.b is not None and {claim.a[0], claim.b[0]} <= passes.keys():
            means.append((passes[claim.a[0]], passes[claim.b[0]]))
    return seedwise(means, len(means))


def _pairs(claim: Claim, summary: ArmSummary) -> list[tuple[bool, bool]]:
    """Successes of both lines, episode by episode; errors of either are left out."""
    of_a = _letters(summary, claim.a)
    if claim.direction in ALONE:
        return [(letter.isupper(), ALONE[claim.direction]) for letter in of_a if letter != "e"]
    of_b = "" if claim.b is None else _letters(summary, claim.b)
    if not of_a or not of_b:
        return []
    fixed = [is_deterministic(*line) for line in (claim.a, claim.b) if line is not None]
    number = max(len(of_a), len(of_b)) if any(fixed) else min(len(of_a), len(of_b))
    one, other = (letters[:1] * number if once else letters for letters, once in zip((of_a, of_b), fixed, strict=True))
    return [(x.isupper(), y.isupper()) for x, y in zip(one, other, strict=False) if "e" not in (x, y)]


def _letters(summary: ArmSummary, line: Line) -> str:
    return next((each.letters for each in summary.outcomes if (each.head, each.decoder) == line), "")
