"""`qhead replay`: stored demonstrations, driven again."""

from pathlib import Path
from typing import Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import help_text

HELP = help_text(
    "Replay recorded demonstrations and compare how they end, bit for bit.",
    "Runs the stored actions in the simulator and compares the final simulator state with the recorded one.",
    examples=("qhead replay runs/demos", "qhead replay runs/demos --episode 0"),
    exit_codes="0 every episode ends as recorded; 1 an episode ends differently or cannot be replayed",
)

REPLAY_CAMERA_SIZE = 16
"""Pixels: the images are not looked at."""


def replay(
    folder: Annotated[Path, typer.Argument(help="A folder written by `qhead collect`.")],
    episode: Annotated[int | None, typer.Option(min=0, help="Number of the episode. Default: all.")] = None,
) -> None:
    """Replay stored episodes; `HELP` is what the user reads."""
    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.scenes.demonstration_folder import replay_folder

    same = True
    with exit_on("replay", ValueError):
        for done in replay_folder(folder, episode, SceneFactory(camera_size=REPLAY_CAMERA_SIZE).scene):
            same &= done.same
            end = "the same final simulator state" if done.same_end else "ANOTHER final simulator state"
            typer.echo(f"episode {done.number} ({done.route}): {'success' if done.success else 'failure'}, {end}")
    raise typer.Exit(0 if same else 1)
