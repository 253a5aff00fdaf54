"""`make serve-fuzz`: malformed frames against a running server, which must neither fall, run code, swell nor go deaf.

Random bytes, mutated requests, nesting, lying lengths, huge shapes, object dtypes, pickles that would leave a
folder behind, text frames and wrong fields, over connections that stay and some that are closed after every error.
"""

import argparse
import json
import os
import pickle
import random
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import connect

from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import BLOCK
from lerobot_policy_quantile.serving.wire import DTYPES, pack
from scripts.serve_load import artificial_server
from scripts.serving_process import observation, save_policy, serving

GROWTH_MIB = 32.0


class Bait:
    """A pickle that leaves a file behind if anyone opens it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (os.mkdir, (self._path,))


class Frames:
    """An endless, seeded supply of frames that no server should like."""

    def __init__(self, seed: int, bait: Path) -> None:
        self._random, self._bait = random.Random(seed), str(bait)
        self._good = pack({**observation(np.random.default_rng(seed), 8), BLOCK: {"want": ["spread"]}})
        self._kinds = [
            self._noise,
            self._mutated,
            self._cut,
            self._nested,
            self._lies,
            self._array,
            self._pickle,
            self._field,
            self._wish,
            self._text,
        ]

    def next(self) -> tuple[str, bytes | str]:
        """The kind of the next frame, and the frame."""
        make = self._random.choice(self._kinds)
        return make.__name__.strip("_"), make()

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.choice([0, 1, 7, 64, 1024, 4096]))

    def _mutated(self) -> bytes:
        frame = bytearray(self._good)
        for _ in range(self._random.randint(1, 8)):
            frame[self._random.randrange(min(len(frame), 200))] = self._random.randrange(256)
        return bytes(frame)

    def _cut(self) -> bytes:
        return self._good[: self._random.randrange(len(self._good))]

    def _nested(self) -> bytes:
        opener = self._random.choice([b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"])
        return opener * self._random.choice([9, 100, 1023, 1025, 10_000]) + b"\xc0"

    def _lies(self) -> bytes:
        header = self._random.choice([b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9"])
        return header + struct.pack(">I", self._random.choice([1, 2**16, 2**31, 2**32 - 1])) + self._noise()

    def _array(self) -> bytes:
        entry = {
            b"__ndarray__": True,
            b"data": self._noise(),
            b"dtype": self._random.choice([*DTYPES, "|O", "O", "V8", "i4,i4", ">f8", "<c16", "<U99", "(2**40,)u1", 7]),
            b"shape": self._random.choice([[2**40, 2**40], [-1], [2**63 - 1], [0] * 64, [8, 8, 3], "8", None, [1.5]]),
        }
        return bytes(msgpack.packb({"observation/state": entry, "prompt": "x"}))

    def _pickle(self) -> bytes:
        data = pickle.dumps(Bait(self._bait), protocol=self._random.choice([0, 2, 5]))
        entry = {b"__ndarray__": True, b"data": data, b"dtype": "|O", b"shape": [1]}
        wrapped = [data, msgpack.packb(data), msgpack.packb({"observation/state": entry}), msgpack.packb({"a": data})]
        return bytes(self._random.choice(wrapped))

    def _field(self) -> bytes:
        seen: dict[str, object] = observation(np.random.default_rng(self._random.randrange(9)), 8)
        name = self._random.choice(list(seen))
        wrong: list[object] = [None, np.full(8, np.nan), np.zeros((2, 2)), "x" * 5000, -1, [], {}, [[1]], np.zeros(0)]
        seen[name] = self._random.choice([value for value in wrong if name != "prompt" or not isinstance(value, str)])
        return pack(seen)

    def _wish(self) -> bytes:
        names = ["session", "reset", "seed", "decoder", "want", "sequence", "sent", "age", "deadline", "no_such_thing"]
        values: list[object] = [-1, 1e400, [], {}, "\0" * 300, [["quantiles"]], [None], 2**63, b"x", np.float32(1)]
        wishes = {self._random.choice(names): self._random.choice(values)}
        return pack({**observation(np.random.default_rng(0), 8), "prompt": "", BLOCK: wishes})

    def _text(self) -> str:
        return self._noise().decode("latin-1")


def attack(url: str, frames: Frames, count: int, seen: Counter[str], *, stays: bool, until: float) -> None:
    """Send frames, reading every answer. A client that stays has spoken our part of the protocol: errors leave it open.

    Any other is closed after every error, as by openpi's server, and connects again.
    """
    sent = 0
    while sent < count and time.monotonic() < until:
        with connect(url, compression=None, open_timeout=60) as socket:
            socket.recv(timeout=60)
            if stays:
                socket.send(pack({BLOCK: {"reset": True}}))
                socket.recv(timeout=60)
            try:
                while sent < count and time.monotonic() < until:
                    kind, frame = frames.next()
                    socket.send(frame)
                    answer = socket.recv(timeout=60)
                    sent += 1
                    seen[kind] += 1
                    seen["answered with actions" if isinstance(answer, bytes) else "refused with a sentence"] += 1
                    if isinstance(answer, str):
                        seen["leaked"] += "Traceback" in answer or len(answer) > 1000
                        if not stays and kind != "wish":
                            break
            except ConnectionClosed:
                seen["closed"] += 1


def run(url: str, count: int, threads: int, bait: Path, minutes: float = 600.0) -> Counter[str]:
    """All frames, from several connections at once."""
    seen: Counter[str] = Counter()
    until = time.monotonic() + 60 * minutes
    workers = [
        threading.Thread(
            target=attack,
            args=(url, Frames(seed, bait), count // threads, seen),
            kwargs={"stays": seed % 4 > 0, "until": until},
        )
        for seed in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return seen


def main() -> int:
    """Exit code 0 if nothing happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long, whatever has been sent")
    parser.add_argument("--artificial", action="store_true", help="an artificial model: the door without a policy")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("runs/serve-fuzz"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bait = Path(folder) / "executed"
        with (
            artificial_server(16, 64, 0.0)
            if options.artificial
            else serving(save_policy(Path(folder) / "policy"), log=options.out / "log") as server
        ):
            run(server.url, min(2000, options.frames // 10), options.threads, bait)  # warm-up
            before, began = server.resident_mib(), time.monotonic()
            seen = run(server.url, options.frames, options.threads, bait, options.minutes)
            seconds = time.monotonic() - began
            after, descriptors = server.resident_mib(), server.descriptors()
            answers = False
            if server.alive():
                try:
                    with PolicyClient(server.url, timeout=60) as client:
                        answers = client.infer(observation(np.random.default_rng(0)))["actions"].shape == (10, 7)
                except (OSError, WebSocketException) as error:
                    print(f"the server does not answer any more: {error}")
        executed = bait.exists()
    report = {
        "model": "artificial" if options.artificial else "tiny policy, qhead serve",
        "frames": sum(seen[kind] for kind in seen if " " not in kind and kind not in ("closed", "leaked")),
        "seconds": round(seconds, 1),
        "memory_growth_mib": round(after - before, 1),
        "memory_mib": round(after, 1),
        "descriptors": descriptors,
        "still_answers": answers,
        "code_executed": executed,
        "tracebacks_sent": seen["leaked"],
        "seen": dict(sorted(seen.items())),
    }
    print(json.dumps(report, indent=2))
    (options.out / "fuzz.json").write_text(json.dumps(report, indent=2) + "\n")
    fine = answers and not executed and not seen["leaked"] and after - before < GROWTH_MIB
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
