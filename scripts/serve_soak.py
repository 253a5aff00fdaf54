"""`make soak`: hours of ordinary and bad clients; the server's memory, descriptors and threads must stay flat.

Visitors connect, ask a few times, reset, err on purpose, break off without a word, and come back. Robots stay, with
clocks that drift and are set by an hour at half-time; none of their requests may be refused as `stale` but those that
are. Now and then connections flood the server or break off in a large message. Vital signs are taken twice a minute;
the first tenth of the time is warm-up and not judged.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from scripts.hostile_clocks import HOUR, ClientClock
from scripts.serving_process import ServerProcess, VitalSigns, cpu_seconds, serving
from scripts.soak_clients import DRIFTS, FAULTS, LEAST_PAUSE, SoakTime, hostile, robot, visitor

GROWTH = {"own_mib": 16.0, "descriptors": 8, "threads": 4}
"""Most that may be added between the first and the last sixth of the judged time."""


def main() -> int:
    """Exit code 0 if everything stayed flat and nobody was refused without cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--visitors", type=int, default=4)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between a client's requests")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    options = parser.parse_args()
    if options.pause < LEAST_PAUSE:
        parser.error(f"--pause must be at least {LEAST_PAUSE:g} s; got {options.pause:g}")
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "log"
    with serving(base_checkpoint(), log=log) as server:
        began, used = time.monotonic(), cpu_seconds(server.pid)
        soak = SoakTime(began, began + 60 * options.minutes, options.pause)
        clients = begin(server.url, soak, options.visitors)
        signs = watch(server, soak.until, options.minutes, options.out / "signs.csv")
        for thread, _ in clients:
            thread.join(60)
        alive = server.alive()
        used = cpu_seconds(server.pid) - used if alive else 0.0
    seen = sum((seen for _, seen in clients), Counter(dict.fromkeys(FAULTS, 0)))
    report = {
        "minutes": round(signs[-1][0], 1),
        "seen": {name: seen[name] for name in sorted({*seen, *FAULTS})},
        **judged(signs, options.minutes),
        "server_cores": round(used / (time.monotonic() - began), 4),
        "tracebacks": log.read_text().count("Traceback"),
        "log_lines": len(log.read_text().splitlines()),
        "alive": alive,
        "unfinished": sum(thread.is_alive() for thread, _ in clients),
    }
    print(json.dumps(report, indent=2))
    (options.out / "soak.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if passes(report) else 1


def begin(url: str, soak: SoakTime, visitors: int) -> list[tuple[threading.Thread, Counter[str]]]:
    """All clients, each in a thread with a counter of its own; at half-time two clocks are set on and two back."""
    half = (soak.until - soak.began) / 2
    clocks = [ClientClock(ppm, HOUR if place % 3 else -HOUR, half) for place, ppm in enumerate(DRIFTS)]
    tasks: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        *((visitor, (url, seed, soak)) for seed in range(visitors)),
        *((robot, (url, clock, soak)) for clock in clocks),
        (hostile, (url, soak)),
    ]
    clients = []
    for task, arguments in tasks:
        seen = Counter[str]()
        thread = threading.Thread(target=task, args=(*arguments, seen), daemon=True)
        thread.start()
        clients.append((thread, seen))
    return clients


def passes(report: dict[str, Any]) -> bool:
    """Whether the server lives, stayed flat, and did nothing that it must not."""
    faults = sum(report["seen"][name] for name in FAULTS) + report["tracebacks"] + report["unfinished"]
    return bool(report["alive"] and report["flat"] and not faults and report["seen"].get("answers"))


def watch(server: ServerProcess, until: float, minutes: float, file: Path) -> list[tuple[float, VitalSigns]]:
    """The server's vital signs twice a minute, printed and written as they come."""
    signs: list[tuple[float, VitalSigns]] = []
    began = time.monotonic()
    with file.open("w") as table:
        print("minute,own_mib,resident_mib,descriptors,threads", file=table)
        while time.monotonic() < until and server.alive():
            time.sleep(min(30.0, minutes * 60 / 20))
            signs.append(((time.monotonic() - began) / 60, server.vital_signs()))
            minute, sign = signs[-1]
            row = f"{minute:.1f},{sign.own_mib:.1f},{sign.resident_mib:.1f},{sign.descriptors},{sign.threads}"
            print(row, file=table, flush=True)
            print(
                f"minute {minute:5.1f}  own {sign.own_mib:7.1f} MiB  resident {sign.resident_mib:7.1f} MiB"
                f"  descriptors {sign.descriptors}  threads {sign.threads}",
                flush=True,
            )
    return signs


def judged(signs: Sequence[tuple[float, VitalSigns]], minutes: float) -> dict[str, Any]:
    """Ranges and trends after the warm-up. Flat: the last sixth no more than a bound above the first sixth."""
    settled = [sign for sign in signs if sign[0] > minutes / 10]
    part = max(1, len(settled) // 6)
    report: dict[str, Any] = {}
    growth = {}
    for name in VitalSigns._fields:
        values = [float(getattr(sign, name)) for _, sign in settled]
        report[name] = [round(min(values), 1), round(max(values), 1)]
        growth[name] = median(values[-part:]) - median(values[:part])
    hours = [minute / 60 for minute, _ in settled]
    slope = float(np.polyfit(hours, [sign.own_mib for _, sign in settled], 1)[0])
    flat = all(growth[name] < most for name, most in GROWTH.items())
    return report | {
        "growth": {name: round(value, 2) for name, value in growth.items()},
        "own_mib_per_hour": round(slope, 2),
        "flat": flat,
    }


if __name__ == "__main__":
    sys.exit(main())
