"""`qhead collect`: demonstrations of the scripted expert as a LeRobotDataset."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lerobot_policy_quantile.cli.errors import exit_on, usage_errors
from lerobot_policy_quantile.cli.options import SceneHelp, WordingOption, given_options, help_text
from lerobot_policy_quantile.scenes.libero.wording import require_wording
from lerobot_policy_quantile.util.exit_codes import STOPPED, WITH_ERRORS
from lerobot_policy_quantile.util.files import require_writable
from lerobot_policy_quantile.util.processes import share_cores
from lerobot_policy_quantile.util.tables import boxed
from lerobot_policy_quantile.util.wording import TASK

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.demonstration_folder import DemonstrationSet
    from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe

STUDY_SEED = 20260922

HELP = help_text(
    "Record demonstrations of the scripted expert as a LeRobotDataset.",
    "Without --suite: records one demonstration per route. All of them must succeed and begin identically (camera"
    " images, robot state, simulator state). With the obstacle, they must not touch it, and a straight control run must"
    " fail. Otherwise no dataset is written. OUT/paths.png and OUT/frames.png show the demonstrations.",
    "With --suite: records --episodes demonstrations of every LIBERO task, each in a style drawn from its seed and with"
    " disturbances, from initial states that evaluation does not use. Those that do not end solved are replaced by the"
    " next seed and counted in OUT/README.md, the data card. To resume or to add episodes, run the command again.",
    "With --suite libero_plus: records demonstrations in --instances perturbed instances, which no evaluation with"
    " --sample draws.",
    examples=(
        "qhead collect --out runs/demos",
        "qhead collect --scene libero_object+obstacle --routes left --out runs/box",
        "qhead collect --suite libero_object --episodes 10 --out runs/object",
        "qhead collect --suite libero_plus --instances 200 --out runs/plus",
        "lerobot-train --policy.type=quantile --dataset.root=runs/demos/dataset ...",
    ),
    exit_codes="0 the dataset was written; 1 it was not; 2 wrong usage; 3 it was written, but every attempt at some"
    " demonstrations failed; 130 stopped by Ctrl-C",
)

ROUTES, SUITE = "Two routes (without --suite)", "Demonstrations of a suite"
ROUTE_OPTIONS = ("scene", "routes", "task", "index")
SUITE_OPTIONS = ("episodes", "tasks", "states", "instances", "workers", "plain", "undisturbed")


def collect(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder for the dataset, the pictures and the summary; new for routes.")],
    scene: Annotated[str, typer.Option(help=SceneHelp, rich_help_panel=ROUTES)] = "embedded",
    routes: Annotated[
        str,
        typer.Option(
            help="Sides to pass the direct path on, separated by commas: left, right, straight.", rich_help_panel=ROUTES
        ),
    ] = "left,right",
    task: Annotated[int, typer.Option(min=0, help="Number of the scene's task.", rich_help_panel=ROUTES)] = 0,
    index: Annotated[
        int, typer.Option(min=0, help="Number of the task's stored initial state.", rich_help_panel=ROUTES)
    ] = 0,
    suite: Annotated[
        str | None,
        typer.Option(
            help="libero (all four suites), libero_object, ..., separated by commas; or libero_plus, ...",
            rich_help_panel=SUITE,
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Demonstrations per task or instance. Default: 10 per task, 1 per instance.",
            rich_help_panel=SUITE,
        ),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(
            min=1, help="LIBERO-Plus: number of instances, suites and categories in turn.", rich_help_panel=SUITE
        ),
    ] = None,
    tasks: Annotated[
        str, typer.Option(help="Numbers of the tasks in every suite, such as 0-9 or 0,2,5-7.", rich_help_panel=SUITE)
    ] = "0-9",
    states: Annotated[
        str, typer.Option(help="Stored initial states, taken in turn, within 20-44.", rich_help_panel=SUITE)
    ] = "20-44",
    workers: Annotated[int, typer.Option(min=1, help="Processes, one core each.", rich_help_panel=SUITE)] = min(
        2, os.cpu_count() or 1
    ),
    plain: Annotated[
        bool, typer.Option("--plain", help="Fast, straight motions instead of drawn styles.", rich_help_panel=SUITE)
    ] = False,
    undisturbed: Annotated[
        bool,
        typer.Option("--undisturbed", help="Execute the expert's actions as they are.", rich_help_panel=SUITE),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the simulator; with --suite, of styles and disturbances, too.")
    ] = STUDY_SEED,
    camera_size: Annotated[
        int, typer.Option(min=1, help="Width and height of the camera images, in pixels; 96 for the tiny policy.")
    ] = 256,
    repo_id: Annotated[str, typer.Option(help="Name of the dataset in LeRobot; nothing is uploaded.")] = (
        "qhead/demonstrations"
    ),
    wording: WordingOption = TASK,
) -> None:
    """Record demonstrations; `HELP` is what the user reads."""
    _refuse_beside(context, suite)
    if suite is not None:
        share_cores(workers)
        from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe

        with usage_errors(ValueError):
            chosen, starts = _tasks_of(context, suite, tasks, states, instances, seed)
            recipe = CollectionRecipe(
                tasks=chosen,
                episodes=episodes or (10 if instances is None else 1),
                seed=seed,
                states=starts,
                camera_size=camera_size,
                wording=require_wording(wording),
                plain=plain,
                undisturbed=undisturbed,
            )
        with exit_on("collect", ValueError):
            require_writable("--out", out)
        raise typer.Exit(_collect_suite(out, recipe, workers, repo_id))
    from rich.console import Console

    from lerobot_policy_quantile.adapters.factory import SceneFactory
    from lerobot_policy_quantile.scenes import demonstration_folder as folder

    with exit_on("collect", ValueError, OSError):
        require_writable("--out", out)
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


def _tasks_of(
    context: typer.Context, suite: str, tasks: str, states: str, instances: int | None, seed: int
) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
    """Tasks or instances to demonstrate, and the initial states to begin from."""
    from lerobot_policy_quantile.adapters.suites import parse_suites
    from lerobot_policy_quantile.evaluation.plan import parse_numbers
    from lerobot_policy_quantile.evaluation.tables.benchmarks import PLUS, SUITES, plus_scene
    from lerobot_policy_quantile.scenes.libero.plus_split import training_instances
    from lerobot_policy_quantile.scenes.suite_demonstrations import PLUS_STATES

    scenes = parse_suites(suite)
    if set(scenes) <= set(map(plus_scene, SUITES)):
        if instances is None or (given := given_options(context, "tasks", "states")):
            wrong = "no --instances" if instances is None else ", ".join(given)
            raise ValueError(f"--suite {PLUS} takes --instances in place of --tasks and --states; got {wrong}")
        return training_instances(scenes, instances, seed), PLUS_STATES
    if foreign := [name for name in scenes if name not in SUITES]:
        raise ValueError(
            f"--suite must name LIBERO suites (libero, {', '.join(SUITES)}) or LIBERO-Plus's alone; got {foreign[0]!r}"
        )
    if instances is not None:
        raise ValueError(f"--instances needs --suite {PLUS}; got --suite {suite}")
    chosen = tuple((name, number) for name in scenes for number in parse_numbers("--tasks", tasks))
    return chosen, parse_numbers("--states", states)


def _refuse_beside(context: typer.Context, suite: str | None) -> None:
    """Options of one way to collect are refused where the other was asked for."""
    given = given_options(context, *(SUITE_OPTIONS if suite is None else ROUTE_OPTIONS))
    if given:
        reason = "needs --suite" if suite is None else "cannot be combined with --suite"
        raise typer.BadParameter(f"{', '.join(given)} {reason}")


def _collect_suite(out: Path, recipe: "CollectionRecipe", workers: int, repo_id: str) -> int:
    """Collect with a bar, print where things are, and return the exit code."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # one for each demonstration, below ours
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from lerobot_policy_quantile.scenes.demonstration_folder import DATASET
    from lerobot_policy_quantile.scenes.suite_folder import README, collect_suite
    from lerobot_policy_quantile.util.progress import LoggedProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("failed attempts: {task.fields[failed]}"),
    )
    notes = Console(stderr=True)
    try:
        with (
            exit_on("collect", ValueError, OSError),
            LoggedProgress(*columns, TimeRemainingColumn(), TextColumn("left"), console=notes) as bar,
        ):
            line = bar.add_task("", total=None, failed=0)
            rows = collect_suite(
                out,
                recipe,
                workers=workers,
                repo_id=repo_id,
                told=lambda what, done, total, failed: bar.update(
                    line, description=what, completed=done, total=total, failed=failed
                ),
            )
    except KeyboardInterrupt:
        typer.echo("stopped; run the same command again to go on", err=True)
        return STOPPED
    good = sum(row["file"] is not None for row in rows)
    typer.echo(f"{good} demonstrations in {out / DATASET}; data card in {out / README}")
    if good < len(rows):
        typer.echo(f"{len(rows) - good} demonstrations are missing; the data card lists them", err=True)
        return WITH_ERRORS
    return 0


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
