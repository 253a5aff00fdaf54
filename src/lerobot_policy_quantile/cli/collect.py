"""`qhead collect`: demonstrations of the scripted expert as a LeRobotDataset."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on
from lerobot_policy_quantile.cli.options import CameraSizeOption, SceneHelp, WordingOption, help_text
from lerobot_policy_quantile.scenes.libero.wording import require_wording
from lerobot_policy_quantile.util.tables import boxed
from lerobot_policy_quantile.util.wording import TASK

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.demonstration_folder import DemonstrationSet

STUDY_SEED = 20260922

HELP = help_text(
    "Record demonstrations of the scripted expert as a LeRobotDataset.",
    "Records one demonstration per route. All of them must succeed and begin identically (camera images, robot state,"
    " simulator state). With the obstacle, they must not touch it, and a straight control run must fail. Otherwise no"
    " dataset is written. OUT/paths.png and OUT/frames.png show the demonstrations.",
    examples=(
        "qhead collect --out runs/demos",
        "qhead collect --scene libero_object+obstacle --routes left --out runs/box",
        "lerobot-train --policy.type=quantile --dataset.root=runs/demos/dataset ...",
    ),
    exit_codes="0 the dataset was written; 1 it was not; 2 wrong usage",
)


def collect(
    out: Annotated[Path, typer.Option(help="New folder for the dataset, the pictures and the summary.")],
    scene: Annotated[str, typer.Option(help=SceneHelp)] = "embedded",
    routes: Annotated[
        str, typer.Option(help="Sides to pass the direct path on, separated by commas: left, right, straight.")
    ] = "left,right",
    task: Annotated[int, typer.Option(min=0, help="Number of the scene's task.")] = 0,
    index: Annotated[int, typer.Option(min=0, help="Number of the task's stored initial state.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulator.")] = STUDY_SEED,
    camera_size: CameraSizeOption = 256,
    repo_id: Annotated[str, typer.Option(help="Name of the dataset in LeRobot; nothing is uploaded.")] = (
        "qhead/demonstrations"
    ),
    wording: WordingOption = TASK,
) -> None:
    """Record demonstrations; `HELP` is what the user reads."""
    from rich.console import Console

    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.scenes import demonstration_folder as folder

    with exit_on("collect", ValueError):
        factory = SceneFactory(camera_size=camera_size, wording=require_wording(wording))
        folder.require_new_folder(out)
        plan = folder.parse_routes(routes)
        world = factory.scene(scene)
        try:
            made = folder.collect(world, (task, index, seed), plan, Console(stderr=True).status)
        finally:
            world.close()
        out.mkdir(parents=True, exist_ok=True)
        made.draw(out)
        _print(made)
        made.require_valid()
        made.write(out, scene=scene, repo_id=repo_id)
    typer.echo(f"starts identical; dataset in {out / folder.DATASET}, pictures in {out / 'paths.png'} and frames.png")


def _print(made: "DemonstrationSet") -> None:
    from rich.console import Console

    def yes(success: bool) -> str:
        return "yes" if success else "no"

    rows = []
    for facts in made.episodes:
        detour = f"{facts['detour_cm']:+.1f} cm"
        rows.append((facts["route"], yes(facts["success"]), str(facts["actions"]), detour, str(facts["contacts"])))
    if (control := made.control) is not None:
        rows.append(("straight (control)", yes(control.success), str(len(control.actions)), "", str(control.contacts)))
    Console().print(boxed("Demonstrations", ("route", "success", "actions", "detour", "contacts"), rows))
