"""A benchmark's table as Markdown, LaTeX or CSV: our lines, the paper's beside them, and what ours rest on."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from lerobot_policy_quantile.evaluation.aggregate import Line, benchmark_of, benchmarks_in, columns_of, lines_of
from lerobot_policy_quantile.evaluation.benchmarks import PLUS, PRO, ROBOT
from lerobot_policy_quantile.evaluation.facts import Facts
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.published import published_tables
from lerobot_policy_quantile.evaluation.statistics import Interval

FORMATS = ("markdown", "latex", "csv")
TITLES = {"libero": "LIBERO", PLUS: "LIBERO-Plus", PRO: "LIBERO-Pro", ROBOT: "AgileX Piper"}
MISSING = "-"


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
    header = ("Method", "Suite", "Decoder", *columns, "Seconds", "Ran", "Seeds", "Made with")
    cells = [_cells(line, columns, marks[line.context]) for line in lines]
    if published:
        cells += _published(benchmark, columns)
    if benchmark in ("libero", ROBOT):  # their suites or tasks are columns
        header, cells = _without(header, 1), [_without(line, 1) for line in cells]
    notes = [f"{mark}: {_spell(context)}" for context, mark in marks.items()]
    scenes = sorted({row.key.scene for row in rows if benchmark_of(row.key.scene) == benchmark})
    notes += [f"{count} not run: {reason}" for reason, count in facts.reasons(scenes).items()]
    notes.append("Rates in per cent with 95 % intervals: Wilson for one model, bootstrap over seeds for several.")
    notes.append("Ran: judged episodes of the whole benchmark's; errors are not judged and never count as failures.")
    return Sheet(TITLES[benchmark], header, tuple(cells), tuple(notes))


def _cells(line: Line, columns: Sequence[str], mark: str) -> tuple[str, ...]:
    ran = str(line.judged) if line.population is None else f"{line.judged} of {line.population}"
    ran += f", {line.errors} errors" if line.errors else ""
    seconds = MISSING if line.seconds is None else f"{line.seconds:.2f}"
    rates = (per_cent(line.cells.get(column)) for column in columns)
    return (line.method, line.suite, line.decoder, *rates, seconds, ran, str(line.models), mark)


def _published(benchmark: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    return [
        (
            row.method,
            "",
            "",
            *(f"{row.rates[column]:g}" if column in row.rates else MISSING for column in columns),
            MISSING,
            MISSING,
            MISSING,
            row.source,
        )
        for rows in published_tables(benchmark).values()
        for row in rows
    ]


def per_cent(figure: Interval | None) -> str:
    """Such as `86.0 [77.9, 91.5]`."""
    if figure is None:
        return MISSING
    return f"{100 * figure.value:.1f} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def _spell(context: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{name} {value}" for name, value in context) or "unknown: no episode got so far as to say"


def _without(cells: tuple[str, ...], position: int) -> tuple[str, ...]:
    return (*cells[:position], *cells[position + 1 :])


def _markdown(sheet: Sheet) -> str:
    grid = [sheet.header, *sheet.lines]
    widths = [max(len(cell) for cell in column) for column in zip(*grid, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|\n"
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |\n" for line in grid
    )
    notes = "".join(f"- {note}\n" for note in sheet.notes)
    return f"### {sheet.title}\n\n{head}{rule}{''.join(body)}\n{notes}"


_LATEX = str.maketrans(
    {
        **{c: rf"\{c}" for c in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


def _latex(sheet: Sheet) -> str:
    def line(cells: Sequence[str]) -> str:
        return "  " + " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\" + "\n"

    notes = r" \\ ".join(note.translate(_LATEX) for note in sheet.notes)
    columns = "l" * len(sheet.header)
    return (
        f"% {sheet.title}\n\\begin{{tabular}}{{{columns}}}\n  \\toprule\n{line(sheet.header)}  \\midrule\n"
        f"{''.join(map(line, sheet.lines))}  \\bottomrule\n\\end{{tabular}}\n\\par\\footnotesize {notes}\n"
    )


def _csv(sheet: Sheet) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("Benchmark", *sheet.header))
    writer.writerows((sheet.title, *line) for line in sheet.lines)
    writer.writerows(("# " + sheet.title, note) for note in sheet.notes)
    return buffer.getvalue()
