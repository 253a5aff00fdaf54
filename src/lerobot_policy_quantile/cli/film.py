"""`qhead film`: an episode as a moving picture."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Write a moving picture of episodes: cameras, and beside them the predicted fan with what was executed.",
    "One picture per replan, from the video among the side files; several episodes stand one below the other, in step.",
    examples=(
        "qhead film runs/a --episode 0123456789abcdef --out a.gif",
        "qhead film runs/a --episode 0123456789abcdef --dimensions 0,1 --out a.mp4",
    ),
    exit_codes="0 the file was written; 1 there is no such episode or no pictures of it",
)


def film(
    run: Annotated[Path, typer.Argument(help="Folder written by `qhead eval --out`.")],
    episode: Annotated[
        list[str],
        typer.Option(help="Key of an episode, or the name of its side files without their ending. Repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="File to write: NAME.gif or NAME.mp4.")],
    dimensions: Annotated[str, typer.Option(help="Action dimensions whose fans are drawn, such as 0-2.")] = "0-2",
) -> None:
    """Write the film; `HELP` is what the user reads."""
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.explorer.film import write_film
    from lerobot_policy_quantile.explorer.run_reading import read_named

    with exit_on("film", ValueError, OSError):
        shown = parse_numbers("--dimensions", dimensions)
        pictures = write_film([read_named(run, text) for text in episode], shown, out)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.2f} MB, {pictures} pictures")
