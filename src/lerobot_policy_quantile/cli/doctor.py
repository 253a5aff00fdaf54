"""`qhead doctor`: is this machine ready to simulate and evaluate; is a run's folder whole?"""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Check that this machine can simulate and evaluate policies, or that a run is whole.",
    "Looks at package versions, SQLite, rendering, LIBERO's assets and thread settings, and prints a fix for every"
    " problem. ok: works; warn: works with restrictions; fail: does not work.",
    "With RUN: reads the run's journal, holds every row against its checksum and its context and every side file"
    " against its digest, and lists what is whole and what is not. Nothing is changed.",
    examples=("qhead doctor", "qhead doctor runs/a"),
    exit_codes="0 nothing failed; 1 something failed, or the run is damaged",
)


def doctor(
    run: Annotated[Path | None, typer.Argument(help="Folder written by `qhead eval --out`, or a journal file.")] = None,
) -> None:
    """Print the findings; `HELP` is what the user reads."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if run is None:
        from lerobot_policy_quantile.scenes import doctor as machine

        findings = machine.examine()
    else:
        from lerobot_policy_quantile.evaluation.run_check import examine_run

        findings = examine_run(run)
    title = "Doctor" if run is None else f"Doctor: {escape(str(run))}"
    table = Table("what", "result", "found", "fix", title=title, title_justify="left", header_style="bold")
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for finding in findings:
        result = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.what, result, escape(finding.found), escape(finding.fix))
    Console().print(table)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
