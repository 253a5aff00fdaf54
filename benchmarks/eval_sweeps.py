"""How the time of `qhead eval` grows with episodes and workers: the scripted expert in the embedded scene.

    .venv/bin/python benchmarks/eval_sweeps.py --figure docs/explanation/eval_sweeps.svg

Whole commands, start-up included, in turns. Writes eval_sweeps.md, .json and .svg.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from matplotlib.figure import Figure
from timing import Row, sweep_parser, write

EPISODES = (2, 4, 8)
WORKERS = (1, 2, 4)
Curve = dict[int, list[float]]
"""Seconds of every round, by the number of episodes."""


def seconds(episodes: int, workers: int) -> float:
    """Of one command."""
    with tempfile.TemporaryDirectory(prefix="qhead-bench-") as folder:
        command = [str(Path(sys.executable).parent / "qhead"), "eval", "--scene", "embedded", "--policy", "scripted"]
        command += ["--indices", f"0-{episodes - 1}", "--workers", str(workers), "--out", f"{folder}/out"]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began


def sweep(rounds: int) -> dict[int, Curve]:
    """Every number of workers with every number of episodes, once per round."""
    found: dict[int, Curve] = {workers: {episodes: [] for episodes in EPISODES} for workers in WORKERS}
    for number in range(rounds):
        for episodes in EPISODES:
            for workers, curve in found.items():
                curve[episodes].append(seconds(episodes, workers))
                print(
                    f"round {number + 1}: {episodes} episodes, {workers} workers: {curve[episodes][-1]:.1f} s",
                    flush=True,
                )
    return found


def rows_of(found: dict[int, Curve]) -> list[Row]:
    """One line per point, and what one more episode costs."""
    rows = []
    for workers, curve in found.items():
        middle = {episodes: statistics.median(times) for episodes, times in curve.items()}
        rows += [Row(f"{n} episodes, {workers} workers", round(value, 1), "s") for n, value in middle.items()]
        few, many = min(middle), max(middle)
        rows.append(
            Row(f"one more episode, {workers} workers", round((middle[many] - middle[few]) / (many - few), 2), "s")
        )
    return rows


def draw(path: Path, found: dict[int, Curve]) -> None:
    """One line per number of workers."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    panel = figure.subplots()
    for workers, curve in found.items():
        panel.plot(
            list(curve), [statistics.median(times) for times in curve.values()], "o-", label=f"{workers} workers"
        )
    panel.set(xlabel="episodes", ylabel="seconds, start-up included", title=f"qhead eval on {os.cpu_count()} cores")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    arguments = sweep_parser(__doc__, 1, "runs/bench-eval").parse_args()
    found = sweep(arguments.rounds)
    path = arguments.out / "eval_sweeps"
    setting: dict[str, object] = {"scene": "embedded", "policy": "scripted", "cores": os.cpu_count()}
    failed = write(path, "How the time of qhead eval grows", rows_of(found), setting | {"rounds": arguments.rounds})
    for figure in filter(None, (path.with_suffix(".svg"), arguments.figure)):
        draw(figure, found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
