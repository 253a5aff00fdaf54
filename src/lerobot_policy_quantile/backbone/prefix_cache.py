"""Prefixes of a frozen VLM kept from one visit of a training frame to the next, in memory or in a mapped file.

A frozen VLM says the same about a frame every time it is seen; kept, the keys and values turn a training step into
one of the expert alone. One row per dataset frame, filled when the frame is first seen; untouched rows take neither
memory nor disk. A cache of other frozen weights, or of a frame whose pictures or words have changed since, is refused.
Processes may open one folder at the same time and fill it together.

Axes: b batch, l layer, s prefix token, e head size, v VLM width.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.fingerprints import METHOD
from lerobot_policy_quantile.core._devices import send

ROWS, FACTS, LOCK = "prefixes.bin", "prefixes.json", "prefixes.lock"
_STORED = {torch.float32: np.dtype(np.float32), torch.bfloat16: np.dtype(np.int16)}
"""How a precision lies in numpy, which knows no bfloat16."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a row."""

    layers: int
    kv_heads: int
    tokens: int
    """At most this many prefix tokens per frame; a row holds the valid ones."""
    head_size: int
    pooled: int
    """Width of the pooled features: the VLM's, or 0 where nobody reads them."""
    dtype: torch.dtype

    @property
    def row(self) -> np.dtype[np.void]:
        """One frame as numpy lays it out; `length` 0 means not seen yet."""
        kept = _STORED[self.dtype]
        block = (self.layers, 2, self.kv_heads, self.tokens, self.head_size)
        return np.dtype(
            [
                ("digest", "<i8"),
                ("length", "<i4"),
                ("pooled", "<f4", (self.pooled,)),
                ("block", kept, block),
            ]
        )


def stored_shape(folder: Path) -> Shape | None:
    """Of the rows in a folder; None where there are none yet."""
    if not (folder / FACTS).is_file():
        return None
    facts: dict[str, str] = json.loads((folder / FACTS).read_text())
    sizes = {field.name: int(facts[field.name]) for field in fields(Shape) if field.name != "dtype"}
    return Shape(**sizes, dtype=getattr(torch, facts["dtype"].removeprefix("torch.")))


class PrefixCache:
    """Rows of one dataset under one set of frozen weights."""

    def __init__(self, rows: np.ndarray[Any, Any], dtype: torch.dtype) -> None:
        self._rows, self._dtype = rows, dtype

    @classmethod
    def in_memory(cls, shape: Shape, frames: int) -> "PrefixCache":
        """Lost with the process."""
        return cls(np.zeros(frames, shape.row), shape.dtype)

    @classmethod
    def in_folder(cls, folder: Path, shape: Shape, frames: int, made_from: Mapping[str, str]) -> "PrefixCache":
        """A file that a later run goes on with, if `made_from` and the sizes are still the same."""
        facts = asdict(shape) | {"frames": frames, "digest": METHOD, **made_from}
        facts = {name: str(value) for name, value in facts.items()}
        rows, written = folder / ROWS, folder / FACTS
        size = frames * shape.row.itemsize
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder / LOCK):
            if written.is_file() and rows.is_file():
                found = json.loads(written.read_text()) | {"bytes": str(rows.stat().st_size)}
                require_fresh(folder, found, facts | {"bytes": str(size)})
            else:
                _write(rows, lambda file: file.truncate(size))
                _write(written, lambda file: file.write(json.dumps(facts, indent=2).encode() + b"\n"))
            return cls(np.memmap(rows, shape.row, mode="r+", shape=(frames,)), shape.dtype)

    def __len__(self) -> int:
        """Frames seen so far."""
        return int(np.count_nonzero(self._rows["length"]))

    def unseen(self, frames: Sequence[int], digests: Sequence[int]) -> list[int]:
        """Places in the batch whose frames have no row yet; a frame that looks different from its row is an error."""
        for frame in frames:
            if not 0 <= frame < len(self._rows):
                raise ValueError(f"index must lie in 0..{len(self._rows) - 1}, the frames of the cache; got {frame}")
        seen = self._rows["length"][list(frames)] > 0
        changed = seen & (self._rows["digest"][list(frames)] != np.array(digests, np.int64))
        if changed.any():
            raise ValueError(
                f"frame {frames[int(changed.argmax())]} is not what the prefix cache holds: its pictures or words have"
                " changed; use another folder for another dataset, and no cache where image transforms are random"
            )
        return [int(place) for place in np.flatnonzero(~seen)]

    def put(self, frames: Sequence[int], digests: Sequence[int], prefix: Prefix) -> None:
        """Keep what the VLM said about frames; only tokens that are there."""
        valid = prefix.valid.cpu().numpy()
        for number, layer in enumerate(prefix.layers):
            for which, part in enumerate(layer):
                said = self._numpy(part)
                for place, frame in enumerate(frames):
                    there = valid[place]
                    self._rows[frame]["block"][number, which, :, : there.sum()] = said[place][:, there]
        pooled = prefix.pooled.detach().float().cpu().numpy()
        for place, frame in enumerate(frames):
            row = self._rows[frame]
            row["pooled"], row["digest"] = pooled[place], digests[place]
            row["length"] = valid[place].sum()  # last: a row that a killed run left half written counts as not seen

    def get(self, frames: Sequence[int], device: torch.device | str = "cpu") -> Prefix:
        """The prefixes of frames that are there, as one batch; each is copied once, to a GPU from pinned memory."""
        device = torch.device(device)
        lengths = torch.from_numpy(self._rows["length"][list(frames)].astype(np.int64))
        longest = int(lengths.max())
        kept = self._rows["block"]
        size = (len(frames), *kept.shape[1:4], longest, kept.shape[5])
        if device.type == "cuda":  # pinned memory, which torch keeps from batch to batch
            block = torch.empty(size, dtype=self._dtype, pin_memory=True)
        else:  # numpy's large arrays lie in large pages, torch's do not
            block = torch.from_numpy(np.empty(size, kept.dtype)).view(self._dtype)
        into = self._numpy(block)
        for place, frame in enumerate(frames):
            into[place] = kept[frame, ..., :longest, :]
        block = send(block, device)
        layers = tuple(KeyValue(block[:, number, 0], block[:, number, 1]) for number in range(block.shape[1]))
        valid: Bool[Tensor, "b s"] = torch.arange(longest) < lengths[:, None]
        pooled = torch.from_numpy(self._rows["pooled"][list(frames)])
        return Prefix(layers, send(valid, device), send(pooled, device), bool(valid.all()))

    def _numpy(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The same memory, if it lies on the host."""
        tensor = tensor.detach().to("cpu", self._dtype).contiguous()
        return (tensor.view(torch.int16) if self._dtype == torch.bfloat16 else tensor).numpy()


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Other processes wait here; a killed one lets go."""
    try:
        import fcntl
    except ImportError:
        raise ValueError("prefix_cache as a folder needs the file locks of a POSIX system; use 'memory'") from None
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """A whole file or none, and never the one that somebody has mapped."""
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        fill(file)
    temporary.replace(path)


def require_fresh(place: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuse a cache that was made from something else than what is here now."""
    stale = [
        f"{name} was {found.get(name)}, is {value}" for name, value in expected.items() if found.get(name) != value
    ]
    if stale:
        raise ValueError(f"prefix cache {place} is stale ({'; '.join(stale)}); remove it to build it anew")
