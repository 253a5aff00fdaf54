"""`make serve-fuzz`: malformed frames against a running server, which must neither fall, run code, swell nor go deaf.

Random bytes, mutated requests, nesting, lying lengths, huge shapes, object dtypes, pickles that would leave a
folder behind, text frames, wrong fields and bytes that are no websocket frame, over connections that stay and some that
are closed after every error.
"""

import argparse
import json
import os
import pickle
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np

from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import BLOCK, RequestError
from lerobot_policy_quantile.serving.wire import DTYPES, pack
from scripts.raw_websocket import BINARY, CLOSE, TEXT, RawWebSocket, encode
from scripts.serve_load import artificial_server
from scripts.serving_process import RunningServer, VitalSigns, observation, serving

GROWTH_MIB = 32.0
CLOSED_SHARE = 0.05
"""Of the frames: sent by clients that are closed after each, 10,000 connections in the whole run."""
PIPELINE = 64
"""Frames sent before the first answer is read; their answers fit into the sockets' buffers."""
FAULTS = ("leaked", "left open", "no answer")
"""What must not be seen: a traceback, a connection that stays after its error, a frame without a reply."""
ANSWERED, REFUSED = "answered with actions", "refused with a sentence"


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
        good = {**observation(np.random.default_rng(seed), 8), BLOCK: {"want": ["spread"]}}
        self._good, self._nearly = pack(good), pack({**good, "entry nobody asked for": 1})
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
            self._twice,
            self._thin,
        ]

    def next(self) -> tuple[str, bytes | str]:
        """The kind of the next frame, and the frame."""
        make = self._random.choice(self._kinds)
        return make.__name__.strip("_"), make()

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.choice([0, 1, 7, 64, 1024, 4096]))

    def _mutated(self) -> bytes:
        """Where the changed bytes are pixels the request stays fine: one in ten may then cost an inference."""
        frame = bytearray(self._good if self._random.random() < 0.1 else self._nearly)
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
            b"shape": self._random.choice(
                [[2**40, 2**40], [-1], [2**63 - 1], [0] * 64, [8, 8, 3], "8", None, [1.5], [2**62, 0]]
            ),
            **self._random.choice([{}, {}, {b"more": 1}]),
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

    def _twice(self) -> bytes:
        """The same key a second time."""
        entry = bytes(msgpack.packb(self._random.choice(["prompt", BLOCK, b"__ndarray__"])))
        return b"\x83" + entry + b"\xa1x" + b"\xa1y\x01" + entry + b"\xc3"

    def _thin(self) -> bytes:
        """Pictures of which nothing is left at the policy's size, and prompts of too many tokens."""
        seen: dict[str, object] = observation(np.random.default_rng(0), 8)
        wrong: dict[str, object] = {"prompt": "put it down " * 80, "observation/image": np.zeros((8, 300, 3), np.uint8)}
        name = self._random.choice(list(wrong))
        return pack({**seen, "observation/image": np.zeros((8, 300, 3), np.uint8), name: wrong[name]})

    def _text(self) -> str:
        return self._noise().decode("latin-1")


def broken(draw: random.Random) -> bytes:
    """Bytes that are no websocket frame: after them a server can only close."""
    return draw.choice(
        [
            b"\x82\x05plain",  # not masked
            b"\x83\x80\0\0\0\0",  # an opcode nobody has defined
            b"\xc2\x80\0\0\0\0",  # a reserved bit
            b"\x82\xff" + struct.pack(">Q", 2**62) + b"\0\0\0\0",  # far over the size limit
            b"\x82\xff" + struct.pack(">Q", 2**63) + b"\0\0\0\0",  # a length that may not be
            b"\x89\xfe\x01\x00\0\0\0\0" + b"x" * 256,  # a ping that is too long
            b"\x80\x81\0\0\0\0x",  # goes on with a message that never began
            encode(b"\xff\xfe\xfd", TEXT),  # a text that is none
        ]
    )


