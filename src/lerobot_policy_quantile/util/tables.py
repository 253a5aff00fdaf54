"""Tables of texts: aligned columns, Markdown, LaTeX, CSV, and boxes on a terminal."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

Cells = Sequence[str]

_LATEX = str.maketrans(
    {
        **{c: rf"\{c}" for c in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


def aligned(lines: Sequence[Cells], *, left: int) -> str:
    """Columns two spaces apart, the first `left` of them flush left and the others flush right."""
    sides = [str.ljust if i < left else str.rjust for i in range(len(lines[0]))]
    widths = _widths(lines)
    padded = ([pad(cell, width) for pad, cell, width in zip(sides, line, widths, strict=True)] for line in lines)
    return "".join("  ".join(cells).rstrip() + "\n" for cells in padded)


def markdown(header: Cells, rows: Iterable[Cells], *, padded: bool = False) -> str:
    """A Markdown table; `padded` gives all cells of a column the same width, for those who read the text itself."""
    grid = [header, *rows]
    if not padded:
        return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, ["---"] * len(header), *grid[1:]))
    widths = _widths(grid)
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |\n" for line in grid
    )
    return f"{head}|{'|'.join('-' * (width + 2) for width in widths)}|\n{''.join(body)}"


def latex(header: Cells, rows: Iterable[Cells]) -> str:
    """A `tabular` with booktabs' rules."""

    def line(cells: Cells) -> str:
        return "  " + " & ".join(map(latex_text, cells)) + r" \\" + "\n"

    return (
        f"\\begin{{tabular}}{{{'l' * len(header)}}}\n  \\toprule\n{line(header)}  \\midrule\n"
        f"{''.join(map(line, rows))}  \\bottomrule\n\\end{{tabular}}\n"
    )


def latex_text(words: str) -> str:
    """Words that LaTeX prints as they are."""
    return words.translate(_LATEX)


def csv_text(rows: Iterable[Cells]) -> str:
    """One line per row, quoted where a cell needs it."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def boxed(title: str, header: Cells, rows: Iterable[Cells], *, fold: bool = False) -> "Table":
    """For a terminal; cells may hold rich's markup. `fold` breaks words that are too long instead of cutting them."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in header:
        table.add_column(column, overflow="fold" if fold else "ellipsis")
    for cells in rows:
        table.add_row(*cells)
    return table


def _widths(lines: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]
