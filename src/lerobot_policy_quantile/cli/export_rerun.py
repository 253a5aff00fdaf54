"""`qhead export-rerun`: an episode as a Rerun recording."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Write an episode as a Rerun recording: cameras, actions, fans, ranks, spread and the hand's path.",
    "Open the file with `rerun FILE`; a blueprint inside arranges the views.",
    examples=("qhead export-rerun runs/a --episode 0123456789abcdef --out a.rrd",),
    exit_codes="0 the file was written; 1 there is no such episode, or no arrays of it",
)


def export_rerun(
    run: Annotated[Path, typer.Argument(help="Folder written by `qhead eval --out`.")],
    episode: Annotated[
        str, typer.Option(help="Key of the episode, or the name of its side files without their ending.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write. Default: DIGEST.rrd in this folder.")] = None,
) -> None:
    """Write the recording; `HELP` is what the user reads."""
    from lerobot_policy_quantile.explorer.rerun_file import write_recording
    from lerobot_policy_quantile.explorer.run_reading import read_named

    with exit_on("export-rerun", ValueError, OSError):
        found, row = read_named(run, episode)
        target = out or Path(f"{row.key.digest}.rrd")
        for problem in write_recording(found, row, target):
            typer.echo(problem, err=True)
    typer.echo(f"{target}: {target.stat().st_size / 1e6:.2f} MB")
