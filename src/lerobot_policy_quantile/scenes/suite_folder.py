"""The folder that `qhead collect --suite` writes: a file per demonstration, the LeRobotDataset made of them, a card."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from lerobot_policy_quantile import __version__
from lerobot_policy_quantile.scenes.demonstration_folder import DATASET, require_new_folder
from lerobot_policy_quantile.scenes.demonstrations import write_episodes
from lerobot_policy_quantile.scenes.suite_demonstrations import (
    PLUS_STATES,
    CollectionRecipe,
    Row,
    StoredDemonstration,
    close_scenes,
    make_demonstration,
)
from lerobot_policy_quantile.util.files import TEMPORARY, write_json, write_text
from lerobot_policy_quantile.util.locks import alone
from lerobot_policy_quantile.util.pool import WorkerPool
from lerobot_policy_quantile.util.stamps import Stamp

EPISODES, CARD, README = "episodes", "card.json", "README.md"
LIST = Path("meta") / "demonstrations.json"
"""In the dataset: scene, task, initial state, seed and style of every episode."""

Told = Callable[[str, int, int, int], None]
"""What is being written, how many demonstrations of it are, of how many, and attempts that failed."""


def collect_suite(out: Path, recipe: CollectionRecipe, *, workers: int, repo_id: str, told: Told) -> list[Row]:
    """Make what is missing in the folder, then dataset and card. A row per demonstration, in the dataset's order."""
    versions = recipe.require_possible()
    versions |= {"lerobot_policy_quantile": __version__, "lerobot": version("lerobot")}
    folder = out / EPISODES
    stamp = Stamp(out, "recipe", recipe.inputs() | {"repo_id": repo_id, "versions": versions})
    if not stamp.done():
        require_new_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        stamp.write()
    folder.mkdir(exist_ok=True)
    with alone(folder, "collection"):
        rows = _make_missing(folder, recipe, workers, told)
        good = [row for row in rows if row["file"]]
        if not good:
            raise ValueError(
                f"at least one demonstration must succeed for a dataset; got none in {len(rows)} of"
                f" {recipe.tries} attempts each (see {folder})"
            )
        _write_dataset(out, good, repo_id, recipe.camera_size, told)
    card = card_of(recipe, rows, versions)
    write_json(out / CARD, card)
    write_text(out / README, card_text(card))
    return rows


def _make_missing(folder: Path, recipe: CollectionRecipe, workers: int, told: Told) -> list[Row]:
    slots = list(recipe.slots())
    rows = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    if beyond := sorted(rows.keys() - {slot.name for slot in slots}):
        raise ValueError(
            f"--episodes must be at least {1 + max(rows[name]['number'] for name in beyond)}, as many as"
            f" {folder} holds; got {recipe.episodes}; use another --out for fewer"
        )
    missing = [slot for slot in slots if slot.name not in rows]

    def tell() -> None:
        told(EPISODES, len(rows), len(slots), _failed(rows.values()))

    tell()
    try:
        with WorkerPool(workers) as pool:
            for number, row in pool.each(make_demonstration, [(recipe, slot, folder) for slot in missing]):
                rows[missing[number].name] = row
                tell()
    finally:
        close_scenes()
    return [rows[slot.name] for slot in slots]


def _failed(rows: Iterable[Row]) -> int:
    return sum(not attempt["good"] for row in rows for attempt in row["attempts"])


def _write_dataset(out: Path, rows: list[Row], repo_id: str, camera_size: int, told: Told) -> None:
    """Built beside its place and moved there, unless these demonstrations are there already."""
    from lerobot_policy_quantile.policy.normalisation import write_exact_statistics

    root, building = out / DATASET, out / f"{DATASET}{TEMPORARY}"
    listed = [
        {"episode_index": number}
        | {name: row[name] for name in ("scene", "task", "instruction", "state", "seed", "style", "steps")}
        for number, row in enumerate(rows)
    ]
    if (root / LIST).is_file() and json.loads((root / LIST).read_text()) == listed:
        return
    shutil.rmtree(building, ignore_errors=True)

    def stored() -> Iterator[StoredDemonstration]:
        for number, row in enumerate(rows):
            told(DATASET, number, len(rows), _failed(rows))
            yield StoredDemonstration.load(out / EPISODES / row["file"])
        told(DATASET, len(rows), len(rows), _failed(rows))

    write_episodes(stored(), building, repo_id, camera_size=camera_size)
    write_exact_statistics(building)
    write_json(building / LIST, listed)
    shutil.rmtree(root, ignore_errors=True)
    building.rename(root)


