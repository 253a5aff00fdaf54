"""A benchmark's table as Markdown, LaTeX or CSV: our lines, the paper's beside them, and what ours rest on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import Line, benchmark_of, benchmarks_in, columns_of, lines_of
from lerobot_policy_quantile.evaluation.tables.benchmarks import PLUS, PRO, ROBOT
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.intervals import Interval
from lerobot_policy_quantile.evaluation.tables.published import PublishedRow, Rate, published_tables, study_tables
from lerobot_policy_quantile.util.tables import csv_text, latex, latex_text, markdown

FORMATS = ("markdown", "latex", "csv")
TITLES = {"libero": "LIBERO", PLUS: "LIBERO-Plus", PRO: "LIBERO-Pro", ROBOT: "AgileX Piper"}
MISSING = "-"
SECONDS = "Seconds, simulated / wall"
INTERVALS = (
    "Rates in per cent with 95 % intervals. One model: Wilson, which says nothing about other training seeds. Several:"
    " over seeds and episodes, and behind it the rates of the lowest and the highest seed."
)


@dataclass(frozen=True)
class Sheet:
    """A table of texts with notes under it."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def sheets_of(rows: Sequence[Row], facts: Facts, *, published: bool = True) -> list[Sheet]:
    """One sheet per benchmark that the rows belong to."""
    return [_sheet(name, rows, facts, published) for name in benchmarks_in(rows)]


def render(sheet: Sheet, style: str) -> str:
    """The sheet in one of `FORMATS`."""
    if style not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; got {style!r}")
    return {"markdown": _markdown, "latex": _latex, "csv": _csv}[style](sheet)


def _sheet(benchmark: str, rows: Sequence[Row], facts: Facts, published: bool) -> Sheet:
    lines = lines_of(benchmark, rows, facts)
    columns = columns_of(benchmark, rows)
    contexts = list(dict.fromkeys(line.context for line in lines))
    marks = {context: chr(ord("A") + i % 26) + (str(i // 26) if i > 25 else "") for i, context in enumerate(contexts)}
    header = ("Method", "Suite", "Decoder", *columns, SECONDS, "Ran", "Seeds", "Made with")
    cells = []
    for line in lines:
        cells.append(_cells(line, columns, marks[line.context]))
        beside = _of_the_study(line, columns) if published and benchmark == "libero" else []
        cells += [paper for paper in beside if paper not in cells]
    if published:
        cells += _published(benchmark, columns)
    if benchmark in ("libero", ROBOT):  # their suites or tasks are columns
        header, cells = _without(header, 1), [_without(line, 1) for line in cells]
    if benchmark == ROBOT:
        header, cells = by_task(header, cells, columns)
    notes = [f"{mark}: {_spell(context)}" for context, mark in marks.items()]
    scenes = sorted({row.key.scene for row in rows if benchmark_of(row.key.scene) == benchmark})
    notes += [f"{count} not run: {reason}" for reason, count in facts.reasons(scenes).items()]
    notes.append(INTERVALS)
    notes.append(f"{SECONDS}: per episode, failures included. The paper does not say which of the two its times are.")
    notes.append("Ran: judged episodes of the whole benchmark's; errors are not judged and never count as failures.")
    return Sheet(TITLES[benchmark], header, tuple(cells), tuple(notes))


def _cells(line: Line, columns: Sequence[str], mark: str) -> tuple[str, ...]:
    ran = str(line.judged) if line.population is None else f"{line.judged} of {line.population}"
    ran += f", {line.errors} errors" if line.errors else ""
    times = (line.seconds, line.wall_seconds)
    seconds = " / ".join(MISSING if time is None else f"{time:.2f}" for time in times)
    rates = (per_cent(line.cells.get(column)) for column in columns)
    return (line.method, line.suite, line.decoder, *rates, seconds, ran, str(line.models), mark)


def _published(benchmark: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The paper's table of a benchmark, and its own method suite by suite where it gives that."""
    tables = published_tables(benchmark).values()
    by_suite = published_tables(f"{benchmark}_by_suite").values()
    return [_paper(row, columns) for rows in tables for row in rows] + [
        _paper(replace(row, method="Quantile Head"), columns, suite=row.method) for rows in by_suite for row in rows
    ]


def _of_the_study(line: Line, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """What the paper found for the plan's variant and decoder that a line is named after."""
    return [
        _paper(row, columns, decoder=row.decoder)
        for rows in study_tables().values()
        for row in rows
        if row.key == (line.method, line.decoder)
    ]


def _paper(row: PublishedRow, columns: Sequence[str], *, suite: str = "", decoder: str = "") -> tuple[str, ...]:
    rates = (_rate(row.rates[column]) if column in row.rates else MISSING for column in columns)
    seconds = MISSING if row.seconds is None else f"{row.seconds:.2f}"
    return (row.method, suite, decoder, *rates, seconds, MISSING, MISSING, row.source)


def _rate(rate: Rate) -> str:
    return " to ".join(f"{figure:g}" for figure in rate) if isinstance(rate, tuple) else f"{rate:g}"


def by_task(
    header: tuple[str, ...], lines: Sequence[tuple[str, ...]], columns: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A robot's table as the paper prints it: a row per task, a column per method, then Delta over the pi0.5 before it.

    A method whose name begins with pi05 or pi0.5 is the baseline of those that follow it.
    """
    table: list[tuple[str, ...]] = [header]
    baseline: tuple[str, ...] | None = None
    for line in sorted(lines, key=lambda line: (line[-1].startswith("paper"), not _is_baseline(line))):
        table.append(line)
        if _is_baseline(line):
            baseline = line
        elif baseline is not None:
            rates = {header.index(column) for column in columns}
            cells = (_delta(line[i], baseline[i]) if i in rates else "" for i in range(1, len(header)))
            table.append((f"Delta over {baseline[0]}", *cells))
    first, *rest = zip(*table, strict=True)
    return first, rest


def _is_baseline(line: tuple[str, ...]) -> bool:
    return line[0].startswith(("pi05", "pi0.5"))


def _delta(rate: str, baseline: str) -> str:
    """Percentage points between two rates as they are printed."""
    if MISSING in (rate, baseline):
        return MISSING
    return f"{float(rate.split()[0]) - float(baseline.split()[0]):+.1f}"


def per_cent(figure: Interval | None) -> str:
    """Such as `86.0 [77.9, 91.5]`, and `seeds 82.0 to 90.0` where there are several."""
    if figure is None:
        return MISSING
    seeds = "" if figure.seeds is None else " seeds {:.1f} to {:.1f}".format(*(100 * rate for rate in figure.seeds))
    return f"{100 * figure.value:.1f} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]{seeds}"


def _spell(context: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{name} {value}" for name, value in context) or "unknown: no episode got so far as to say"


def _without(cells: tuple[str, ...], position: int) -> tuple[str, ...]:
    return (*cells[:position], *cells[position + 1 :])


def _markdown(sheet: Sheet) -> str:
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{markdown(sheet.header, sheet.lines, padded=True)}\n{notes}"


def _latex(sheet: Sheet) -> str:
    notes = r" \\ ".join(map(latex_text, sheet.notes))
    return f"% {sheet.title}\n{latex(sheet.header, sheet.lines)}\\par\\footnotesize {notes}\n"


def _csv(sheet: Sheet) -> str:
    notes = [("# " + sheet.title, note) for note in sheet.notes]
    return csv_text([("Benchmark", *sheet.header), *((sheet.title, *line) for line in sheet.lines), *notes])
