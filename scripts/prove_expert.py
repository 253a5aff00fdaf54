"""How often the scripted expert succeeds: `make expert`. Exit code 1 when a scene stays below its promise."""

import argparse
import sys
from collections.abc import Iterator

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.demonstrations import demonstrate
from lerobot_policy_quantile.scenes.experts.waypoints import Route
from lerobot_policy_quantile.util.pool import WorkerPool

PROMISES = {"embedded": 0.98, "libero_object": 0.95}
TASKS = {"embedded": 1, "libero_object": 10}
INDICES = {"embedded": 50, "libero_object": 10}
LIMIT = 600


def run_share(name: str, keys: list[tuple[int, int]]) -> list[tuple[int, int, bool, int]]:
    """One process: task, index, success and number of actions of every key."""
    scene = make_scene(name, camera_size=32)
    results = []
    for task, index in keys:
        record = demonstrate(scene, (task, index, 0), Route(), limit=LIMIT, pictures=False)
        results.append((task, index, record.success, len(record.actions)))
        print(f"  {name} task {task} index {index}: {'success' if record.success else 'FAILURE'}", flush=True)
    scene.close()
    return results


def shares(name: str, count: int) -> Iterator[list[tuple[int, int]]]:
    """Keys in order of task, so that a process seldom builds another simulator."""
    keys = [(task, index) for task in range(TASKS[name]) for index in range(INDICES[name])]
    size = -(-len(keys) // count)
    return (keys[first : first + size] for first in range(0, len(keys), size))


def main() -> int:
    """Run the named scenes and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", default=list(PROMISES), metavar="scene", help=", ".join(PROMISES))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    kept = True
    for name in arguments.scenes:
        if name not in PROMISES:
            parser.error(f"scene must be one of {', '.join(PROMISES)}; got {name!r}")
        with WorkerPool(arguments.workers) as pool:
            parts = pool.each(run_share, [(name, share) for share in shares(name, arguments.workers)])
            results = sorted(result for _, part in parts for result in part)
        rate = sum(success for *_, success, _ in results) / len(results)
        lengths = sorted(length for *_, success, length in results if success)
        middle = lengths[len(lengths) // 2] if lengths else 0
        print(f"{name}: {rate:.1%} of {len(results)} episodes (promise {PROMISES[name]:.0%}), median {middle} actions")
        for task, index, success, _ in results:
            if not success:
                print(f"  failed: task {task}, index {index}")
        kept &= rate >= PROMISES[name]
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
