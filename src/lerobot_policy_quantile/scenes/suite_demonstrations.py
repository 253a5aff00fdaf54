"""Demonstrations of LIBERO tasks by the scripted expert: from which start, in which style, and the files they become.

A demonstration is executed with disturbances; its labels are the expert's clean answers to what they lead to. It counts
when the task is still solved 50 steps after LIBERO's flag and the hand has left (slow hands get up to 100). Otherwise
the next seed is tried from the same initial state.

Every demonstration follows from the recipe and its number alone, so a stopped run resumes with the same files.
"""

import io
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.contract import Array, Frames, Scene, make_scene, require_index
from lerobot_policy_quantile.scenes.experts.disturbance import COLLECTION, Disturbances
from lerobot_policy_quantile.scenes.experts.drive import Drive, drive
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.libero.plus_split import PREFIX, for_training
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.files import write_atomically, write_json
from lerobot_policy_quantile.util.wording import TASK

TRAINING_STATES = tuple(range(20, 45))
"""Initial states of demonstrations: 0 to 19 of every task are kept for evaluation, 45 to 49 for nothing yet."""
PLUS_STATES = (0,)
"""LIBERO-Plus's instances have one initial state each."""
TRIES = 5
"""Seeds per demonstration before it is given up."""
PATIENCE = 2
"""Times the benchmark's limit: slow styles and disturbances take longer than the expert at its best."""
GRACE = 50
"""Further steps after the flag for a slow hand to leave."""
REST = 10
"""Steps kept after the hand has come to rest."""
STILL = 1e-3
"""Share of full scale below which a label moves nothing."""
_SEEDS = 2**31

Row = dict[str, Any]
"""What is known of one demonstration, as in its JSON file."""


@dataclass(frozen=True)
class CollectionRecipe:
    """What is demonstrated and how. Everything in a folder follows from it."""

    tasks: tuple[tuple[str, int], ...]
    """Scene and number of every task."""
    episodes: int
    """Demonstrations per task."""
    seed: int = 0
    states: tuple[int, ...] = TRAINING_STATES
    """Stored initial states, taken in turn."""
    camera_size: int = 256
    wording: str = TASK
    plain: bool = False
    """Every demonstration in the plain style."""
    undisturbed: bool = False
    """The robot executes the expert's own actions."""
    tries: int = TRIES

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks must be at least one, each once; got {list(self.tasks)}")
        for name in ("episodes", "camera_size", "tries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.plus:
            self._require_instances()
            return
        wrong = [state for state in self.states if state not in TRAINING_STATES]
        if wrong or not self.states:
            raise ValueError(
                f"states must lie in {TRAINING_STATES[0]}..{TRAINING_STATES[-1]}, because others are kept for"
                f" evaluation; got {wrong or 'none'}"
            )

    @property
    def plus(self) -> bool:
        """Whether these are instances of LIBERO-Plus, each with one start of its own."""
        return any(scene.startswith(PREFIX) for scene, _ in self.tasks)

    def _require_instances(self) -> None:
        kept = [task for task in self.tasks if not (task[0].startswith(PREFIX) and for_training(*task))]
        if kept:
            raise ValueError(
                "tasks must be LIBERO-Plus instances for training (scenes/libero/plus_split.py), because others are"
                f" kept for evaluation; got {kept[0][0]} {kept[0][1]}"
            )
        if self.states != PLUS_STATES:
            raise ValueError(
                f"states must be {PLUS_STATES} for LIBERO-Plus, whose instances have one; got {self.states}"
            )

    @property
    def disturbances(self) -> Disturbances:
        """What differs between labels and executed actions."""
        return Disturbances() if self.undisturbed else COLLECTION

    def style(self, seed: int) -> Style:
        """The manner of a demonstration."""
        return Style.plain() if self.plain else Style.draw(seed)

    def slots(self) -> Iterator["Slot"]:
        """Every demonstration, task by task, so that a process seldom builds another simulator."""
        return (Slot(scene, task, number) for scene, task in self.tasks for number in range(self.episodes))

    def inputs(self) -> dict[str, Any]:
        """What must be the same for two runs to share a folder: all but how many demonstrations there are."""
        found = asdict(self)
        del found["episodes"]
        return found | {"disturbances": [repr(part) for part in self.disturbances.parts]}

    def require_possible(self) -> dict[str, str]:
        """Refuse tasks and states that do not exist; the scenes' versions. Builds no simulator."""
        versions: dict[str, str] = {}
        for name in dict.fromkeys(scene for scene, _ in self.tasks):
            scene = make_scene(name, camera_size=self.camera_size, wording=self.wording)
            for task in (task for other, task in self.tasks if other == name):
                require_index(f"tasks of {name}", task, scene.task_count)
                require_index(f"states of {name} task {task}", max(self.states), scene.state_count(task))
            versions |= scene.versions
            scene.close()
        return versions


@dataclass(frozen=True)
class Slot:
    """One demonstration of a recipe: its place in the dataset, whichever seed fills it."""

    scene: str
    task: int
    number: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.scene}_{self.task:02d}_{self.number:04d}"

    def state(self, recipe: CollectionRecipe) -> int:
        """The initial state it begins from."""
        return recipe.states[self.number % len(recipe.states)]

    def seed(self, recipe: CollectionRecipe, attempt: int) -> int:
        """Of simulator, style and disturbances; another one for every attempt."""
        return seed_of(f"{recipe.seed}/{self.scene}/{self.task}/{self.number}/{attempt}") % _SEEDS


