"""`make serve-hostile`: clocks that drift, floods, lockout, descriptors, memory and mixed pictures, on loopback.

Prints what each attack did before the server was hardened and what it does now, and ends with 1 if a bound is broken.
Floods, lockout and descriptors run against the artificial model of `make serve-load`, memory and pictures against
`qhead serve` with the base checkpoint. A few minutes; every attack is bounded in count and time.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from scripts.hostile_clients import ask_all, flooding, new_session, open_and_leave, silent_connections
from scripts.hostile_clocks import day
from scripts.serve_load import COST, Caller, artificial_server, crowd, timed
from scripts.serving_process import CAMERAS, RunningServer, cpu_seconds, forget_peak, observation, peak_mib, serving

FLOODING, VISITORS, SILENT = 4, 210, 600
LARGE, MIXED = 2048, (32, 48, 64, 96)


class Row(NamedTuple):
    """One line of the table."""

    check: str
    was: str
    now: str
    bound: str
    holds: bool


def drift(_: Path) -> list[Row]:
    """A day on simulated clocks, for both signs and a clock that is set."""
    rows = []
    for ppm in (-200, 200):
        days = [day(ppm, step=step) for step in (-3600.0, 0.0, 3600.0)]
        false, missed = sum(d.false_refusals for d in days), sum(d.old_accepted for d in days)
        was = "all refused after 1.4 h" if ppm < 0 else "none"
        rows.append(
            Row(
                f"a day at {ppm:+d} ppm, clock set by 1 h: false refusals, old observations accepted",
                was,
                f"{false} of {sum(d.requests for d in days)}, {missed} of {sum(d.old_sent for d in days)}",
                "0, 0",
                not false and not missed,
            )
        )
    return rows


def floods(out: Path) -> list[Row]:
    """The server's own time and the others' p99 beside four flooding connections, and the lines in the log.

    The p99 also holds what the flooding process takes from a machine of few cores; the processor time does not.
    Clients wait a random time before each request, as robots do: clients in step are answered by one batch or two, and
    their p99 would jump between both.
    """
    was = {"pings": "2.4 to 12 s", "fragments": "not measured", "malformed frames": "not measured"}
    rows = []
    log = out / "flood.log"
    with artificial_server(64, 64, log=log) as server:
        for kind in was:
            rows.append(_own_time(server, kind))
            alone, beside, closed = asyncio.run(_beside_flood(server.url, kind))
            rows.append(
                Row(
                    f"p99 of 8 clients beside {FLOODING} connections that flood with {kind}",
                    was[kind],
                    f"{1e3 * beside:.0f} ms, {beside / alone:.2f} times ({closed} closed)",
                    "1.20 times",
                    beside < 1.2 * alone,
                )
            )
    lines = len(log.read_text().splitlines())
    return [*rows, Row("log lines of these floods", "174,744", str(lines), "100", lines < 100)]


def _own_time(server: RunningServer, kind: str, seconds: float = 5.0) -> Row:
    before, began = cpu_seconds(server.pid), time.monotonic()
    with flooding(server.url, kind, FLOODING) as closed:
        time.sleep(seconds)
        share = (cpu_seconds(server.pid) - before) / (time.monotonic() - began)
        now = f"{share:.1%} of a core, {closed()} closed"
    name = f"the server's processor time under {FLOODING} connections that flood with {kind}"
    return Row(name, "not measured", now, "10 %", share < 0.1)


async def _beside_flood(url: str, kind: str, rounds: int = 4, clients: int = 8) -> tuple[float, float, int]:
    callers = await crowd(url, clients, 0)
    await timed(callers, 5)
    alone: list[float] = []
    beside: list[float] = []
    closed = 0
    for _ in range(rounds):
        alone += await _latencies(callers)
        with flooding(url, kind, FLOODING) as seen:
            await asyncio.sleep(0.5)
            beside += await _latencies(callers)
            closed += seen()
    for caller in callers:
        await caller.close()
    return float(np.quantile(alone, 0.99)), float(np.quantile(beside, 0.99)), closed


async def _latencies(callers: list[Caller], requests: int = 40) -> list[float]:
    before = [len(caller.seconds) for caller in callers]
    await timed(callers, requests, pause=2 * COST)
    return [s for caller, n in zip(callers, before, strict=True) for s in caller.seconds[n:]]


def lockout(_: Path) -> list[Row]:
    """Visitors who open sessions and leave; what the next one hears."""
    with artificial_server(16, 64, 0.0) as server:
        seen = open_and_leave(server.url, VISITORS, 16)
        heard = [new_session(server.url) for _ in range(20)]
    busy = heard.count("busy")
    name = f"{VISITORS} visitors with 16 sessions each, then 20 newcomers: told busy"
    return [Row(name, "all, for ten minutes", f"{busy} of 20 ({seen['busy']} visitors)", "0", not busy)]


def descriptors(out: Path) -> list[Row]:
    """Silent connections at a small limit of open files; the log, and an honest client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    log = out / "descriptors.log"
    with artificial_server(16, 64, 0.0, log=log, files=256) as server:
        with silent_connections(server.url, SILENT) as opened:
            seen, seconds = ask_all(server.url, [observation(np.random.default_rng(0))], 5)
        held = server.vital_signs().descriptors
    text = log.read_text()
    tracebacks, answered = text.count("Traceback"), seen["answered"]
    name = f"{opened} silent connections at ulimit -n 256: tracebacks"
    now = f"{tracebacks}; 5 requests in {seconds:.1f} s, {held} descriptors"
    return [Row(name, "137,507", now, "1, answered", tracebacks <= 1 and answered == 5)]


