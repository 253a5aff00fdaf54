"""`qhead doctor`: is this machine ready to simulate and evaluate; is a run's folder whole?"""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Check that this machine can simulate and evaluate policies, or that a run is whole.",
    "Looks at package versions, SQLite, rendering, LIBERO's assets and thread settings, and prints a fix for every"
    " problem. ok: works; warn: works with restrictions; fail: does not work.",
    "With RUN: reads the run's journal, holds every row against its checksum and its context and every side file"
    " against its digest, and lists what is whole and what is not. Nothing in RUN is changed. --rescue copies what is"
    " whole into a new folder, where the command that made RUN runs what was lost.",
    examples=("qhead doctor", "qhead doctor runs/a", "qhead doctor runs/a --rescue runs/a-whole"),
    exit_codes="0 nothing failed; 1 something failed, or the run is damaged",
)


def doctor(
    run: Annotated[Path | None, typer.Argument(help="Folder written by `qhead eval --out`, or a journal file.")] = None,
    rescue: Annotated[
        Path | None, typer.Option(help="New folder to copy what is whole of RUN into; RUN must be a folder.")
    ] = None,
) -> None:
    """Print the findings; `HELP` is what the user reads."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if rescue is not None and (run is None or not run.is_dir()):
        raise typer.BadParameter(f"--rescue needs the folder of a run; got {run}")
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
    if run is not None and rescue is not None:
        _rescue(run, rescue)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)


def _rescue(run: Path, target: Path) -> None:
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.rescue import rescue

    with exit_on("doctor", JournalError, OSError):
        typer.echo(f"{rescue(run, target)} results rescued into {target}")
