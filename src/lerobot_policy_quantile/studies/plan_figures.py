"""Figures of a study's results: one row per variant and decoder with its 95 % interval and the paper's number."""

from collections.abc import Sequence

from lerobot_policy_quantile.drawing.figure import Figure
from lerobot_policy_quantile.drawing.plan_rates import Bar, plan_figure
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import Line, benchmarks_in, columns_of, lines_of
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
        headings = [c for c in columns_of(benchmark, rows) if any(line.cells.get(c) is not None for line in lines)]
        if headings:
            paper = paper_rows(study, benchmark)
            place = {variant.name: number for number, variant in enumerate(load_study(study).variants)}
            lines.sort(key=lambda line: place.get(line.method, len(place)))
            bars = [_bar(line, headings[-1], paper) for line in lines]
            found[benchmark] = plan_figure(benchmark, f"{TITLES[benchmark]}, {headings[-1]}", bars)
    return found


def paper_rows(study: str, benchmark: str) -> list[PublishedRow]:
    """The study's published rows first, then those of the benchmark."""
    tables = (*study_tables(study).values(), *published_tables(benchmark).values())
    return [row for rows in tables for row in rows if row.variant is not None]


def _bar(line: Line, column: str, paper: Sequence[PublishedRow]) -> Bar:
    names = {row.key: row for row in reversed(paper)}
    printed = names.get((line.method, line.decoder))
    rate = None if printed is None else _ends(printed.rates.get(column))
    several = line.decoder not in ("median", "own")
    cell = line.cells.get(column)
    interval = None if cell is None else (100 * cell.value, 100 * cell.low, 100 * cell.high)
    return Bar(f"{line.method}, {line.decoder}" if several else line.method, interval, line.judged, rate)


def _ends(rate: Rate | None) -> tuple[float, float] | None:
    if rate is None or isinstance(rate, tuple):
        return rate
    return rate, rate
