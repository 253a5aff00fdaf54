"""The page of a study in miniature: rates beside the paper's, differences to the full model, a verdict per claim."""

from collections.abc import Sequence
from pathlib import Path

from lerobot_policy_quantile.evaluation.tables.aggregate import SEED_MARK, Line, benchmarks_in, lines_of
from lerobot_policy_quantile.evaluation.tables.sheet import MISSING, TITLES, per_cent
from lerobot_policy_quantile.studies.miniature import claim_text
from lerobot_policy_quantile.studies.miniature.claim_text import points
from lerobot_policy_quantile.studies.miniature.claims import Claim, claims_of, compared, judge
from lerobot_policy_quantile.studies.miniature.costs import costs_table
from lerobot_policy_quantile.studies.miniature.pilot import pilot_sections
from lerobot_policy_quantile.studies.miniature.summary import Summary, measured
from lerobot_policy_quantile.studies.plan_figures import WHOLE, figures_of, headings_of, paper_rows, printed_rate
from lerobot_policy_quantile.studies.plans import StudyPlan, load_study
from lerobot_policy_quantile.studies.plans.size import Size, load_size
from lerobot_policy_quantile.util.files import write_text
from lerobot_policy_quantile.util.tables import markdown

NOTES = """\
- Rates in per cent with 95 % intervals over training seeds and episodes, and the rates of the lowest and the highest
  seed. The paper's numbers are pi0.5's size on human demonstrations: compare the order of the rows, not their heights.
- Difference: percentage points to {reference}, on the same episodes and seed by seed. Its interval has training seeds
  as its units (Student's t, never narrower than episodes alone allow), so three seeds tell large differences only.
- Seconds: simulated time per episode, failures included. Gradient norm: median over updates, before clipping to 1;
  clipped: share of updates.
"""

COSTS = """\
- Wall time while other processes shared the machine. Hours add up what ran side by side. Trainings and episodes that
  several studies share count in each of them; an update includes reading its samples.
"""


def write_page(summary: Summary, folder: Path) -> Path:
    """Write `STUDY.md` and its figures."""
    size = load_size(summary.size)
    study = size.applied(load_study(summary.study))
    figures = figures_of(summary.study, summary.rows, summary.facts)
    for name, figure in figures.items():
        write_text(folder / f"{summary.study}-{name}.svg", figure.svg_file())
    path = folder / f"{summary.study}.md"
    write_text(path, page(summary, study, size))
    return path


def page(summary: Summary, study: StudyPlan, size: Size) -> str:
    """The page in Markdown."""
    mine = size.study[study.name]
    reference, claims = mine.reference, [claim for claim in claims_of(study.name) if not claim.b_study]
    told = f"which of the paper's claims ({study.paper}) hold for the tiny backbone trained on scripted demonstrations"
    if mine.pilot:
        told = "how much success scatters between seeds and episodes, and how small a difference other studies can show"
    parts = [
        f"# {study.title}, in miniature\n",
        f"After this page you can tell {told}. Written by `qhead study run {study.name} --miniature`; outcomes of all"
        f" episodes are in `{study.name}.json`.\n",
    ]
    parts += [f"{scope}\n"] if (scope := claim_text.scope(summary.settings)) else []
    parts += ["## Claims\n", claims_table(summary, claims)] if claims else []
    parts += [pilot_sections(summary, study, size, reference)] if mine.pilot else []
    for benchmark in benchmarks_in(summary.rows):
        parts += [f"## {TITLES[benchmark]}\n", _table(summary, study, benchmark, reference)]
        parts += [f"![{TITLES[benchmark]}: success rates and the paper's]({study.name}-{benchmark}.svg)\n"]
    parts += [NOTES.format(reference=reference), _beyond(study)]
    if costs := costs_table(summary.costs):
        parts += ["## Costs\n", costs, COSTS]
    parts += ["## Settings\n", _settings(summary)]
    return "\n".join(part for part in parts if part)


def claims_table(summary: Summary, claims: Sequence[Claim]) -> str:
    """One row per claim."""
    rows = []
    for claim in claims:
        found = measured(claim, summary)
        told = (claim_text.theirs(claim), claim_text.ours(claim, found), claim_text.interval(claim, found))
        rows.append((f"{claim.text[:-1]} ({claim.place}).", *told, f"**{judge(claim, found)}**"))
    return markdown(("claim", "paper", "ours", "difference", "verdict"), rows)


def _table(summary: Summary, study: StudyPlan, benchmark: str, reference: str) -> str:
    lines = [line for line in lines_of(benchmark, summary.rows, summary.facts) if line.suite in WHOLE]
    columns = headings_of(benchmark, summary.rows, lines)
    place = {variant.name: number for number, variant in enumerate(study.variants)}
    lines.sort(key=lambda line: (place.get(line.method, len(place)), line.decoder != "median"))
    paper = {row.key: row for row in reversed(paper_rows(study.name, benchmark))}
    suite = next(e.suite for e in study.evaluations if benchmark in (e.suite, "libero"))
    several = len({line.decoder for line in lines}) > 1
    rows = []
    for line in lines:
        rate = printed_rate(paper.get((line.method, line.decoder)), columns)
        named = f"{line.method}, {line.decoder}" if several else line.method
        first = (_value(line, column) for column in columns[:-1])
        mine = (line.method, line.decoder)
        found = None if mine == (reference, "median") else compared(summary.rows, suite, mine, (reference, "median"))
        rows.append(
            (
                named,
                *first,
                per_cent(line.cells.get(columns[-1])) if columns else MISSING,
                MISSING if rate is None else claim_text.printed(rate),
                MISSING if found is None else points(found.difference),
                MISSING if line.seconds is None else f"{line.seconds:.1f}",
                *_gradients(summary, line.method),
                f"{line.judged}, {line.models} seeds" + (f", {line.errors} errors" if line.errors else ""),
            )
        )
    header = ("variant", *columns, "paper", f"difference to {reference}", "seconds", "gradient norm", "clipped", "ran")
    return markdown(header, rows)


def _value(line: Line, column: str) -> str:
    cell = line.cells.get(column)
    return MISSING if cell is None else f"{100 * cell.value:.1f}"


def _gradients(summary: Summary, variant: str) -> tuple[str, str]:
    """Median norm and share of clipped updates, mean over seeds."""
    seeds = {row.key.policy.partition(SEED_MARK)[2] for row in summary.rows}
    mine = [summary.gradients[name] for seed in sorted(seeds) if (name := f"{variant}-{seed}") in summary.gradients]
    if not mine:
        return MISSING, MISSING
    norm, clipped = (sum(values) / len(mine) for values in zip(*((g.median, g.clipped) for g in mine), strict=True))
    return f"{norm:.2f}", f"{100 * clipped:.0f} %"


def _beyond(study: StudyPlan) -> str:
    told = [f"- `{variant.name}` is not the paper's: {variant.beyond_paper}.\n" for variant in study.variants
            if variant.beyond_paper]  # fmt: skip
    return "".join(told)


def _settings(summary: Summary) -> str:
    rows = [(name, _spelled(value)) for name, value in summary.settings.items() if value not in (None, {}, "")]
    for benchmark, versions in summary.versions.items():
        rows.append((TITLES[benchmark], "; ".join(f"{name} {value}" for name, value in versions.items())))
    return markdown(("setting", "value"), rows)


def _spelled(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_spelled(each)}" for name, each in value.items())
    return str(value)
