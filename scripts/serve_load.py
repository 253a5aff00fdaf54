"""`make serve-load`: a hundred clients at once, against a model whose call costs the same for one row and for many.

The model is artificial: a call takes 50 ms, as a large policy's does on a GPU, whatever the batch, so that figures
speak of the server and not of this machine's arithmetic. Batched and unbatched servers take turns within one run. Also
here: what slow clients cost the others, and how fast a client hears that its server was killed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from lerobot_policy_quantile.contract import Observation, RawChunk, Spec
from lerobot_policy_quantile.serving.protocol import BLOCK
from lerobot_policy_quantile.serving.rates import log_to_stderr
from lerobot_policy_quantile.serving.server import PolicyServer
from lerobot_policy_quantile.serving.settings import ServerSettings
from lerobot_policy_quantile.serving.wire import pack, unpack
from scripts.serving_process import ACTION_DIM, CAMERAS, STATE_DIM, ServerProcess, observation

STEPS, SIZES = 10, (32, 48, 64)
COST = 0.05


class ArtificialModel:
    """Actions depend on the observation and on the episode's own generator: a mix-up of clients shows."""

    def __init__(self, cost: float) -> None:
        self._cost = cost
        self.spec = Spec(CAMERAS, STATE_DIM, ACTION_DIM, STEPS, STEPS, context={"policy": "artificial"})

    def begin(self, seed: int, decoder: str | None) -> np.random.Generator:
        """A generator of the episode's own."""
        return np.random.default_rng(seed)

    def predict(self, seen: Sequence[Observation], memories: Sequence[np.random.Generator]) -> list[RawChunk]:
        """One call, one cost."""
        time.sleep(self._cost)
        return [
            RawChunk(o.state[:ACTION_DIM] + o.images[CAMERAS[0]].mean() + m.normal(size=(STEPS, ACTION_DIM)))
            for o, m in zip(seen, memories, strict=True)
        ]


def single(seed: int, seen: Sequence[dict[str, Any]]) -> list[Any]:
    """The same episode, asked alone and without a server."""
    model = ArtificialModel(0.0)
    memory = model.begin(seed, None)
    rows = [Observation({n: o[n] for n in CAMERAS}, o["observation/state"].astype(np.float64), "") for o in seen]
    return [model.predict([row], [memory])[0].actions for row in rows]


async def serve_here(max_batch: int, queue: int, cost: float) -> None:
    """The child process."""
    log_to_stderr()
    settings = ServerSettings(port=0, max_batch=max_batch, max_queue=queue, deadline=120.0, max_connections=512)
    server = PolicyServer(ArtificialModel(cost), settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stopping.set)
    await server.run(lambda: print(server.port, flush=True))


@contextlib.contextmanager
def artificial_server(
    max_batch: int, queue: int, cost: float = COST, *, log: Path | None = None, files: int | None = None
) -> Iterator[ServerProcess]:
    """A server of the artificial model in a process of its own; `files` is its limit of open files."""
    command = [sys.executable, "-m", "scripts.serve_load", "--serve", str(max_batch), str(queue), str(cost)]
    if files is not None:
        command = ["prlimit", f"--nofile={files}:{files}", *command]
    errors = None if log is None else log.open("w")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        yield ServerProcess(process, f"ws://127.0.0.1:{int(line)}")
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def child(max_batch: int, queue: int, cost: float = COST) -> Iterator[tuple[str, int]]:
    """Its address and process id."""
    with artificial_server(max_batch, queue, cost) as server:
        yield server.url, server.process.pid


