"""Prefixes of a frozen VLM kept from one visit of a training frame to the next, in memory or in a mapped file.

A frozen VLM says the same about a frame every time it is seen; kept, the keys and values turn a training step into
one of the expert alone. One row per dataset frame, filled when the frame is first seen; untouched rows take neither
memory nor disk. A cache of other frozen weights, or of a frame whose pictures or words have changed since, is refused.

Axes: b batch, l layer, s prefix token, e head size, v VLM width.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix

ROWS, FACTS = "prefixes.bin", "prefixes.json"
DIGEST_BYTES = 16
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
                ("digest", "u1", (DIGEST_BYTES,)),
                ("length", "<i4"),
                ("pooled", "<f4", (self.pooled,)),
                ("block", kept, block),
            ]
        )


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
        facts = {name: str(value) for name, value in (asdict(shape) | {"frames": frames, **made_from}).items()}
        rows, written = folder / ROWS, folder / FACTS
        if written.is_file() and rows.is_file():
            require_fresh(folder, json.loads(written.read_text()), facts)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            with rows.open("wb") as file:
                file.truncate(frames * shape.row.itemsize)
            temporary = written.with_suffix(".part")
            temporary.write_text(json.dumps(facts, indent=2) + "\n")
            temporary.replace(written)
        return cls(np.memmap(rows, shape.row, mode="r+", shape=(frames,)), shape.dtype)

    def __len__(self) -> int:
        """Frames seen so far."""
        return int(np.count_nonzero(self._rows["length"]))

    def unseen(self, frames: Sequence[int], digests: Sequence[bytes]) -> list[int]:
        """Places in the batch whose frames have no row yet; a frame that looks different from its row is an error."""
        places = []
        for place, (frame, digest) in enumerate(zip(frames, digests, strict=True)):
            if not 0 <= frame < len(self._rows):
                raise ValueError(f"index must lie in 0..{len(self._rows) - 1}, the frames of the cache; got {frame}")
            row = self._rows[frame]
            if not row["length"]:
                places.append(place)
            elif row["digest"].tobytes() != digest:
                raise ValueError(
                    f"frame {frame} is not what the prefix cache holds: its pictures or words have changed;"
                    " use another folder for another dataset, and no cache where image transforms are random"
                )
        return places

    def put(self, frames: Sequence[int], digests: Sequence[bytes], prefix: Prefix) -> None:
        """Keep what the VLM said about frames; only tokens that are there."""
        for place, (frame, digest) in enumerate(zip(frames, digests, strict=True)):
            row, there = self._rows[frame], prefix.valid[place]
            length = int(there.sum())
            for number, layer in enumerate(prefix.layers):
                for which, part in enumerate(layer):
                    row["block"][number, which, :, :length] = self._numpy(part[place][:, there])
            row["pooled"] = prefix.pooled[place].detach().float().cpu().numpy()
            row["digest"] = np.frombuffer(digest, np.uint8)
            row["length"] = length  # last: a row that a killed run left half written counts as not seen

    def get(self, frames: Sequence[int], device: torch.device | str = "cpu") -> Prefix:
        """The prefixes of frames that are there, as one batch."""
        lengths = torch.from_numpy(self._rows["length"][frames].astype(np.int64))
        longest = int(lengths.max())
        # Tokens are cut before rows are gathered, so that padding is never copied.
        block = self._torch(self._rows["block"][..., :longest, :][frames]).to(device)
        layers = tuple(KeyValue(block[:, number, 0], block[:, number, 1]) for number in range(block.shape[1]))
        valid: Bool[Tensor, "b s"] = torch.arange(longest) < lengths[:, None]
        pooled = torch.from_numpy(self._rows["pooled"][frames])
        return Prefix(layers, valid.to(device), pooled.to(device))

    def _numpy(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        tensor = tensor.detach().to("cpu", self._dtype).contiguous()
        return (tensor.view(torch.int16) if self._dtype == torch.bfloat16 else tensor).numpy()

    def _torch(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).view(self._dtype)


def require_fresh(place: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuse a cache that was made from something else than what is here now."""
    stale = [
        f"{name} was {found.get(name)}, is {value}" for name, value in expected.items() if found.get(name) != value
    ]
    if stale:
        raise ValueError(f"prefix cache {place} is stale ({'; '.join(stale)}); remove it to build it anew")


def row_digests(parts: Iterable[Tensor], rows: int) -> list[bytes]:
    """Of every row of a batch: a hash of all that the VLM reads of it."""
    hashes = [hashlib.sha256() for _ in range(rows)]
    for part in parts:
        for digest, row in zip(hashes, _bytes(part), strict=True):
            digest.update(row)
    return [digest.digest()[:DIGEST_BYTES] for digest in hashes]


def weights_digest(weights: Iterable[Tensor]) -> str:
    """A hash of weights, whatever their precision and place."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(_bytes(weight[None])[0])
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> list[np.ndarray[Any, Any]]:
    """Every row's memory."""
    return list(tensor.detach().cpu().reshape(len(tensor), -1).contiguous().view(torch.uint8).numpy())