def card_of(recipe: CollectionRecipe, rows: list[Row], versions: dict[str, str]) -> dict[str, Any]:
    """Everything the data card says, and every demonstration's row."""
    tasks = []
    for scene, task in recipe.tasks:
        own = [row for row in rows if (row["scene"], row["task"]) == (scene, task)]
        attempts = [attempt for row in own for attempt in row["attempts"]]
        steps = sorted(row["steps"] for row in own if row["file"])
        tasks.append(
            {
                "scene": scene,
                "task": task,
                "instruction": own[0]["instruction"],
                "demonstrations": len(steps),
                "given_up": len(own) - len(steps),
                "attempts": len(attempts),
                "successes": sum(attempt["good"] for attempt in attempts),
                "steps": [steps[0], median(steps), steps[-1]] if steps else None,
                **{
                    f"{name}_per_demonstration": round(sum(a[name] for a in attempts) / max(len(steps), 1), 1)
                    for name in ("seconds", "cpu_seconds")
                },
            }
        )
    errors = [
        f"{row['scene']} task {row['task']}, demonstration {row['number']} (state {row['state']}): none of"
        f" {len(row['attempts'])} attempts left the task solved"
        for row in rows
        if not row["file"]
    ]
    settings = recipe.inputs() | {"episodes": recipe.episodes}
    return {"recipe": settings, "versions": versions, "tasks": tasks, "errors": errors, "demonstrations": rows}


def _starts(recipe: dict[str, Any]) -> str:
    if tuple(recipe["states"]) == PLUS_STATES:
        return (
            "each LIBERO-Plus instance's own; instances that `qhead eval --sample` draws from are kept for evaluation"
        )
    return f"{_ranges(recipe['states'])}, in turn; 0 to 19 are kept for evaluation"


def card_text(card: dict[str, Any]) -> str:
    """The data card."""
    recipe, tasks = card["recipe"], card["tasks"]
    style = (
        "All in the expert's plain style (speed 0.9, straight approach, no pause)."
        if recipe["plain"]
        else "Each in a style drawn from its seed: speed, bow and height of the approach, side of the grasp, pause"
        " before the fingers close."
    )
    disturbed = (
        "None: the robot executed the labels."
        if recipe["undisturbed"]
        else f"{', '.join(recipe['disturbances'])}. The robot executed the disturbed action; `action` is the expert's"
        " own answer at that state."
    )
    lines = [
        "# Demonstrations of LIBERO tasks by a scripted expert",
        "",
        f"{sum(task['demonstrations'] for task in tasks)} demonstrations of {len(tasks)} tasks, written by"
        f" `qhead collect --suite`. `{DATASET}/` is a LeRobotDataset (v3) with exact 1 % and 99 % quantiles;"
        f" `{DATASET}/{LIST}` lists task, initial state, seed and style of every episode. `{EPISODES}/` holds one file"
        " per demonstration, executed actions included; it is needed only to add demonstrations.",
        "",
        "| | |",
        "|---|---|",
        f"| cameras | external and wrist, {recipe['camera_size']} x {recipe['camera_size']} pixels, 20 Hz |",
        f"| instructions | `{recipe['wording']}` |",
        f"| initial states | {_starts(recipe)} |",
        f"| seed | {recipe['seed']}; each attempt's own is in `{CARD}` |",
        f"| styles | {style} |",
        f"| disturbances | {disturbed} |",
        "| success | solved 50 to 100 steps after LIBERO's flag, the hand open and away; otherwise the next seed is"
        f" tried, at most {recipe['tries']} |",
        f"| versions | {', '.join(f'{name} {value}' for name, value in card['versions'].items())} |",
        "",
        "Table: demonstrations by task. Steps are minimum, median and maximum; seconds (and of them CPU time) include"
        " failed attempts.",
        "",
        "| task | instruction | demonstrations | expert's success | steps | seconds each |",
        "|---|---|---|---|---|---|",
    ]
    for task in tasks:
        steps = " / ".join(f"{value:g}" for value in task["steps"]) if task["steps"] else "-"
        lines.append(
            f"| {task['scene']} {task['task']} | {task['instruction']} | {task['demonstrations']} |"
            f" {task['successes']} of {task['attempts']} | {steps} | {task['seconds_per_demonstration']}"
            f" ({task['cpu_seconds_per_demonstration']}) |"
        )
    if card["errors"]:
        lines += ["", "## Missing demonstrations", "", *(f"- {error}" for error in card["errors"])]
    return "\n".join(lines) + "\n"


def _ranges(numbers: tuple[int, ...] | list[int]) -> str:
    """`20-44` for consecutive numbers, else all of them."""
    whole = list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers))
