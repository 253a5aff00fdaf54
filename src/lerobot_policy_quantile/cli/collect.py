"""`qhead collect` and `qhead replay`: demonstrations of the scripted expert, and the proof that they repeat."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.libero.wording import TASK, require_wording
from lerobot_policy_quantile.util.files import write_json
from lerobot_policy_quantile.util.tables import boxed

if TYPE_CHECKING:
    from lerobot_policy_quantile.drawing.demonstration_pictures import Path3
    from lerobot_policy_quantile.scenes.contract import Scene
    from lerobot_policy_quantile.scenes.demonstrations import Demonstration

DATASET, STATES, SUMMARY = "dataset", "simulator_states.npz", "summary.json"
STUDY_SEED = 20260922


class CollectError(ValueError):
    """A demonstration is not what it must be; no dataset was written."""


def collect(
    out: Annotated[Path, typer.Option(help="New folder for the dataset, the pictures and the summary.")],
    scene: Annotated[
        str, typer.Option(help="embedded, libero_object, ...; +obstacle behind the name adds the box.")
    ] = "embedded",
    routes: Annotated[str, typer.Option(help="Sides to pass on, one demonstration each: left, right, straight.")] = (
        "left,right"
    ),
    task: Annotated[int, typer.Option(min=0, help="Task of the scene.")] = 0,
    index: Annotated[int, typer.Option(min=0, help="Stored initial state.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulator.")] = STUDY_SEED,
    camera_size: Annotated[int, typer.Option(min=1, help="Pixels of the square cameras.")] = 256,
    repo_id: Annotated[str, typer.Option(help="Name of the dataset in LeRobot; nothing is uploaded.")] = (
        "qhead/demonstrations"
    ),
    wording: Annotated[
        str, typer.Option(help="LIBERO's instructions: task.language, or bddl to train on from the shipped base.")
    ] = TASK,
) -> None:
    """Let the scripted expert demonstrate a task over several routes, and write a LeRobotDataset.

    All demonstrations must succeed, begin identically (both pictures, robot state, simulator state)
    and, in a scene with the obstacle, never touch it; the straight control must fail there. Otherwise
    no dataset is written and the exit code is 1. OUT/paths.png and OUT/frames.png show what happened.

    Train on it: lerobot-train --dataset.root=OUT/dataset --dataset.repo_id=qhead/demonstrations ...
    """
    try:
        factory = SceneFactory(camera_size=camera_size, wording=require_wording(wording))
        _collect(out, scene, [side.strip() for side in routes.split(",")], (task, index, seed), factory, repo_id)
    except ValueError as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead collect: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None


def replay(
    folder: Annotated[Path, typer.Argument(help="A folder that `qhead collect` wrote.")],
    episode: Annotated[int | None, typer.Option(min=0, help="One episode; all if left out.")] = None,
) -> None:
    """Drive the simulator with the stored actions again and compare where it ends, bit for bit.

    Exits with 1 if an episode ends elsewhere than its demonstration did.
    """
    try:
        same = _replay(folder, episode)
    except ValueError as error:
        Console(stderr=True, soft_wrap=True).print(f"qhead replay: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
    raise typer.Exit(0 if same else 1)


def _collect(
    out: Path, name: str, sides: list[str], key: tuple[int, int, int], factory: SceneFactory, repo_id: str
) -> None:
    from lerobot_policy_quantile.policy.normalisation import write_exact_statistics
    from lerobot_policy_quantile.scenes.demonstrations import require_identical_starts, write_dataset
    from lerobot_policy_quantile.scenes.experts.waypoints import Route

    if out.exists() and any(out.iterdir()):
        raise CollectError(f"--out must be a new or empty folder; got {out}")
    plan = [Route(side) for side in sides]  # refuses unknown sides before anything is built
    world = factory.scene(name)
    try:
        records, control, obstacle = _demonstrate_all(world, key, plan)
    finally:
        world.close()
    out.mkdir(parents=True, exist_ok=True)
    paths = [_path_of(record) for record in records]
    _draw(out, records, paths, obstacle)
    _print(records, paths, control)
    _require_as_promised(records, control)
    require_identical_starts(records)
    write_dataset(records, out / DATASET, repo_id)
    write_exact_statistics(out / DATASET)
    states: dict[str, Any] = {}
    for number, record in enumerate(records):
        states |= {f"start_{number}": record.start, f"end_{number}": record.end}
    np.savez(out / STATES, **states)
    summary = {
        "scene": name,
        "key": list(key),
        "repo_id": repo_id,
        "instruction": records[0].instruction,
        "versions": world.versions,
        "episodes": [_facts(record, path) for record, path in zip(records, paths, strict=True)],
    }
    write_json(out / SUMMARY, summary)
    typer.echo(f"starts identical; dataset in {out / DATASET}, pictures in {out / 'paths.png'} and frames.png")


def _demonstrate_all(
    world: "Scene", key: tuple[int, int, int], routes: list[Any]
) -> tuple[list["Demonstration"], "Demonstration | None", list[float] | None]:
    """One demonstration per route, and the straight control where there is an obstacle."""
    from lerobot_policy_quantile.scenes.demonstrations import demonstrate
    from lerobot_policy_quantile.scenes.experts.waypoints import Route

    console = Console(stderr=True)
    records = []
    for route in routes:
        with console.status(f"demonstrating in {world.name}: {route.side}"):
            records.append(demonstrate(world, key, route.around_obstacle() if world.obstacle else route))
    if not world.obstacle:
        return records, None, None
    with console.status("straight control"):
        control = demonstrate(world, key, Route("straight").around_obstacle(), pictures=False)
    place = world.layout().obstacle
    return records, control, None if place is None else place.tolist()


def _require_as_promised(records: list["Demonstration"], control: "Demonstration | None") -> None:
    for record in records:
        if not record.success:
            raise CollectError(f"the demonstration {record.route.side} must succeed; it ended without success")
        if record.contacts:
            raise CollectError(
                f"the demonstration {record.route.side} must not touch the obstacle; it did in {record.contacts} steps"
            )
    if control is not None and control.success:
        raise CollectError("the straight control must fail in the obstacle scene; it succeeded")


def _path_of(record: "Demonstration") -> "Path3":
    from lerobot_policy_quantile.drawing.demonstration_pictures import Path3

    closed = [step for step, action in enumerate(record.actions) if action[6] > 0]
    positions = np.array([state[:3] for state in record.states])
    return Path3(record.route.side, positions, closed[0] if closed else len(positions) - 1)


def _facts(record: "Demonstration", path: "Path3") -> dict[str, Any]:
    return {
        "route": record.route.side,
        "success": bool(record.success),
        "actions": len(record.actions),
        "detour_cm": round(100 * path.detour, 1),
        "contacts": int(record.contacts),
    }


def _draw(out: Path, records: list["Demonstration"], paths: list["Path3"], obstacle: list[float] | None) -> None:
    from lerobot_policy_quantile.drawing.demonstration_pictures import draw_frames, draw_paths

    draw_paths(paths, out / "paths.png", title=records[0].instruction, obstacle=obstacle)
    cameras = tuple(CAMERA_KEYS)
    pictures = {
        path.name: [record.frames[step][camera] for step in (0, path.widest_step, -1) for camera in cameras]
        for record, path in zip(records, paths, strict=True)
    }
    columns = [f"{moment} {camera}" for moment in ("start", "widest", "end") for camera in cameras]
    draw_frames(pictures, columns, out / "frames.png")


def _print(records: list["Demonstration"], paths: list["Path3"], control: "Demonstration | None") -> None:
    rows = []
    for record, path in zip(records, paths, strict=True):
        facts = _facts(record, path)
        detour = f"{facts['detour_cm']:+.1f} cm"
        rows.append((facts["route"], _word(record), str(facts["actions"]), detour, str(facts["contacts"])))
    if control is not None:
        rows.append(("straight (control)", _word(control), str(len(control.actions)), "", str(control.contacts)))
    Console().print(boxed("Demonstrations", ("route", "success", "actions", "detour", "contacts"), rows))


def _word(record: "Demonstration") -> str:
    return "yes" if record.success else "no"


def _replay(folder: Path, episode: int | None) -> bool:
    """Whether every replayed episode ended as its demonstration did."""
    from lerobot_policy_quantile.scenes.demonstrations import read_actions
    from lerobot_policy_quantile.scenes.demonstrations import replay as drive

    if not (folder / SUMMARY).is_file():
        raise ValueError(f"FOLDER must be one that qhead collect wrote, with {SUMMARY}; got {folder}")
    summary = json.loads((folder / SUMMARY).read_text())
    count = len(summary["episodes"])
    if episode is not None and episode >= count:
        raise ValueError(f"--episode must lie in 0..{count - 1}; got {episode}")
    task, index, seed = summary["key"]
    stored = np.load(folder / STATES, allow_pickle=False)
    world = SceneFactory(camera_size=16).scene(summary["scene"])
    same = True
    try:
        for number in range(count) if episode is None else [episode]:
            success, end = drive(world, (task, index, seed), list(read_actions(folder / DATASET, number)))
            equal = np.array_equal(end, stored[f"end_{number}"])
            same &= equal and success == summary["episodes"][number]["success"]
            verdict = "the same final simulator state" if equal else "ANOTHER final simulator state"
            route = summary["episodes"][number]["route"]
            typer.echo(f"episode {number} ({route}): {'success' if success else 'failure'}, {verdict}")
    finally:
        world.close()
    return bool(same)