@dataclass
class Take:
    """One attempt: observations before each step, the expert's answers, what the robot did, and the outcome."""

    frames: list[Frames] = field(default_factory=list)
    states: list[Float[Array, "8"]] = field(default_factory=list)
    labels: list[Float[Array, "7"]] = field(default_factory=list)
    executed: list[Float[Array, "7"]] = field(default_factory=list)
    end: Drive = Drive(None, False, False, 0)

    @property
    def good(self) -> bool:
        """Whether the task was left solved."""
        return self.end.solved_at is not None and self.end.still_solved and self.end.finished

    @property
    def length(self) -> int:
        """Steps until the hand is at rest, and `REST` more."""
        labels = np.array(self.labels)
        moves = np.abs(labels[:, :6]).max(axis=1) > STILL
        moves[1:] |= labels[1:, 6] != labels[:-1, 6]
        last = int(np.flatnonzero(moves).max(initial=0))
        return min(len(labels), max(last + 1, self.end.solved_at or 0) + REST)


@dataclass(frozen=True)
class StoredDemonstration:
    """A demonstration's file, as `write_episodes` wants it."""

    instruction: str
    frames: list[Frames]
    states: list[Float[Array, "8"]]
    actions: list[Float[Array, "7"]]
    """The labels."""

    @classmethod
    def load(cls, path: Path) -> "StoredDemonstration":
        """Everything in the file."""
        if not path.is_file():
            raise ValueError(f"demonstrations must be there for the dataset to be written; {path} is missing")
        with np.load(path, allow_pickle=False) as stored:
            pictures: dict[str, UInt8[Array, "h y x 3"]] = {camera: stored[camera] for camera in CAMERA_KEYS}
            frames = [dict(zip(pictures, images, strict=True)) for images in zip(*pictures.values(), strict=True)]
            return cls(str(stored["instruction"]), frames, list(stored["states"]), list(stored["labels"]))


def perform(scene: Scene, key: tuple[int, int, int], recipe: CollectionRecipe) -> Take:
    """One attempt at the episode of a key, seen by the cameras at every step."""
    take = Take()

    def seen(label: Float[Array, "7"], executed: Float[Array, "7"]) -> None:
        take.frames.append(scene.frames())
        take.states.append(scene.state())
        take.labels.append(label)
        take.executed.append(executed)

    take.end = drive(
        scene,
        key,
        style=recipe.style(key[2]),
        disturbances=recipe.disturbances,
        limit=PATIENCE * scene.limit,
        grace=GRACE,
        seen=seen,
    )
    return take


def make_demonstration(recipe: CollectionRecipe, slot: Slot, folder: Path) -> Row:
    """Fill a slot: `NAME.npz` if an attempt succeeds, then `NAME.json`, which says that the slot is done."""
    scene, state = _open_scene(slot.scene, recipe), slot.state(recipe)
    tried: list[Row] = []
    row: Row = {**asdict(slot), "state": state, "file": None, "attempts": tried}
    for attempt in range(recipe.tries):
        seed, began = slot.seed(recipe, attempt), (time.monotonic(), time.process_time())
        take = perform(scene, (slot.task, state, seed), recipe)
        tried.append({"seed": seed, **asdict(take.end), "good": take.good})
        if take.good:
            style = asdict(recipe.style(seed))
            row |= {"file": f"{slot.name}.npz", "seed": seed, "style": style, "steps": take.length}
            _save(take, folder / row["file"], instruction=scene.instruction, seed=seed, state=state, style=style)
        tried[-1]["seconds"] = round(time.monotonic() - began[0], 2)
        tried[-1]["cpu_seconds"] = round(time.process_time() - began[1], 2)
        if take.good:
            break
    row["instruction"] = scene.instruction
    write_json(folder / f"{slot.name}.json", row)
    return row


def _save(take: Take, path: Path, *, instruction: str, seed: int, state: int, style: Row) -> None:
    """Executed actions stay in double precision: they lead to the same states when driven again."""
    kept = slice(take.length)
    content = io.BytesIO()
    pictures: dict[str, Any] = {
        camera: np.stack([frames[camera] for frames in take.frames[kept]]) for camera in CAMERA_KEYS
    }
    np.savez_compressed(
        content,
        **pictures,
        states=np.array(take.states[kept], dtype=np.float32),
        labels=np.array(take.labels[kept], dtype=np.float32),
        executed=np.array(take.executed[kept], dtype=np.float64),
        instruction=np.array(instruction),
        style=np.array(json.dumps(style)),
        seed=np.array(seed),
        state=np.array(state),
    )
    write_atomically(path, content.getvalue())


_scenes: dict[tuple[str, int, str], Scene] = {}


def _open_scene(name: str, recipe: CollectionRecipe) -> Scene:
    """A process keeps one scene."""
    key = (name, recipe.camera_size, recipe.wording)
    if key not in _scenes:
        close_scenes()
        _scenes[key] = make_scene(name, camera_size=recipe.camera_size, wording=recipe.wording)
    return _scenes[key]


def close_scenes() -> None:
    """Free this process's simulator."""
    while _scenes:
        _scenes.popitem()[1].close()
