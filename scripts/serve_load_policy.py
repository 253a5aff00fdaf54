"""The second half of `make serve-load`: a hundred clients at once against `qhead serve` with a real policy.

The base checkpoint, clients with decoders of two kinds in the same batches. Every answer is held against the same
episode asked alone, without a server, with the same seed. What batching gains here is this machine's arithmetic and is
not judged; the artificial model of the first half is for that.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from lerobot_policy_quantile.base_policy import base_checkpoint
from lerobot_policy_quantile.served_policy import load_served_policy
from scripts.serve_load import Caller, connected, timed
from scripts.serving_process import serving

DECODERS = ("median", "shared(l=0.1)")
SIZE = 96
"""Pixels of the pictures: what the base checkpoint was pretrained on."""
TOLERANCE = 1e-5


async def ask(url: str, clients: int, requests: int, first_seed: int) -> tuple[list[Caller], float]:
    """Clients that have asked so often, and the seconds it took."""
    callers = [Caller(first_seed + n, DECODERS[n % len(DECODERS)], SIZE) for n in range(clients)]
    await connected(url, callers)
    seconds = await timed(callers, requests)
    for caller in callers:
        await caller.close()
    return callers, seconds


def summary(callers: Sequence[Caller], asked: int, seconds: float) -> dict[str, Any]:
    """Answers, errors and latencies."""
    latencies = np.concatenate([caller.seconds for caller in callers])
    return {
        "asked": asked,
        "answered": len(latencies),
        "errors": dict(sum((caller.errors for caller in callers), Counter())),
        "p50_ms": round(1e3 * float(np.quantile(latencies, 0.5)), 1),
        "p99_ms": round(1e3 * float(np.quantile(latencies, 0.99)), 1),
        "per_second": round(len(latencies) / seconds, 1),
    }


def main() -> int:
    """Exit code 0 if nothing but busy was refused and no answer differs from single inference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, default=None, help="another folder than the shipped base checkpoint")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/serve-load"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder, patience = options.policy or base_checkpoint(), ("--deadline", 3600)
    with serving(folder, "--queue", 2 * options.clients, *patience, log=options.out / "policy.log") as server:
        callers, seconds = asyncio.run(ask(server.url, options.clients, options.requests, 0))
    load = summary(callers, options.clients * options.requests, seconds)
    print(json.dumps(load), file=sys.stderr, flush=True)
    with serving(folder, "--queue", 8, "--max-batch", 4, *patience, log=options.out / "policy.log") as server:
        crowd, seconds = asyncio.run(ask(server.url, options.clients, 3, 10_000))
    overload = summary(crowd, 3 * options.clients, seconds)
    print(json.dumps(overload), file=sys.stderr, flush=True)

    model = load_served_policy(folder)
    began = time.monotonic()
    compared = [caller for caller in (*callers, *crowd) if caller.heard]
    apart = max(caller.cross_talk(model) for caller in track(compared, "asking alone"))
    alone = sum(len(caller.heard) for caller in compared) / (time.monotonic() - began)
    report = {"load": load, "overload": overload, "cross_talk": apart, "alone_per_second": round(alone, 1)}
    print(json.dumps(report, indent=2))
    (options.out / "policy.json").write_text(json.dumps(report, indent=2) + "\n")
    bounds = {
        "every request answered": not load["errors"] and load["answered"] == load["asked"],
        "excess is busy": set(overload["errors"]) == {"busy"},
        f"no cross-talk, within {TOLERANCE:g} of single inference": apart < TOLERANCE,
    }
    for name, holds in bounds.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(bounds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
