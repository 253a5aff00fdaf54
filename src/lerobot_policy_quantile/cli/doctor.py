"""`qhead doctor`: is this machine ready to simulate and evaluate?"""

import typer

from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Check that this machine can simulate and evaluate policies.",
    "Looks at package versions, SQLite, rendering, LIBERO's assets and thread settings, and prints a fix for every"
    " problem. ok: works; warn: works with restrictions; fail: does not work.",
    examples=("qhead doctor",),
    exit_codes="0 nothing failed; 1 something failed",
)


def doctor() -> None:
    """Print the findings; `HELP` is what the user reads."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lerobot_policy_quantile.scenes.doctor import examine

    findings = examine()
    table = Table("what", "result", "found", "fix", title="Doctor", title_justify="left", header_style="bold")
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for finding in findings:
        result = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.what, result, escape(finding.found), escape(finding.fix))
    Console().print(table)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
