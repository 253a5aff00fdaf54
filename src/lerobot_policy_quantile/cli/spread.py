"""`qhead spread`: how wide predictions were over the episodes of a run."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Draw the predicted action spread over the episodes of a run (paper, Fig. 5 and 9).",
    "Reads the journal and the side files that `qhead eval` wrote; nothing is run. One episode is drawn over its"
    " control steps, several on average over normalised time with a band over episodes.",
    "Writes spread.svg, spread.json and spread.csv. The mean over motion dimensions is in normalised units and needs"
    " the policy's folder: --policy NAME=FOLDER, or a run whose policy is named by its folder.",
    examples=(
        "qhead spread runs/libero --scene libero_10 --task 3 --policy ours=FOLDER",
        "qhead spread runs/a --episode 0123456789abcdef --out runs/a/one",
    ),
    exit_codes="0 the files were written; 1 the run cannot be read or holds no such episode",
)


def spread(
    run: Annotated[Path, typer.Argument(help="Folder written by `qhead eval --out`.")],
    episode: Annotated[
        str | None, typer.Option(help="Key of one episode, or the name of its side files without their ending.")
    ] = None,
    scene: Annotated[str | None, typer.Option(help="Only this scene. Needed if the run holds several.")] = None,
    task: Annotated[int | None, typer.Option(min=0, help="Only this task.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="NAME or NAME=FOLDER: only this policy, and where it is. Needed if the run holds several."),
    ] = None,
    decoder: Annotated[str | None, typer.Option(help="Only this decoder. Needed if the run holds several.")] = None,
    status: Annotated[str | None, typer.Option(help="Only episodes that ended so: success or failure.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the three files. Default: RUN/spread.")] = None,
) -> None:
    """Draw the spread; `HELP` is what the user reads."""
    from lerobot_policy_quantile.calibration.spread import EpisodeChoice, choose_rows, own_folder, read_spread
    from lerobot_policy_quantile.calibration.spread_files import FIGURE, NUMBERS, TABLE, spread_table, write_spread
    from lerobot_policy_quantile.evaluation.journal import JournalError

    name, _, folder = (policy or "").partition("=")
    with exit_on("spread", ValueError, OSError, JournalError):
        rows = choose_rows(run, EpisodeChoice(episode, scene, task, name or None, decoder, status))
        place = Path(folder) if folder else own_folder(rows)
        episodes = read_spread(run, rows, place)
        target = out or (run if run.is_dir() else run.parent) / "spread"
        write_spread(episodes, target)
    typer.echo(spread_table(episodes), nl=False)
    if place is None:
        typer.echo("no mean in normalised units: give the policy's folder, --policy NAME=FOLDER", err=True)
    typer.echo(f"written: {FIGURE}, {NUMBERS} and {TABLE} in {target}", err=True)
