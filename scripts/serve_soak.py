"""`make soak`: an hour of ordinary and bad clients; the server's memory, descriptors and threads must stay flat.

Every client connects, asks a few times, resets, errs on purpose, breaks off without a word, and comes back. Vital signs
are taken twice a minute; the first tenth of the time is warm-up and not judged.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import RequestError
from scripts.serving_process import ServerProcess, VitalSigns, observation, serving

GROWTH = {"own_mib": 16.0, "descriptors": 8, "threads": 4}
"""Most that may be added between the first and the last sixth of the judged time."""


def life(url: str, seed: int, pause: float, until: float, counts: dict[str, int]) -> None:
    """One client after the other, until the time is over."""
    choose, draw = random.Random(seed), np.random.default_rng(seed)
    while time.monotonic() < until:
        client = PolicyClient(url, timeout=30)
        try:
            _visit(client, choose, draw, pause, until, counts)
        except ServerGoneError:
            counts["gone"] += 1
        finally:
            if choose.random() < 0.5 and client._socket is not None:
                client._socket.socket.close()  # breaks off without a word
            client.close()
            counts["visits"] += 1


def _visit(
    client: PolicyClient,
    choose: random.Random,
    draw: np.random.Generator,
    pause: float,
    until: float,
    counts: dict[str, int],
) -> None:
    client.infer({}, reset=True, decoder=choose.choice(["median", "shared(l=0.1)", "density"]))
    for number in range(choose.randint(5, 20)):
        if time.monotonic() > until:
            return
        seen = observation(draw)
        bad = choose.random() < 0.1
        if bad:
            seen["observation/state"] = np.full(8, np.nan)
        try:
            client.infer(seen, want=["quantiles", "spread"], sequence=number, sent=time.monotonic())
            counts["answers"] += 1
        except RequestError as error:
            counts[f"error {error.kind}"] = counts.get(f"error {error.kind}", 0) + 1
        time.sleep(pause)


def main() -> int:
    """Exit code 0 if everything stayed flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between a client's requests")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    counts = {"answers": 0, "visits": 0, "gone": 0}
    with serving(base_checkpoint(), log=options.out / "log") as server:
        until = time.monotonic() + 60 * options.minutes
        arguments = (options.pause, until, counts)
        threads = [
            threading.Thread(target=life, args=(server.url, n, *arguments), daemon=True) for n in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        signs = watch(server, until, options.minutes, options.out / "signs.csv")
        for thread in threads:
            thread.join(30)
        alive = server.alive()
    report = {"minutes": round(signs[-1][0], 1), **counts, **judged(signs, options.minutes), "alive": alive}
    print(json.dumps(report, indent=2))
    (options.out / "soak.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if alive and report["flat"] and not counts["gone"] else 1


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
