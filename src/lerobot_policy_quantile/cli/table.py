"""`qhead table` and `qhead compare`: what journals say, without running anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from lerobot_policy_quantile.evaluation.journal import Row
    from lerobot_policy_quantile.evaluation.tables.facts import Facts

JOURNAL = "journal.sqlite"


def table(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `qhead eval --out` wrote, or journal files.")],
    style: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    published: Annotated[bool, typer.Option(help="Put the paper's rows beside ours.")] = True,
) -> None:
    """Print the LIBERO, LIBERO-Plus, LIBERO-Pro and robot tables of one or several runs beside the paper's.

    Policies named NAME#SEED (qhead eval --policy ours#0=... --policy ours#1=...) are the training seeds
    of one method: each is aggregated by itself, then they are averaged. Rows made with another simulator,
    other assets, another protocol or other weights are lines of their own, never averaged.

    Works while a run is still writing.
    """
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of

    try:
        rows, facts = read_folders(folders)
        sheets = sheets_of(rows, facts, published=published)
        if not sheets:
            raise ValueError(
                "FOLDERS must hold episodes of LIBERO, LIBERO-Plus, LIBERO-Pro or a Piper's trials;"
                f" got {len(rows)} rows of other scenes"
            )
        typer.echo("\n".join(render(sheet, style) for sheet in sheets), nl=False)
    except (JournalError, ValueError) as error:
        _fail("table", error)


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of run A.")],
    b: Annotated[Path, typer.Argument(help="Folder of run B; may be the same as A with other --policy-b.")],
    policy_a: Annotated[str | None, typer.Option(help="Policy of A, if it holds several.")] = None,
    policy_b: Annotated[str | None, typer.Option(help="Policy of B, if it holds several.")] = None,
    decoder_a: Annotated[str | None, typer.Option(help="Decoder of A, if it holds several.")] = None,
    decoder_b: Annotated[str | None, typer.Option(help="Decoder of B, if it holds several.")] = None,
) -> None:
    """Compare two runs on the episodes both judged: McNemar's test and a plain sentence.

    Episodes pair by scene, task, initial state and seed. Errors are no judgement and are left out.
    """
    from lerobot_policy_quantile.evaluation.journal import JournalError
    from lerobot_policy_quantile.evaluation.tables.intervals import compare as count
    from lerobot_policy_quantile.evaluation.tables.pairing import pair, select

    try:
        left = select(read_folders([a])[0], "A", policy_a, decoder_a)
        right = select(read_folders([b])[0], "B", policy_b, decoder_b)
        pairing = pair(left, right)
    except (JournalError, ValueError) as error:
        _fail("compare", error)
    typer.echo(count(pairing.pairs).sentence())
    if pairing.only_in_one:
        typer.echo(f"{pairing.only_in_one} further episodes were judged in one of the two only and are left out.")
    for difference in pairing.differences:
        typer.echo(f"Made differently: {difference}. The comparison is not only one of policies.")


def read_folders(folders: list[Path]) -> tuple[list["Row"], "Facts"]:
    """The rows of all journals and what is written beside them; the same episode twice is counted once."""
    from lerobot_policy_quantile.evaluation.journal import read_rows
    from lerobot_policy_quantile.evaluation.tables.facts import Facts, read_facts

    rows: dict[tuple[str, str], Row] = {}
    facts = Facts()
    for folder in folders:
        path = folder / JOURNAL if folder.is_dir() else folder
        for row in read_rows(path):
            rows.setdefault((row.key.text, repr(sorted(row.versions.items()))), row)
        facts += read_facts(path.parent)
    return list(rows.values()), facts


def _fail(command: str, error: Exception) -> None:
    Console(stderr=True, soft_wrap=True).print(f"qhead {command}: {error}", markup=False, highlight=False)
    raise typer.Exit(1) from None
