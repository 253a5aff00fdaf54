"""The folder that `qhead collect` writes (LeRobotDataset, pictures, simulator states, summary), and its replay."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.contract import Scene
from lerobot_policy_quantile.scenes.demonstrations import (
    Demonstration,
    demonstrate,
    read_actions,
    replay,
    require_identical_starts,
    write_dataset,
)
from lerobot_policy_quantile.scenes.experts.waypoints import Route

if TYPE_CHECKING:
    from lerobot_policy_quantile.drawing.demonstration_pictures import Path3

DATASET, STATES, SUMMARY = "dataset", "simulator_states.npz", "summary.json"


class CollectError(ValueError):
    """A demonstration does not meet its conditions; no dataset was written."""


@dataclass(frozen=True)
class DemonstrationSet:
    """Demonstrations of one task from one start, and a straight control where there is an obstacle."""

    records: list[Demonstration]
    control: Demonstration | None
    obstacle: list[float] | None
    """Position of the obstacle."""
    versions: dict[str, str]

    @cached_property
    def paths(self) -> "list[Path3]":
        """The end effector's path in each demonstration."""
        return [_path_of(record) for record in self.records]

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """The summary's entry of each demonstration."""
        return [
            {
                "route": record.route.side,
                "success": bool(record.success),
                "actions": len(record.actions),
                "detour_cm": round(100 * path.detour, 1),
                "contacts": int(record.contacts),
            }
            for record, path in zip(self.records, self.paths, strict=True)
        ]

    def require_valid(self) -> None:
        """Demonstrations succeed, touch no obstacle and begin identically; the straight control must fail."""
        for record in self.records:
            if not record.success:
                raise CollectError(f"the demonstration {record.route.side} must succeed; it ended without success")
            if record.contacts:
                raise CollectError(
                    f"the demonstration {record.route.side} must not touch the obstacle;"
                    f" it did in {record.contacts} steps"
                )
        if self.control is not None and self.control.success:
            raise CollectError("the straight control must fail in the obstacle scene; it succeeded")
        require_identical_starts(self.records)

    def draw(self, out: Path) -> None:
        """`paths.png`, the paths from above, and `frames.png`, the camera images at start, widest point and end."""
        from lerobot_policy_quantile.drawing.demonstration_pictures import draw_frames, draw_paths

        draw_paths(self.paths, out / "paths.png", title=self.records[0].instruction, obstacle=self.obstacle)
        cameras = tuple(CAMERA_KEYS)
        pictures = {
            path.name: [record.frames[step][camera] for step in (0, path.widest_step, -1) for camera in cameras]
            for record, path in zip(self.records, self.paths, strict=True)
        }
        columns = [f"{moment} {camera}" for moment in ("start", "widest", "end") for camera in cameras]
        draw_frames(pictures, columns, out / "frames.png")

    def write(self, out: Path, *, scene: str, repo_id: str) -> None:
        """Dataset with exact statistics, simulator states at start and end, and the summary."""
        from lerobot_policy_quantile.policy.normalisation import write_exact_statistics

        write_dataset(self.records, out / DATASET, repo_id)
        write_exact_statistics(out / DATASET)
        states: dict[str, Any] = {}
        for number, record in enumerate(self.records):
            states |= {f"start_{number}": record.start, f"end_{number}": record.end}
        np.savez(out / STATES, **states)
        summary = {
            "scene": scene,
            "key": list(self.records[0].key),
            "repo_id": repo_id,
            "instruction": self.records[0].instruction,
            "versions": self.versions,
            "episodes": self.episodes,
        }
        (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")


@dataclass(frozen=True)
class Replayed:
    """One stored episode, driven again."""

    number: int
    route: str
    success: bool
    same_end: bool
    """The final simulator state is the stored one, bit for bit."""
    same: bool
    """And success is the stored one, too."""


def require_new_folder(out: Path) -> None:
    """Raise CollectError for a folder that is not empty."""
    if out.exists() and any(out.iterdir()):
        raise CollectError(f"--out must be a new or empty folder; got {out}")


def parse_routes(text: str) -> list[Route]:
    """The routes in a text such as `left,right`."""
    try:
        return [Route(side.strip()) for side in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--routes: {error}") from None


def collect(
    world: Scene,
    key: tuple[int, int, int],
    routes: Sequence[Route],
    status: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> DemonstrationSet:
    """One demonstration per route from task, initial state and seed in `key`; `status` shows progress."""
    records = []
    for route in routes:
        with status(f"demonstrating in {world.name}: {route.side}"):
            records.append(demonstrate(world, key, route.around_obstacle() if world.obstacle else route))
    if not world.obstacle:
        return DemonstrationSet(records, None, None, world.versions)
    with status("straight control"):
        control = demonstrate(world, key, Route("straight").around_obstacle(), pictures=False)
    place = world.layout().obstacle
    return DemonstrationSet(records, control, None if place is None else place.tolist(), world.versions)


def replay_folder(folder: Path, episode: int | None, scene: Callable[[str], Scene]) -> Iterator[Replayed]:
    """Drive one stored episode, or all of them, in a scene built by name, and compare how each ends."""
    if not (folder / SUMMARY).is_file():
        raise ValueError(f"FOLDER must be one that qhead collect wrote, with {SUMMARY}; got {folder}")
    summary = json.loads((folder / SUMMARY).read_text())
    count = len(summary["episodes"])
    if episode is not None and episode >= count:
        raise ValueError(f"--episode must lie in 0..{count - 1}; got {episode}")
    task, index, seed = summary["key"]
    stored = np.load(folder / STATES, allow_pickle=False)
    world = scene(summary["scene"])
    try:
        for number in range(count) if episode is None else [episode]:
            recorded = summary["episodes"][number]
            success, end = replay(world, (task, index, seed), list(read_actions(folder / DATASET, number)))
            equal = bool(np.array_equal(end, stored[f"end_{number}"]))
            yield Replayed(number, recorded["route"], success, equal, equal and success == recorded["success"])
    finally:
        world.close()


def _path_of(record: Demonstration) -> "Path3":
    from lerobot_policy_quantile.drawing.demonstration_pictures import Path3

    closed = [step for step, action in enumerate(record.actions) if action[6] > 0]
    positions = np.array([state[:3] for state in record.states])
    return Path3(record.route.side, positions, closed[0] if closed else len(positions) - 1)
