"""`qhead`: the command line, and the only file that wires rooms together."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lerobot_policy_quantile.cli.collect import collect, replay
from lerobot_policy_quantile.cli.data import data
from lerobot_policy_quantile.cli.eval import EVAL_HELP, doctor, evaluate
from lerobot_policy_quantile.cli.pretrain import pretrain
from lerobot_policy_quantile.cli.report import report
from lerobot_policy_quantile.cli.serve import SERVE_HELP, client, serve
from lerobot_policy_quantile.cli.study_run import RUN_HELP, run
from lerobot_policy_quantile.cli.study_two_demo import study
from lerobot_policy_quantile.cli.table import compare, table
from lerobot_policy_quantile.util.extras import needs
from lerobot_policy_quantile.util.tables import boxed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Quantile action head for vision-language-action policies.",
)

_COLOURS = {"pass": "green", "fail": "bold red", "outside": "yellow"}

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback()
def _root() -> None:
    """Without it, typer would hide the name of a lone command."""


@app.command()
def verify(
    seed: Annotated[int, typer.Option(help="Seed of everything that is sampled.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check the method's theory by numbers: claim, what the theory says, what was measured.

    Results are pass, fail, or outside (the theorem's conditions do not hold there; the number is
    reported all the same). Exits with 1 if any check fails.
    """
    from lerobot_policy_quantile.core.theory.checks import run_checks

    checks = run_checks(seed)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        columns = ("claim", "paper", "theory says", "measured", "result")
        rows = [(c.claim, c.paper, c.theory, c.measured, f"[{_COLOURS[c.status]}]{c.status}[/]") for c in checks]
        counts = {status: sum(check.status == status for check in checks) for status in _COLOURS}
        console = Console()
        console.print(boxed("Theory checks", columns, rows, fold=True))
        console.print(
            f"{counts['pass']} pass, {counts['fail']} fail,"
            f" {counts['outside']} outside the theorem's conditions (reported, not claimed)"
        )
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@app.command()
def decoders(
    text: Annotated[
        str | None, typer.Argument(help="A decoder such as 'shared(l=0.2, rho=0.9)'; all presets if left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the decoder presets, or show what one text means.

    Every decoder reads the same predicted quantiles: no retraining, no further forward pass.
    """
    from lerobot_policy_quantile.core.decoders import PRESETS, canonical_text, parse_decoder

    try:
        texts = [preset.text() for preset in PRESETS.values()] if text is None else [canonical_text(text)]
        rows = [(t, PRESETS[t.split("(")[0]], parse_decoder(t)) for t in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="TEXT") from None
    if as_json:
        listing = [
            {"decoder": t, "paper": preset.source, "summary": preset.summary, "composition": str(decoder)}
            for t, preset, decoder in rows
        ]
        typer.echo(json.dumps(listing, indent=2))
        return
    columns = ("text", "paper", "what it does", "law | coupling | time | marginal | gripper")
    cells = [(t, preset.source, escape(preset.summary), str(decoder)) for t, preset, decoder in rows]
    Console().print(boxed("Decoders", columns, cells, fold=True))


app.command()(needs("sim")(collect))
app.command()(needs("sim")(replay))
app.command()(needs("sim")(pretrain))
app.command("eval", help=EVAL_HELP)(needs("sim")(evaluate))
app.command()(table)
app.command()(compare)
app.command("serve", help=SERVE_HELP)(needs("serve")(serve))
app.command()(needs("serve")(client))
app.command()(doctor)
app.command()(needs("report")(report))
study.command("run", help=RUN_HELP)(run)
app.add_typer(study, name="study")
app.add_typer(data, name="data")


if __name__ == "__main__":
    app()
