"""`qhead study summarise`: journals of a study as small files and one page."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Combine the results of two-demonstration studies into small files and one page.",
    "Writes one file per arm and training seed, and README.md and rates.svg over all of them. A study that was run in"
    " parts, on other days or machines, is combined this way; parts with different settings, weights or simulators are"
    " refused.",
    examples=(
        "qhead study summarise runs/part1 runs/part2 --into results/two_demo",
        "qhead study summarise --into results/two_demo",
    ),
    exit_codes="0 the page was written; 1 a folder cannot be read or does not fit the others",
)


def summarise(
    into: Annotated[Path, typer.Option(help="Folder of the summaries; those it already holds are kept.")],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders written by `qhead study two-demo`, finished or not. Without any, only the page is rewritten."
        ),
    ] = None,
) -> None:
    """Combine results; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.report.summarise import summarise_folders
    from lerobot_policy_quantile.studies.two_demo.report.summary_page import PAGE

    with exit_on("study summarise", ValueError, OSError, JournalError):
        found = summarise_folders(folders or (), into)
    typer.echo(f"{sum(summary.episodes for summary in found)} episodes in {len(found)} files; {into / PAGE}")
