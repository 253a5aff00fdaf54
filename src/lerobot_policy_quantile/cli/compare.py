"""`qhead compare`: two runs on the episodes that both have."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Compare two runs on the episodes they share, with McNemar's test.",
    "Episodes are paired by scene, task, initial state and seed. Episodes that ended in an error are left out.",
    examples=(
        "qhead compare runs/a runs/b",
        "qhead compare runs/a runs/a --decoder-a median --decoder-b native",
    ),
    exit_codes="0 the comparison was printed; 1 a journal cannot be read or the runs share no episode",
)


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of run A.")],
    b: Annotated[Path, typer.Argument(help="Folder of run B; may be A, to compare two policies or decoders.")],
    policy_a: Annotated[str | None, typer.Option(help="Policy of A. Needed if A holds several.")] = None,
    policy_b: Annotated[str | None, typer.Option(help="Policy of B. Needed if B holds several.")] = None,
    decoder_a: Annotated[str | None, typer.Option(help="Decoder of A. Needed if A holds several.")] = None,
    decoder_b: Annotated[str | None, typer.Option(help="Decoder of B. Needed if B holds several.")] = None,
) -> None:
    """Print a paired comparison; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.side_files import SideFiles
    from lerobot_policy_quantile.evaluation.tables.folders import read_folders
    from lerobot_policy_quantile.evaluation.tables.intervals import compare as count
    from lerobot_policy_quantile.evaluation.tables.motion import motion_of, paired_motion
    from lerobot_policy_quantile.evaluation.tables.pairing import pair, select
    from lerobot_policy_quantile.util.names import require_choice

    with exit_on("compare", JournalError, ValueError):
        left, right = read_folders([a])[0], read_folders([b])[0]
        for option, value, known in (
            ("--policy-a", policy_a, {row.key.policy for row in left}),
            ("--policy-b", policy_b, {row.key.policy for row in right}),
            ("--decoder-a", decoder_a, {row.key.decoder for row in left}),
            ("--decoder-b", decoder_b, {row.key.decoder for row in right}),
        ):
            if value is not None and known:
                require_choice(option, value, sorted(known))
        chosen = select(left, "A", policy_a, decoder_a), select(right, "B", policy_b, decoder_b)
        pairing = pair(*chosen)
        moved = [
            {key: motion for key, row in rows.items() if (motion := motion_of(row, SideFiles(folder / "side")))}
            for rows, folder in zip(chosen, (a, b), strict=True)
        ]
    typer.echo(count(pairing.pairs).sentence())
    if pairing.only_in_one:
        typer.echo(f"{pairing.only_in_one} further episodes were judged in one of the two only and are left out.")
    for line in paired_motion(*moved):
        typer.echo(line)
    for difference in pairing.differences:
        typer.echo(f"Made differently: {difference}. The comparison is not only one of policies.")
