"""`qhead report`: write a study's report again."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Write the report of a two-demonstration study again.",
    "Writes FOLDER/report.html, a single self-contained file, and FOLDER/report.md with its figures. Nothing is run."
    " The study may be unfinished or still running: the report names what is missing.",
    examples=("qhead report runs/demo",),
    exit_codes="0 the report was written; 1 the folder holds no study or cannot be read",
)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder written by `qhead study two-demo`.")],
) -> None:
    """Write the report; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.studies.two_demo.records import load_study
    from lerobot_policy_quantile.studies.two_demo.report.write import write_study_report

    with exit_on("report", ValueError, OSError, JournalError):
        typer.echo(f"report: {write_study_report(load_study(folder))}")