class Attack:
    """Sends frames until it has sent its share or the time is over, and counts what came back."""

    def __init__(self, url: str, seed: int, bait: Path, until: float) -> None:
        self._url, self._until = url, until
        self._frames, self._random = Frames(seed, bait), random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.sent = 0

    def in_one_go(self, count: int) -> None:
        """A client that has spoken our part of the protocol: errors leave it open, frames go out many at a time."""
        while self._goes_on(count):
            with RawWebSocket(self._url) as socket:
                socket.receive()
                socket.send([pack({BLOCK: {"reset": True}})])
                socket.receive()
                while self._goes_on(count):
                    batch = [self._frames.next() for _ in range(min(PIPELINE, count - self.sent))]
                    socket.send(frame for _, frame in batch)
                    if not all(self._answered(kind, socket) for kind, _ in batch):
                        break

    def one_by_one(self, count: int) -> None:
        """A client that is closed after every error, as by openpi's server; every fourth is no websocket client."""
        while self._goes_on(count):
            with RawWebSocket(self._url) as socket:
                socket.receive()
                if self._random.random() < 0.25:
                    socket.send_raw(broken(self._random))
                    self._count("broken")
                    self.seen["closed" if self._closes(socket) else "left open"] += 1
                    continue
                kind, frame = self._frames.next()
                socket.send([frame])
                refused = self.seen[REFUSED]
                self._answered(kind, socket)
                if self.seen[REFUSED] > refused and BLOCK.encode() not in encode(frame):
                    self.seen["closed" if self._closes(socket) else "left open"] += 1

    def _goes_on(self, count: int) -> bool:
        return self.sent < count and time.monotonic() < self._until

    def _count(self, kind: str) -> None:
        self.sent += 1
        self.seen[kind] += 1

    def _answered(self, kind: str, socket: RawWebSocket) -> bool:
        """Whether an answer came to a frame of this kind; the connection goes on if it did."""
        try:
            answer = socket.receive()
        except (EOFError, OSError):
            self.seen["no answer"] += 1
            return False
        if answer.opcode == CLOSE:
            self.seen["no answer"] += 1
            return False
        self._count(kind)
        self.seen[ANSWERED if answer.opcode == BINARY else REFUSED] += 1
        if answer.opcode == TEXT:
            self.seen["leaked"] += b"Traceback" in answer.data or len(answer.data) > 1000
        return True

    @staticmethod
    def _closes(socket: RawWebSocket) -> bool:
        try:
            return socket.receive().opcode == CLOSE
        except EOFError:
            return True


def run(url: str, count: int, threads: int, bait: Path, minutes: float = 600.0) -> Counter[str]:
    """All frames, from several connections at once: every second client is closed after every error."""
    until = time.monotonic() + 60 * minutes
    attacks = [Attack(url, seed, bait, until) for seed in range(threads)]
    closed = round(count * CLOSED_SHARE)
    with ThreadPoolExecutor(threads) as pool:
        sending = [pool.submit(a.one_by_one, n) for a, n in zip(attacks[::2], parts(closed, attacks[::2]), strict=True)]
        sending += [
            pool.submit(a.in_one_go, n)
            for a, n in zip(attacks[1::2], parts(count - closed, attacks[1::2]), strict=True)
        ]
        progress(attacks, sending, count)
        for one in sending:
            one.result()
    return sum((attack.seen for attack in attacks), Counter())


def parts(count: int, attacks: list[Attack]) -> list[int]:
    """A count in nearly equal parts, one per attack."""
    return [count // len(attacks) + (number < count % len(attacks)) for number in range(len(attacks))]


def progress(attacks: list[Attack], sending: list[Future[None]], count: int) -> None:
    """A line twice a minute while frames are going out."""
    while wait(sending, 30).not_done:
        print(f"{sum(attack.sent for attack in attacks):7d} of {count} frames", file=sys.stderr, flush=True)


def main() -> int:
    """Exit code 0 if nothing happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long, whatever has been sent")
    parser.add_argument("--artificial", action="store_true", help="an artificial model: the door without a policy")
    parser.add_argument("--running", nargs=2, metavar=("URL", "PID"), help="a server of this machine that runs already")
    parser.add_argument("--threads", type=int, default=32, help="a connection is answered 100 errors a second")
    parser.add_argument("--out", type=Path, default=Path("runs/serve-fuzz"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bait = Path(folder) / "executed"
        with target(options) as server:
            run(server.url, min(2000, options.frames // 10), options.threads, bait)  # warm-up
            before, began = server.vital_signs(), time.monotonic()
            seen = run(server.url, options.frames, options.threads, bait, options.minutes)
            seconds = time.monotonic() - began
            after, answers = server.vital_signs(), still_answers(server)
        executed = bait.exists()
    growth = {name: round(getattr(after, name) - getattr(before, name), 1) for name in VitalSigns._fields}
    report = {
        "model": "artificial" if options.artificial else "base checkpoint, qhead serve",
        "frames": seen[ANSWERED] + seen[REFUSED] + seen["broken"],
        "seconds": round(seconds, 1),
        "growth": growth,
        "own_mib": round(after.own_mib, 1),
        "still_answers": answers,
        "code_executed": executed,
        "tracebacks_sent": seen["leaked"],
        "seen": dict(sorted(seen.items())),
    }
    print(json.dumps(report, indent=2))
    (options.out / "fuzz.json").write_text(json.dumps(report, indent=2) + "\n")
    clean = not executed and not any(seen[fault] for fault in FAULTS)
    return 0 if answers and clean and max(growth["own_mib"], growth["resident_mib"]) < GROWTH_MIB else 1


@contextmanager
def target(options: argparse.Namespace) -> Iterator[RunningServer]:
    """The server to be attacked, and its process for the vital signs."""
    if options.running is not None:
        url, pid = options.running
        yield RunningServer(url, int(pid))
    elif options.artificial:
        with artificial_server(16, 64, 0.0) as server:
            yield server
    else:
        with serving(base_checkpoint(), log=options.out / "log") as server:
            yield server


def still_answers(server: RunningServer) -> bool:
    """Whether an ordinary client is served after all that."""
    try:
        with PolicyClient(server.url, timeout=60) as client:
            return bool(client.infer(observation(np.random.default_rng(0)))["actions"].shape == (10, 7))
    except (ServerGoneError, RequestError) as error:
        print(f"the server does not answer any more: {error}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(main())
