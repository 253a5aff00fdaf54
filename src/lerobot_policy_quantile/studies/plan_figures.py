"""Figures of a study's results: one row per variant and decoder with its 95 % interval and the paper's number."""

from collections.abc import Sequence
from statistics import fmean

from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.drawing.plan_rates import Bar, plan_figure
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import (
    MEAN_OF_RUN,
    Line,
    benchmarks_in,
    columns_of,
    lines_of,
)
from lerobot_policy_quantile.evaluation.tables.benchmarks import SUITES
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.published import PublishedRow, Rate, published_tables, study_tables
from lerobot_policy_quantile.evaluation.tables.sheet import TITLES
from lerobot_policy_quantile.studies.plans import load_study

WHOLE = ("", "Overall", "Mean")
"""Names of rows over all suites of a benchmark."""


def figures_of(study: str, rows: Sequence[Row], facts: Facts) -> dict[str, Figure]:
    """One figure per benchmark, variants in the study's order, of the last column that has values."""
    found = {}
    for benchmark in benchmarks_in(rows):
        lines = [line for line in lines_of(benchmark, rows, facts) if line.suite in WHOLE]
        headings = headings_of(benchmark, rows, lines)
        if headings:
            paper = paper_rows(study, benchmark)
            place = {variant.name: number for number, variant in enumerate(load_study(study).variants)}
            lines.sort(key=lambda line: place.get(line.method, len(place)))
            bars = [_bar(line, headings, paper) for line in lines]
            found[benchmark] = plan_figure(benchmark, f"{TITLES[benchmark]}, {headings[-1]}", bars)
    return found


def headings_of(benchmark: str, rows: Sequence[Row], lines: Sequence[Line]) -> list[str]:
    """Columns that have values; of a study on some of LIBERO's suites the last one is their mean."""
    found = [c for c in columns_of(benchmark, rows) if any(line.cells.get(c) is not None for line in lines)]
    suites = [heading for heading in found if heading in SUITES.values()]
    return [*found, MEAN_OF_RUN] if benchmark == "libero" and len(suites) > 1 and found == suites else found


def printed_rate(row: PublishedRow | None, headings: Sequence[str]) -> Rate | None:
    """The paper's rate in the last column; a mean of some suites is made from its rates of them."""
    if row is None or not headings:
        return None
    if headings[-1] != MEAN_OF_RUN:
        return row.rates.get(headings[-1])
    rates = [rate for heading in headings[:-1] if isinstance(rate := row.rates.get(heading), float)]
    return fmean(rates) if len(rates) == len(headings) - 1 else None


def paper_rows(study: str, benchmark: str) -> list[PublishedRow]:
    """The study's published rows first, then those of the benchmark."""
    tables = (*study_tables(study).values(), *published_tables(benchmark).values())
    return [row for rows in tables for row in rows if row.variant is not None]


def _bar(line: Line, headings: Sequence[str], paper: Sequence[PublishedRow]) -> Bar:
    names = {row.key: row for row in reversed(paper)}
    rate = _ends(printed_rate(names.get((line.method, line.decoder)), headings))
    several = line.decoder not in ("median", "own")
    cell = line.cells.get(headings[-1])
    interval = None if cell is None else (100 * cell.value, 100 * cell.low, 100 * cell.high)
    return Bar(f"{line.method}, {line.decoder}" if several else line.method, interval, line.judged, rate)


def _ends(rate: Rate | None) -> tuple[float, float] | None:
    if rate is None or isinstance(rate, tuple):
        return rate
    return rate, rate