class Caller:
    """A client that asks numbered questions and keeps what it heard."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seen: list[dict[str, Any]] = []
        self.heard: list[Any] = []
        self.seconds: list[float] = []
        self.errors: Counter[str] = Counter()
        self._draw = np.random.default_rng(seed)

    async def open(self, url: str) -> None:
        """Connect and begin the episode."""
        self._socket = await connect(url, compression=None, open_timeout=120)
        await self._socket.recv()
        await self._socket.send(pack({BLOCK: {"reset": True, "seed": self.seed}}))
        await self._socket.recv()

    async def ask(self, count: int, pause: float = 0.0) -> None:
        """Some questions, one after the other, with a random wait of at most `pause` seconds before each."""
        for _ in range(count):
            await asyncio.sleep(pause * self._draw.random() if pause else 0.0)
            seen = observation(self._draw, SIZES[self.seed % len(SIZES)])  # pictures of several sizes in one batch
            began = time.monotonic()
            await self._socket.send(pack({**seen, BLOCK: {}}))
            answer = await self._socket.recv()
            if isinstance(answer, str):
                self.errors[json.loads(answer)["error"]] += 1
                continue
            self.seconds.append(time.monotonic() - began)
            self.seen.append(seen)
            self.heard.append(unpack(answer)["actions"])

    async def close(self) -> None:
        """Say goodbye."""
        await self._socket.close()

    def cross_talk(self) -> float:
        """Largest difference from the same episode asked alone."""
        return float(np.abs(np.array(self.heard) - np.array(single(self.seed, self.seen))).max())


async def crowd(url: str, count: int, first_seed: int) -> list[Caller]:
    """Connected clients, ten at a time."""
    callers = [Caller(first_seed + n) for n in range(count)]
    for some in range(0, count, 10):
        await asyncio.gather(*(caller.open(url) for caller in callers[some : some + 10]))
    return callers


async def timed(callers: Sequence[Caller], requests: int, pause: float = 0.0) -> float:
    """Seconds in which all of them have asked so often."""
    began = time.monotonic()
    await asyncio.gather(*(caller.ask(requests, pause) for caller in callers))
    return time.monotonic() - began


async def throughput(clients: int, requests: int, rounds: int) -> dict[str, Any]:
    """Batched and unbatched, turn and turn about; the unbatched one is asked a tenth as often."""
    with child(64, 2 * clients) as (batched_url, _), child(1, 2 * clients) as (single_url, _):
        batched, unbatched = await crowd(batched_url, clients, 0), await crowd(single_url, clients, 10_000)
        seconds = {"batched": 0.0, "unbatched": 0.0}
        fewer = max(1, requests // 10 // rounds)
        for _ in range(rounds):
            seconds["batched"] += await timed(batched, requests // rounds)
            seconds["unbatched"] += await timed(unbatched, fewer)
        for caller in (*batched, *unbatched):
            await caller.close()
    latencies = np.concatenate([caller.seconds for caller in batched])
    rates = {
        "batched": len(latencies) / seconds["batched"],
        "unbatched": clients * fewer * rounds / seconds["unbatched"],
    }
    return {
        "clients": clients,
        "requests_answered": len(latencies),
        "errors": sum((caller.errors for caller in (*batched, *unbatched)), Counter()),
        "cross_talk": max(caller.cross_talk() for caller in (*batched, *unbatched)),
        "p50_ms": round(1e3 * float(np.quantile(latencies, 0.5)), 1),
        "p99_ms": round(1e3 * float(np.quantile(latencies, 0.99)), 1),
        "batched_per_second": round(rates["batched"], 1),
        "unbatched_per_second": round(rates["unbatched"], 1),
        "batched_over_unbatched": round(rates["batched"] / rates["unbatched"], 2),
    }


async def overload(clients: int) -> dict[str, Any]:
    """More at once than the queue takes: every request is answered, or told busy."""
    with child(4, 8) as (url, _):
        callers = await crowd(url, clients, 0)
        await timed(callers, 3)
        errors = sum((caller.errors for caller in callers), Counter())
        answered = sum(len(caller.heard) for caller in callers)
        talk = max(caller.cross_talk() for caller in callers if caller.heard)
        for caller in callers:
            await caller.close()
    return {"asked": 3 * clients, "answered": answered, "errors": errors, "cross_talk": talk}


async def crawl(url: str) -> float:
    """Send a message one byte a second; seconds until the server has had enough."""
    async with connect(url, compression=None, ping_interval=None) as socket:
        await socket.recv()
        began = time.monotonic()
        socket.transport.write(b"\x82\xfe\xff\xff\0\0\0\0")
        while not socket.transport.is_closing() and time.monotonic() - began < 60:
            socket.transport.write(b"\x07")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(socket.connection_lost_waiter), 1.0)
        return time.monotonic() - began


async def slow_clients(rounds: int, clients: int = 8, slow: int = 10) -> dict[str, Any]:
    """The others' p99 with and without slow clients, turn and turn about; they ask after random waits."""
    dropped: list[float] = []
    alone: list[float] = []
    beside: list[float] = []
    with child(64, 64) as (url, _):
        callers = await crowd(url, clients, 0)
        await timed(callers, 5)
        for _ in range(rounds):
            for latencies, crawlers in ((alone, 0), (beside, slow)):
                tasks = [asyncio.create_task(crawl(url)) for _ in range(crawlers)]
                await asyncio.sleep(1.0)
                before = [len(caller.seconds) for caller in callers]
                await timed(callers, 60, pause=2 * COST)
                latencies += [s for caller, n in zip(callers, before, strict=True) for s in caller.seconds[n:]]
                dropped += await asyncio.gather(*tasks)
        for caller in callers:
            await caller.close()
    p99 = [float(np.quantile(latencies, 0.99)) for latencies in (alone, beside)]
    return {
        "slow_clients_dropped_after_s": [round(min(dropped), 1), round(max(dropped), 1)],
        "others_p99_ms_alone": round(1e3 * p99[0], 1),
        "others_p99_ms_beside": round(1e3 * p99[1], 1),
        "p99_ratio": round(p99[1] / p99[0], 3),
    }


