"""`qhead table`: the benchmarks' tables from journals."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Print LIBERO, LIBERO-Plus, LIBERO-Pro and robot tables of one or several runs, with the paper's numbers.",
    "Policies named NAME#SEED (qhead eval --policy ours#0=FOLDER --policy ours#1=FOLDER) are training seeds of one"
    " method: each is aggregated separately, then they are averaged. Episodes run with different simulators, assets,"
    " protocols or weights get separate lines and are never averaged.",
    "Nothing is run, and the runs may still be in progress.",
    examples=("qhead table runs/a runs/b", "qhead table runs/a --format latex --no-published"),
    exit_codes="0 a table was printed; 1 a journal cannot be read or holds no episode of these benchmarks",
)


def table(
    folders: Annotated[list[Path], typer.Argument(help="Folders written by `qhead eval --out`, or journal files.")],
    style: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    published: Annotated[bool, typer.Option(help="Include the paper's numbers.")] = True,
) -> None:
    """Print the tables of journals; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.tables.folders import read_folders
    from lerobot_policy_quantile.evaluation.tables.sheet import FORMATS, render, sheets_of
    from lerobot_policy_quantile.util.names import require_choice

    with exit_on("table", JournalError, ValueError):
        require_choice("--format", style, FORMATS)
        rows, facts = read_folders(folders)
        sheets = sheets_of(rows, facts, published=published)
        if not sheets:
            raise ValueError(
                "FOLDERS must hold episodes of LIBERO, LIBERO-Plus, LIBERO-Pro or a Piper's trials;"
                f" got {len(rows)} rows of other scenes"
            )
        typer.echo("\n".join(render(sheet, style) for sheet in sheets), nl=False)
