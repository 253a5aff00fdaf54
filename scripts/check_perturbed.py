"""Load LIBERO-Plus and LIBERO-Pro for real: reset, step and look, and print what runs and what does not and why.

`make pro-tasks` resets every LIBERO-Pro task; `make plus-instances` a few instances of every LIBERO-Plus category.
Exits with 1 if one fails that the listing (`qhead eval --suite ... --dry-run`) calls available.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from lerobot_policy_quantile.scenes.contract import Scene, make_scene, perturbed_scene_names
from lerobot_policy_quantile.scenes.libero.plus_instances import instances, why_unavailable
from lerobot_policy_quantile.scenes.libero.pro import FOLDERS, ProScene
from lerobot_policy_quantile.scenes.libero.suites import LIMITS

STEPS = 5


def main() -> int:
    """Reset, step and look at everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", choices=("plus", "pro"))
    parser.add_argument("--each", type=int, default=5, help="instances per LIBERO-Plus category")
    parser.add_argument("--whole", action="append", default=[], help="LIBERO-Plus category of which all are run")
    parser.add_argument("--pictures", type=Path, help="folder for the start's pictures")
    options = parser.parse_args()
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    wanted = pro_tasks() if options.benchmark == "pro" else plus_instances(options.each, options.whole)
    ran, unexpected, broken = 0, 0, []
    for scene, task, label in wanted:
        began = time.monotonic()
        try:
            look(scene, task, options.pictures)
        except (ValueError, KeyError, RuntimeError, AssertionError) as error:
            known = isinstance(scene, ProScene) and scene.why_unavailable(task) is not None
            broken.append((scene.name, task, label, f"{type(error).__name__}: {error}"))
            unexpected += not known
            word = "unavailable" if known else "BROKEN"
            print(f"{word} {scene.name} {task} {label}: {type(error).__name__}: {error}", flush=True)
            scene.close()
            continue
        ran += 1
        print(f"ok {scene.name} {task} {label}: {scene.instruction!r} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"\n{ran} of {ran + len(broken)} load, reset, step and render")
    for name, task, label, reason in broken:
        print(f"  {name} task {task} ({label}): {reason}")
    return int(unexpected > 0)


def look(scene: Scene, task: int, pictures: Path | None) -> None:
    """Reset, step, render; raise ValueError if what comes back is not a picture of something."""
    scene.reset(task, 0, 0)
    start = scene.frames()
    for step in range(STEPS):
        scene.step(np.zeros(7), observe=step == STEPS - 1)
    for name, frame in scene.frames().items():
        if frame.std() < 1:
            raise ValueError(f"the {name} camera must see something; its picture has one colour")
    if not np.isfinite(scene.simulator_state()).all():
        raise ValueError("the simulator's state must be finite; it is not")
    scene.success()
    if pictures is not None:
        both = np.concatenate([start["external"], start["wrist"]], axis=1)
        Image.fromarray(both).save(pictures / f"{scene.name}-{task}.png")


def pro_tasks() -> Iterator[tuple[Scene, int, str]]:
    """The 160 perturbed tasks."""
    for name in perturbed_scene_names():
        if name.startswith("libero_pro") and name.rpartition("_")[2] in FOLDERS:
            scene = make_scene(name, camera_size=128)
            assert isinstance(scene, ProScene)
            yield from ((scene, task, scene.tasks[task].name) for task in range(scene.task_count))
            scene.close()


def plus_instances(each: int, whole: list[str]) -> Iterator[tuple[Scene, int, str]]:
    """`each` instances of every category, spread over suites and base tasks; fewer if fewer have their files. All of
    the categories in `whole`.
    """
    scenes = {suite: make_scene(f"libero_plus_{suite.removeprefix('libero_')}", camera_size=128) for suite in LIMITS}
    here = [i for suite in LIMITS for i in instances(suite) if why_unavailable(i) is None]
    categories = sorted({instance.category for instance in here})
    for category in whole:
        if category not in categories:
            raise SystemExit(f"--whole must be one of {', '.join(categories)}; got {category!r}")
    for category in categories:
        members = [instance for instance in here if instance.category == category]
        count = len(members) if category in whole else each
        places = sorted({round(n * (len(members) - 1) / max(1, count - 1)) for n in range(count)})
        for instance in (members[place] for place in places):
            yield scenes[instance.suite], instance.number, f"{category}: {instance.name}"
    for scene in scenes.values():
        scene.close()


if __name__ == "__main__":
    sys.exit(main())
