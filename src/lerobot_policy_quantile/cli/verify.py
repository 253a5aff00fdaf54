"""`qhead verify`: the numerical checks of the paper's theory."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.options import JsonOption, help_text

HELP = help_text(
    "Check the paper's theorems numerically.",
    "Prints one line per claim: what the theory predicts, what was measured, and the result. The result is pass, fail,"
    " or outside, where the theorem's conditions do not hold and the measured number is only reported.",
    examples=("qhead verify", "qhead verify --seed 3 --json"),
    exit_codes="0 no check failed; 1 a check failed",
)

_COLOURS = {"pass": "green", "fail": "bold red", "outside": "yellow"}


def verify(
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Print the theory checks; `HELP` is what the user reads."""
    from lerobot_policy_quantile.core.theory.checks import run_checks

    checks = run_checks(seed)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(title="Theory checks", title_justify="left", header_style="bold")
        for column in ("claim", "paper", "theory says", "measured", "result"):
            table.add_column(column, overflow="fold")
        for check in checks:
            result = f"[{_COLOURS[check.status]}]{check.status}[/]"
            table.add_row(check.claim, check.paper, check.theory, check.measured, result)
        counts = {status: sum(check.status == status for check in checks) for status in _COLOURS}
        console = Console()
        console.print(table)
        console.print(
            f"{counts['pass']} pass, {counts['fail']} fail,"
            f" {counts['outside']} outside the theorem's conditions (reported, not claimed)"
        )
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)
