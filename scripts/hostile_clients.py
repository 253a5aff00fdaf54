"""Clients for `make serve-hostile` and `make soak`.

Floods, broken messages, silent connections, sessions that nobody uses, large pictures.
"""

import multiprocessing
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import BLOCK, RequestError
from scripts.raw_websocket import PING, RawWebSocket, encode

FLOODS = {
    "pings": encode(b"", PING) * 4096,
    "fragments": b"\x00\x81\0\0\0\0\x07" * 4096,
    "malformed frames": encode(b"\xc1") * 64,
}
"""What a flooding client sends, over and over."""


@contextmanager
def flooding(url: str, kind: str, connections: int) -> Iterator[Callable[[], int]]:
    """Connections that flood the server until the block ends, and come back when they are closed.

    In a process of their own, which takes no time from the clients that are measured. Gives how often one was closed.
    """
    context = multiprocessing.get_context("fork")
    stop, closed = context.Event(), context.Value("i", 0)
    process = context.Process(target=_flood_and_count, args=(url, kind, connections, stop, closed), daemon=True)
    process.start()
    try:
        yield lambda: int(closed.value)
    finally:
        stop.set()
        process.join(20)


def _flood_and_count(url: str, kind: str, connections: int, stop: Any, closed: Any) -> None:
    def count() -> None:
        with closed.get_lock():
            closed.value += 1

    flood(url, kind, connections, stop, count)


def flood(url: str, kind: str, connections: int, stop: Any, closed: Callable[[], object]) -> None:
    """Flood until the event `stop` is set; `closed` is called whenever the server has closed a connection."""

    def one() -> None:
        while not stop.is_set():
            try:
                with RawWebSocket(url, timeout=5.0) as client:
                    client.receive()
                    client.send_raw(b"\x02\x81\0\0\0\0\x07" if kind == "fragments" else b"")
                    while not stop.is_set():
                        client.send_raw(FLOODS[kind])
            except (OSError, EOFError):
                closed()
                stop.wait(0.25)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def break_off(url: str, size: int) -> bool:
    """Announce a message of `size` bytes, send a part of it and leave; whether the server took it."""
    try:
        with RawWebSocket(url, timeout=5.0) as client:
            client.receive()
            client.send_raw(encode(b"\0" * size)[: size // 4])
    except (OSError, EOFError):
        return False
    return True


def open_and_leave(url: str, visitors: int, sessions: int) -> Counter[str]:
    """Short connections that open sessions and never ask for an action."""
    seen = Counter[str]()
    for _ in range(visitors):
        with PolicyClient(url, timeout=60) as client:
            for _ in range(sessions):
                try:
                    client.infer({}, reset=True, new_session=True)
                    seen["opened"] += 1
                except RequestError as error:
                    seen[error.kind] += 1
    return seen


@contextmanager
def silent_connections(url: str, count: int) -> Iterator[int]:
    """Connections that say nothing; how many could be opened."""
    address = urlsplit(url)
    with ExitStack() as held:
        opened = 0
        for _ in range(count):
            try:
                held.enter_context(socket.create_connection((address.hostname, address.port), 5.0))
                opened += 1
            except OSError:
                continue
        yield opened


def ask_all(url: str, observations: Sequence[dict[str, Any]], requests: int) -> tuple[Counter[str], float]:
    """One client per observation, each until it has so many answers; what they heard, and the seconds it took.

    After two minutes nobody asks again.
    """
    until = time.monotonic() + 120
    seen, ready = Counter[str](), threading.Barrier(len(observations) + 1)

    def ask(observation: dict[str, Any]) -> None:
        with PolicyClient(url, timeout=120) as client:
            ready.wait()
            answered = 0
            while answered < requests and time.monotonic() < until:
                try:
                    client.infer(observation, want=[])
                    answered += 1
                    seen["answered"] += 1
                except RequestError as error:
                    seen[str(error.kind)] += 1
                    if not error.retry:
                        return
                    time.sleep(0.1)
                except ServerGoneError:
                    seen["gone"] += 1
                    time.sleep(0.5)

    with ThreadPoolExecutor(len(observations)) as pool:
        asking = [pool.submit(ask, observation) for observation in observations]
        ready.wait()
        began = time.monotonic()
        for one in asking:
            one.result()
        return seen, time.monotonic() - began


def new_session(url: str) -> str:
    """What a newcomer hears: a session's id, or the kind of error."""
    with PolicyClient(url, timeout=60) as client:
        try:
            return str(client.infer({}, reset=True)[BLOCK]["session"])
        except RequestError as error:
            return str(error.kind)
