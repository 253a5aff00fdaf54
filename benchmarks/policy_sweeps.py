"""How the cost of a chunk grows: with its length, the batch, the number of quantiles, the number of prompts.

    .venv/bin/python benchmarks/policy_sweeps.py                      # part of `make bench`
    .venv/bin/python benchmarks/policy_sweeps.py --size small --rounds 5 --figure docs/explanation/speed_sweeps.svg

Ours on the fast path; LeRobot's pi05 with ten denoising steps on the same weights beside it where it has that setting.
All works of one axis run in turns. Writes policy_sweeps.md, .json and .svg.
"""

import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from policy_speed import SIZES, Pair, observation
from timing import Row, interleaved, milliseconds_row, sweep_parser, write

OURS, PEER = "ours", "LeRobot, ten steps"


@dataclass(frozen=True)
class Axis:
    """One thing that grows: its values, and the works to time at each, by who does them."""

    name: str
    values: tuple[int, ...]
    works: Callable[[str, int], dict[str, Callable[[], object]]]


def chunk_works(size: str, chunk: int) -> dict[str, Callable[[], object]]:
    """Whole chunks of this length."""
    pair, seen = Pair.of(SIZES[size], chunk), observation(SIZES[size], cameras=2, absent=0, padded=False)
    return {OURS: lambda: pair.chunk(seen), PEER: lambda: pair.flow(seen)}


def batch_works(size: str, batch: int) -> dict[str, Callable[[], object]]:
    """As many observations at once."""
    pair = Pair.of(SIZES[size], 10)
    seen = observation(SIZES[size], cameras=2, absent=0, padded=False, batch=batch)
    return {OURS: lambda: pair.chunk(seen), PEER: lambda: pair.flow(seen)}


def quantile_works(size: str, n_quantiles: int) -> dict[str, Callable[[], object]]:
    """As many quantiles per coordinate; a flow has none."""
    pair = Pair.of(SIZES[size], 10, n_quantiles=n_quantiles)
    seen = observation(SIZES[size], cameras=2, absent=0, padded=False)
    return {OURS: lambda: pair.chunk(seen)}


def prompt_works(size: str, n_prompts: int) -> dict[str, Callable[[], object]]:
    """As many learnable prompts; LeRobot's pi05 has none."""
    pair = Pair.of(SIZES[size], 10, n_prompts=n_prompts)
    seen = observation(SIZES[size], cameras=2, absent=0, padded=False)
    return {OURS: lambda: pair.chunk(seen)}


AXES = (
    Axis("chunk length", (10, 20, 30, 40, 50), chunk_works),
    Axis("batch", (1, 2, 4, 8, 16, 32, 64), batch_works),
    Axis("quantiles K", (5, 11, 21, 31), quantile_works),
    Axis("prompts", (0, 8, 16, 32, 64), prompt_works),
)

Curve = dict[int, list[float]]
"""Seconds of every round, by the value on the axis."""


def sweep(axis: Axis, size: str, rounds: int) -> dict[str, Curve]:
    """Times along one axis, everything in turns."""
    works = {(who, value): work for value in axis.values for who, work in axis.works(size, value).items()}
    curves: dict[str, Curve] = {}
    for (who, value), times in zip(works, interleaved(list(works.values()), rounds), strict=True):
        curves.setdefault(who, {})[value] = times
    return curves


def rows_of(axis: Axis, curves: dict[str, Curve]) -> Iterable[Row]:
    """One line per point."""
    for who, curve in curves.items():
        for value, times in curve.items():
            yield milliseconds_row(f"{axis.name} {value}: {who}", times)


def draw(path: Path, results: dict[str, dict[str, Curve]], title: str) -> None:
    """One panel per axis: medians with quartiles, from zero on where nothing spans decades."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    figure.suptitle(title)
    for panel, (name, curves) in zip(figure.subplots(2, 2).flat, results.items(), strict=True):
        for who, curve in curves.items():
            low, middle, high = zip(*(statistics.quantiles(times, n=4) for times in curve.values()), strict=True)
            errors = [
                [1e3 * (m - a) for m, a in zip(middle, low, strict=True)],
                [1e3 * (b - m) for m, b in zip(middle, high, strict=True)],
            ]
            panel.errorbar(list(curve), [1e3 * m for m in middle], errors, marker="o", capsize=3, label=who)
        panel.set_xlabel(name)
        panel.set_ylabel("ms per call")
        if name == "batch":
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = sweep_parser(__doc__, 9, "runs/bench")
    parser.add_argument("--size", default="tiny", choices=list(SIZES), help="of the model (default tiny)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds must be at least 2; got {arguments.rounds}")
    torch.set_num_threads(arguments.threads)
    results = {}
    for axis in AXES:
        print(f"{axis.name} ...", flush=True)
        results[axis.name] = sweep(axis, arguments.size, arguments.rounds)
    rows = [row for axis in AXES for row in rows_of(axis, results[axis.name])]
    setting: dict[str, object] = {"size": SIZES[arguments.size].name, "threads": arguments.threads}
    setting |= {"rounds": arguments.rounds, "torch": torch.__version__}
    path = arguments.out / "policy_sweeps"
    failed = write(path, "How the cost of a chunk grows", rows, setting)
    title = f"Cost of a chunk, size {arguments.size}, {arguments.threads} thread(s), median and quartiles"
    for figure in filter(None, (path.with_suffix(".svg"), arguments.figure)):
        draw(figure, results, title)
    sys.exit(failed)


if __name__ == "__main__":
    main()
