"""`make soak`: an hour of ordinary and bad clients; the server's memory and descriptors must stay flat.

Every client connects, asks a few times, resets, errs on purpose, breaks off without a word, and comes back. Vital signs
are taken twice a minute; the first tenth of the time is warm-up and not judged.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import RequestError
from scripts.serving_process import observation, save_policy, serving

GROWTH_MIB, GROWTH_DESCRIPTORS = 16.0, 8


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
    """Exit code 0 if memory and descriptors stayed flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between a client's requests")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    counts = {"answers": 0, "visits": 0, "gone": 0}
    signs: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as folder, serving(save_policy(Path(folder)), log=options.out / "log") as server:
        began = time.monotonic()
        until = began + 60 * options.minutes
        arguments = (options.pause, until, counts)
        threads = [
            threading.Thread(target=life, args=(server.url, n, *arguments), daemon=True) for n in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < until and server.alive():
            time.sleep(min(30.0, options.minutes * 60 / 20))
            signs.append(((time.monotonic() - began) / 60, server.resident_mib(), server.descriptors()))
            print("minute {:5.1f}  memory {:7.1f} MiB  descriptors {}".format(*signs[-1]), flush=True)
        for thread in threads:
            thread.join(30)
        alive = server.alive()
    settled = [sign for sign in signs if sign[0] > options.minutes / 10]
    memory, descriptors = [[sign[i] for sign in settled] for i in (1, 2)]
    slope = float(np.polyfit([sign[0] / 60 for sign in settled], memory, 1)[0])
    report = {
        "minutes": round(signs[-1][0], 1),
        **counts,
        "memory_mib": [round(min(memory), 1), round(max(memory), 1)],
        "memory_slope_mib_per_hour": round(slope, 2),
        "descriptors": [min(descriptors), max(descriptors)],
        "alive": alive,
    }
    print(json.dumps(report, indent=2))
    (options.out / "soak.json").write_text(json.dumps(report, indent=2) + "\n")
    flat = memory[-1] - memory[0] < GROWTH_MIB and descriptors[-1] - descriptors[0] < GROWTH_DESCRIPTORS
    return 0 if alive and flat and not counts["gone"] else 1


if __name__ == "__main__":
    sys.exit(main())
