"""Environment steps per second: our loop against the same loop with robosuite's step and a picture every step.

Both run in one process, in turns, from the same start with the same actions. A policy with ten-step chunks needs one
picture in ten; those pictures must be bit-identical to the ones of the other loop, or the benchmark fails. The other
loop draws every triangle; how long both ways of drawing take is timed by itself, too. So is a reset: to a start that is
kept, to another one, and to another one with a model built anew, as robosuite does.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from robosuite.environments.base import MujocoEnv

from lerobot_policy_quantile.scenes.contract import Array, Frames, make_scene, scene_names

CHUNK = 10
KEY = (0, 1, 7)
PICTURES = 30
RESETS = 5
TARGET = 4.0


def every_step(world: Any, action: Array) -> None:
    """What LeRobot's loop does: robosuite's own step, cameras rendered."""
    world.announced = True
    MujocoEnv.step(world, action)


def measure(scene: Any, actions: Array, *, light: bool) -> tuple[float, list[Frames], Array]:
    """Seconds, the pictures before each chunk, and the final simulator state."""
    scene.reset(*KEY)
    _draw_from_now_on(scene.world, everything=not light)
    pictures = []
    began = time.perf_counter()
    for number, action in enumerate(actions, start=1):
        if light:
            scene.step(action, observe=number % CHUNK == 0)
        else:
            every_step(scene.world, action)
        scene.success()
        if number % CHUNK == 0:
            pictures.append(scene.frames())
    return time.perf_counter() - began, pictures, scene.simulator_state()


def _draw_from_now_on(world: Any, *, everything: bool) -> None:
    """Change the way of drawing; the first picture after that hands meshes over and is not timed."""
    world.draws_all = everything
    world._render()


def picture_ms(scene: Any, *, everything: bool) -> float:
    """Milliseconds for a picture of each camera."""
    _draw_from_now_on(scene.world, everything=everything)
    began = time.perf_counter()
    scene.world._render()
    return 1e3 * (time.perf_counter() - began)


def reset_ms(scene: Any, *, kept: bool, builds: bool) -> float:
    """Milliseconds for a reset; the embedded scene always builds, unless the start is kept."""
    task, index, seed = KEY
    scene.reset(task, index + 1 if kept else index, seed)
    if not kept:
        scene.starts.pop((task, index + 1, seed), None)
    as_is = scene.world.hard_reset
    scene.world.hard_reset = builds or as_is
    began = time.perf_counter()
    scene.reset(task, index + 1, seed)
    elapsed = time.perf_counter() - began
    scene.world.hard_reset = as_is
    return 1e3 * elapsed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=scene_names(), default="embedded")
    parser.add_argument("--camera-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    scene = make_scene(arguments.scene, camera_size=arguments.camera_size)
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (arguments.steps, 7))
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        seconds, pictures, end = measure(scene, actions, light=True)
        ours.append(arguments.steps / seconds)
        seconds, expected, expected_end = measure(scene, actions, light=False)
        theirs.append(arguments.steps / seconds)
        same = np.array_equal(end, expected_end) and all(
            np.array_equal(one[camera], two[camera])
            for one, two in zip(pictures, expected, strict=True)
            for camera in one
        )
        if not same:
            print("the two loops differ: pictures or final state are not bit-identical")
            return 1
    drawing = [[picture_ms(scene, everything=everything) for everything in (False, True)] for _ in range(PICTURES)]
    ways = {"kept": (True, False), "at_hand": (False, False), "built": (False, True)}
    resets = [[reset_ms(scene, kept=kept, builds=builds) for kept, builds in ways.values()] for _ in range(RESETS)]
    scene.close()
    ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
    row = {
        "scene": arguments.scene,
        "camera_size": arguments.camera_size,
        "steps_per_second": round(median(ours), 1),
        "every_step": round(median(theirs), 1),
        "ratio": round(ratio, 2),
        "pictures_ms": round(median(mine for mine, _ in drawing), 1),
        "pictures_of_everything_ms": round(median(whole for _, whole in drawing), 1),
        "reset_ms": {way: round(median(times), 1) for way, times in zip(ways, zip(*resets, strict=True), strict=True)},
        "versions": scene.versions,
    }
    folder = Path("runs/bench-env")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{arguments.scene}.json").write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")
    print(
        f"{arguments.scene}, {arguments.camera_size} px: {row['steps_per_second']} steps/s with one picture in {CHUNK},"
        f" {row['every_step']} rendering every step: {row['ratio']}x, pictures bit-identical; both cameras in"
        f" {row['pictures_ms']} ms, drawing every triangle {row['pictures_of_everything_ms']} ms;"
        " reset " + ", ".join(f"{way.replace('_', ' ')} {ms} ms" for way, ms in row["reset_ms"].items())
    )
    if ratio < TARGET:
        print(f"ratio must be at least {TARGET}; got {ratio:.2f}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
