"""What the benchmarks share: work timed in turns, ratios with quartiles, one table per script."""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler reports a missing GPU as an error

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Row:
    """A measured number and what it is held against: at most `limit`, or at least `aim`; neither if it only informs."""

    what: str
    measured: float
    unit: str
    spread: str = ""
    limit: float | None = None
    at_least: float | None = None

    @property
    def bound(self) -> str:
        """What it is held against."""
        if self.limit is not None:
            return f"<= {self.limit:g} {self.unit}"
        return "" if self.at_least is None else f">= {self.at_least:g} {self.unit}"

    @property
    def verdict(self) -> str:
        """Whether it holds."""
        if not self.bound:
            return ""
        above = self.limit is not None and self.measured > self.limit
        below = self.at_least is not None and self.measured < self.at_least
        return "DOES NOT HOLD" if above or below else "holds"


def interleaved(works: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds of each work, taken in turns so that all see the same machine."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return times


def sweep_parser(description: str | None, rounds: int, out: str) -> argparse.ArgumentParser:
    """What every sweep can be told: how often, and where table and figure go."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"interleaved repetitions (default {rounds})")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder of table and figure")
    parser.add_argument("--figure", type=Path, help="put the figure here as well")
    return parser


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory that tensors made during the work held at once, from torch's own allocation log.

    Of a second run at the earliest: a first one makes what is kept, such as an optimiser's state.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as log:
        work()
    events = log.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


def ratio_row(
    what: str,
    above: list[float],
    below: list[float],
    limit: float | None = None,
    at_least: float | None = None,
) -> Row:
    """Median of the per-round ratios, with their quartiles."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(above, below, strict=True)], n=4)
    return Row(what, round(middle, 2), "x", f"{low:.2f} to {high:.2f}", limit, at_least)


def milliseconds_row(what: str, times: list[float], per: int = 1, limit: float | None = None) -> Row:
    """Median time and quartiles."""
    low, middle, high = (1e3 * t / per for t in statistics.quantiles(times, n=4))
    return Row(what, round(middle, 3), "ms", f"{low:.3f} to {high:.3f}", limit)


def markdown(title: str, rows: list[Row], setting: dict[str, object]) -> str:
    """The table."""
    lines = [f"# {title}", "", ", ".join(f"{k} {v}" for k, v in setting.items()), ""]
    lines += ["| what | median | quartiles | wanted | |", "|---|---|---|---|---|"]
    lines += [f"| {r.what} | {r.measured:g} {r.unit} | {r.spread} | {r.bound} | {r.verdict} |" for r in rows]
    return "\n".join(lines) + "\n"


def write(path: Path, title: str, rows: list[Row], setting: dict[str, object]) -> int:
    """Markdown and JSON beside each other, the table on the screen; 1 if anything does not hold."""
    table = markdown(title, rows, setting)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".md").write_text(table)
    record = {"setting": setting, "rows": [asdict(row) | {"verdict": row.verdict} for row in rows]}
    path.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")
    print(table)
    print(f"written to {path}.md and .json")
    return int(any(row.verdict == "DOES NOT HOLD" for row in rows))