def memory(out: Path) -> list[Row]:
    """Peak memory with large pictures."""
    rows = []
    was = {16: "2.2 GB", 64: "4.7 GB"}
    with serving(base_checkpoint(), "--deadline", "60", log=out / "memory.log") as server:
        ask_all(server.url, [observation(np.random.default_rng(0))], 2)
        base = server.vital_signs().resident_mib
        for clients in was:
            forget_peak(server.pid)
            seen, _ = ask_all(server.url, [_large(clients)] * clients, 1)
            peak = peak_mib(server.pid)
            rows.append(
                Row(
                    f"peak memory, {clients} clients with {LARGE} x {LARGE} pictures ({base / 1024:.1f} GB idle)",
                    was[clients],
                    f"{peak / 1024:.1f} GB; {seen['answered']} answered, {seen['busy']} times busy",
                    "idle + 0.8 GB",
                    peak < base + 0.8 * 1024 and seen["answered"] == clients,
                )
            )
    return rows


def _large(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {**observation(draw), CAMERAS[0]: draw.integers(0, 256, (LARGE, LARGE, 3), dtype=np.uint8)}


def pictures(out: Path) -> list[Row]:
    """Requests per second with pictures of one size and of four, turn and turn about."""
    log = out / "pictures.log"
    same = [observation(np.random.default_rng(n), 64) for n in range(8)]
    mixed = [observation(np.random.default_rng(n), MIXED[n % len(MIXED)]) for n in range(8)]
    seconds = {"same": 0.0, "mixed": 0.0}
    with serving(base_checkpoint(), "--deadline", "60", log=log) as server:
        ask_all(server.url, same, 2)
        for _ in range(3):
            seconds["same"] += ask_all(server.url, same, 8)[1]
            seconds["mixed"] += ask_all(server.url, mixed, 8)[1]
    rates = {name: 3 * 8 * 8 / value for name, value in seconds.items()}
    share, tracebacks = rates["mixed"] / rates["same"], log.read_text().count("Traceback")
    now = f"{rates['mixed']:.0f} against {rates['same']:.0f} ({share:.2f}); {tracebacks} tracebacks"
    name = "requests per second with pictures of four sizes, of one"
    was = "53 against 153 (0.35), a traceback per batch"
    return [Row(name, was, now, "0.7 times, 0 tracebacks", share > 0.7 and not tracebacks)]


CHECKS: dict[str, Callable[[Path], list[Row]]] = {
    check.__name__: check for check in (drift, floods, lockout, descriptors, memory, pictures)
}


def main() -> int:
    """Exit code 0 if every bound holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"some of {', '.join(CHECKS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/serve-hostile"))
    options = parser.parse_args()
    if unknown := set(options.checks) - set(CHECKS):
        parser.error(f"check must be one of {', '.join(CHECKS)}; got {', '.join(sorted(unknown))}")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    print("|   | attack | was | is | bound |\n|---|---|---|---|---|")
    for name in options.checks or CHECKS:
        began = time.monotonic()
        for row in CHECKS[name](options.out):
            rows.append(row)
            print(
                f"| {'ok' if row.holds else 'FAIL'} | {row.check} | {row.was} | {row.now} | {row.bound} |", flush=True
            )
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    (options.out / "hostile.json").write_text(json.dumps([row._asdict() for row in rows], indent=2) + "\n")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
