"""`qhead decoders`: the decoder presets and what each does."""

import json
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.options import JsonOption, help_text

HELP = help_text(
    "List the decoder presets, or explain one decoder.",
    "A decoder turns predicted quantiles into actions. All decoders read the same prediction, so changing the decoder"
    " needs no retraining and no further forward pass. Use the printed text with --decoder of the other commands.",
    examples=("qhead decoders", 'qhead decoders "shared(l=0.2, rho=0.9)"'),
)


def decoders(
    text: Annotated[
        str | None,
        typer.Argument(help="Decoder to explain, such as 'shared(l=0.2, rho=0.9)'. Default: list all presets."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the presets or one decoder; `HELP` is what the user reads."""
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
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Decoders", title_justify="left", header_style="bold")
    for column in ("text", "paper", "what it does", "law | coupling | time | marginal | gripper"):
        table.add_column(column, overflow="fold")
    for t, preset, decoder in rows:
        table.add_row(t, preset.source, escape(preset.summary), str(decoder))
    Console().print(table)