async def killed() -> dict[str, Any]:
    """Seconds from kill -9 in mid-request to the client's error."""
    with child(1, 8, cost=30.0) as (url, pid):
        (caller,) = await crowd(url, 1, 0)
        question = asyncio.create_task(caller.ask(1))
        await asyncio.sleep(1.0)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        try:
            await question
        except (OSError, WebSocketException) as error:
            return {"error_after_s": round(time.monotonic() - began, 3), "error": type(error).__name__}
    raise RuntimeError("a killed server answered")


def main() -> int:
    """Exit code 0 if all bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=3, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/serve-load"))
    options = parser.parse_args()
    if options.serve:
        batch, queue, cost = options.serve
        asyncio.run(serve_here(int(batch), int(queue), float(cost)))
        return 0
    report = {
        "model": f"artificial, {1e3 * COST:g} ms per call whatever the batch",
        "load": asyncio.run(throughput(options.clients, options.requests, options.rounds)),
        "overload": asyncio.run(overload(options.clients)),
        "slow": asyncio.run(slow_clients(options.rounds)),
        "killed": asyncio.run(killed()),
    }
    print(json.dumps(report, indent=2))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "load.json").write_text(json.dumps(report, indent=2) + "\n")
    load, slow = report["load"], report["slow"]
    bounds = {
        "no cross-talk": max(load["cross_talk"], report["overload"]["cross_talk"]) < 1e-5,
        "every request answered": not load["errors"],
        "excess is busy": set(report["overload"]["errors"]) == {"busy"},
        "batched >= 3x": load["batched_over_unbatched"] >= 3,
        "slow clients dropped in 10 s": slow["slow_clients_dropped_after_s"][1] <= 10,
        "p99 moves < 20 %": slow["p99_ratio"] < 1.2,
        "killed server told in 2 s": report["killed"]["error_after_s"] < 2,
    }
    for name, holds in bounds.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(bounds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
