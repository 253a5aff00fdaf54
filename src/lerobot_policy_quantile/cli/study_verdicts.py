"""`qhead study verdicts`: does the paper hold? One page over all studies."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Write one line per claim of the paper: its figures, ours, the interval, and whether the claim holds.",
    "Reads the files that `qhead study run --miniature --summary` and `qhead study summarise` wrote, and runs the"
    " checks of `qhead verify`. Claims whose study has no results are listed as not run.",
    examples=(
        "qhead study verdicts results",
        "qhead study verdicts results --out results/does_it_hold.md",
    ),
    exit_codes="0 the page was written; 1 a file cannot be read",
)


def verdicts(
    folder: Annotated[Path, typer.Argument(help="Folder of the studies' files (STUDY.json).")] = Path(
        "docs/results/miniature"
    ),
    two_demo: Annotated[Path, typer.Option(help="Folder of the two-demonstration study's files.")] = Path(
        "docs/results/two_demo"
    ),
    out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None,
) -> None:
    """Write the page; `HELP` is what the user reads."""
    from lerobot_policy_quantile.core.theory.checks import run_checks
    from lerobot_policy_quantile.studies.miniature.verdicts import (
        pages_beside,
        read_studies,
        verdict_lines,
        verdict_page,
    )
    from lerobot_policy_quantile.studies.two_demo.summary import read_summaries
    from lerobot_policy_quantile.util.files import write_text

    with exit_on("study verdicts", ValueError, OSError):
        studies = read_studies(folder)
        lines = verdict_lines(studies, read_summaries(two_demo), run_checks())
        text = verdict_page(lines, pages_beside(out, folder, two_demo), studies)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_text(out, text)
    typer.echo(text if out is None else f"{len(lines)} claims in {out}", nl=out is not None)
