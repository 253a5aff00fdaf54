"""Does the paper hold? One line per claim, from the studies' files, the two-demonstration results and theory checks."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from lerobot_policy_quantile.core.theory.checks import TheoryCheck
from lerobot_policy_quantile.evaluation.tables.sheet import MISSING
from lerobot_policy_quantile.studies.miniature import claim_text
from lerobot_policy_quantile.studies.miniature.claims import Claim, Paired, Verdict, across, all_claims, judge
from lerobot_policy_quantile.studies.miniature.summary import Summary, measured, read_summary, suites_run
from lerobot_policy_quantile.studies.miniature.two_demo_claims import TWO_DEMO, found_in_two_demo
from lerobot_policy_quantile.studies.two_demo.summary import ArmSummary
from lerobot_policy_quantile.util.tables import markdown

THEORY = "theory"
SECTIONS = {
    "main": "Tables 1a, 1b and 2a: LIBERO, LIBERO-Pro, LIBERO-Plus",
    "main_fine_tuned": "Table 2b: LIBERO-Plus after training on it",
    "real_robot": "Table 3: real robot",
    "ablations": "Table 4: heads, supervision, components",
    "k_sweep": "Figure 7: number of quantiles",
    "r_sweep": "Figure 8: label mask ratio",
    "sampling": "Figure 4: sampling",
    "spread": "Figures 5 and 9: predicted spread over an episode",
    TWO_DEMO: "Tables 7 to 10, Figure 18: two demonstrations",
    THEORY: "Section 3 and Appendix A: theory",
}
"""Study -> heading, in the page's order."""
COMMANDS = {
    TWO_DEMO: "make study",
    THEORY: "qhead verify",
    "real_robot": "qhead study run real_robot --dataset FOLDER",
}
HEADER = ("claim", "paper", "theirs", "ours", "difference [95 % interval]", "verdict", "command")

TOP = """\
# Does the paper hold?

After this page you can tell for every claim of the paper whether it holds for the miniature model, cannot be told, or
has not been run. Written by `qhead study verdicts`.

{tally}
- Theirs and ours: success in per cent, or the unit that the claim names. The paper's are pi0.5's size on human
  demonstrations; ours are the tiny backbone on scripted ones. Compare signs, not heights.
- A difference (percentage points, unless the claim is about time or spread) is paired by episode; training seeds are
  the units of its interval. A claim of a difference holds if the whole interval is on its side, does not hold if it is
  on the other, and cannot be told otherwise. A claim on all episodes falls with one episode against it.
- "Not run" means that the study has no episodes for the claim yet.
"""


@dataclass(frozen=True)
class ClaimLine:
    """One line of the page."""

    section: str
    cells: tuple[str, ...]
    """Claim, place, theirs, ours, difference."""
    verdict: Verdict


def verdict_lines(
    studies: Mapping[str, Summary], two_demo: Sequence[ArmSummary], checks: Sequence[TheoryCheck]
) -> list[ClaimLine]:
    """Every claim of the paper with what is known about it."""
    lines = [_line(claim, _found(claim, studies, two_demo)) for claim in all_claims()]
    return [*lines, *theory_lines(checks)]


def _found(claim: Claim, studies: Mapping[str, Summary], two_demo: Sequence[ArmSummary]) -> Paired | None:
    if claim.study == TWO_DEMO:
        return found_in_two_demo(claim, two_demo)
    if not {claim.study, claim.b_study or claim.study} <= studies.keys():
        return None
    if not claim.b_study or claim.b is None:
        return measured(claim, studies[claim.study])
    ours, other = studies[claim.study], studies[claim.b_study]
    return across(ours.rows, other.rows, suites_run(claim, ours), claim.a, claim.b)


def _line(claim: Claim, found: Paired | None) -> ClaimLine:
    figures = (claim_text.theirs(claim), claim_text.ours(claim, found), claim_text.interval(claim, found))
    return ClaimLine(claim.study, (claim.text, claim.place, *figures), judge(claim, found))


def theory_lines(checks: Iterable[TheoryCheck]) -> list[ClaimLine]:
    """One line per statement: laws or widths that it was checked with are counted, figures without a claim left out."""
    groups: dict[tuple[str, str], list[TheoryCheck]] = {}
    for check in checks:
        groups.setdefault((_statement(check.claim), check.paper), []).append(check)
    lines = []
    for (statement, place), members in groups.items():
        claimed = [check for check in members if check.status != "outside"]
        if not claimed:
            continue
        passed = sum(check.status == "pass" for check in claimed)
        one = claimed[0]
        figures = (one.theory, one.measured) if len(claimed) == 1 else (f"{len(claimed)} checks", f"{passed} pass")
        verdict: Verdict = "holds" if passed == len(claimed) else "does not hold"
        lines.append(ClaimLine(THEORY, (_escaped(statement), place, *figures, MISSING), verdict))
    return lines


def _escaped(statement: str) -> str:
    """A sentence that a table can hold."""
    return f"{statement[0].upper()}{statement[1:]}.".replace("|", "\\|")


def _statement(claim: str) -> str:
    """What checks of several laws or widths have in common."""
    for mark in (", slope: ", " pinball: ", ", eps = "):
        head, found, _ = claim.partition(mark)
        if found:
            return head + (" pinball" if "pinball" in mark else "")
    return claim


def verdict_page(
    lines: Sequence[ClaimLine],
    pages: Mapping[str, str] | None = None,
    studies: Mapping[str, Summary] | None = None,
) -> str:
    """The page in Markdown; `pages`: section -> link to its results; `studies`: section -> what suites it has."""
    kinds = get_args(Verdict)
    count = {kind: sum(line.verdict == kind for line in lines) for kind in kinds}
    tally = markdown((*kinds, "claims"), [(*(str(count[kind]) for kind in kinds), str(len(lines)))])
    parts = [TOP.format(tally=tally)]
    for section, title in SECTIONS.items():
        mine = [line for line in lines if line.section == section]
        if mine:
            command = f"`{COMMANDS.get(section, f'qhead study run {section} --miniature')}`"
            rows = [(*line.cells, f"**{line.verdict}**", command) for line in mine]
            link = [f"[Results]({pages[section]}).\n"] if pages and section in pages else []
            scope = claim_text.scope(studies[section].settings) if studies and section in studies else ""
            parts += [f"## {title}\n", *link, *([f"{scope}\n"] if scope else []), markdown(HEADER, rows)]
    return "\n".join(parts)


def read_studies(folder: Path) -> dict[str, Summary]:
    """The studies in a folder of `STUDY.json` files."""
    found = {study: folder / f"{study}.json" for study in SECTIONS}
    return {study: read_summary(path) for study, path in found.items() if path.is_file()}


def pages_beside(out: Path | None, folder: Path, two_demo: Path) -> dict[str, str]:
    """Links from the page to the results that it is made of."""
    if out is None:
        return {}
    places = {study: folder / f"{study}.md" for study in SECTIONS} | {TWO_DEMO: two_demo / "README.md"}
    return {
        study: Path(os.path.relpath(path, out.parent)).as_posix() for study, path in places.items() if path.is_file()
    }
