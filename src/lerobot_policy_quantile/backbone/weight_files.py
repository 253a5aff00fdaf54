"""The safetensors files of a checkpoint folder: whole ones give their tensors, any other is named in one sentence."""

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

SINGLE_FILE, SHARD_INDEX = "model.safetensors", "model.safetensors.index.json"
LFS_POINTER = b"version https://git-lfs"
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its JSON header, little-endian; the tensors follow the header."""
LARGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor of a checkpoint lies."""

    file: Path
    key: str
    shape: tuple[int, ...]

    def rows(self, rows: slice) -> Tensor:
        """Some rows; the file is opened for each piece anew, because what was read of an open one stays in memory."""
        with safe_open(self.file, framework="pt") as tensors:
            piece: Tensor = tensors.get_slice(self.key)[rows] if self.shape else tensors.get_tensor(self.key)
        return piece


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Where all tensors of the checkpoint lie; no tensor is read."""
    stored: dict[str, StoredTensor] = {}
    for file in weight_files(folder):
        for key, tensor in tensors_in(file).items():
            if key in stored:
                raise ValueError(f"{file} holds {key}, which {stored[key].file.name} holds too; keep one of them")
            stored[key] = tensor
    return stored


def tensors_in(file: Path) -> dict[str, StoredTensor]:
    """Where the tensors of one whole file lie."""
    require_whole(file)
    try:
        with safe_open(file, framework="pt") as tensors:
            shapes = {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file: {error}") from None
    return {key: StoredTensor(file, key, shape) for key, shape in shapes.items()}


def weight_files(folder: Path) -> list[Path]:
    """The one file of a checkpoint, or the shards its index names; all of them inside the folder."""
    index = folder / SHARD_INDEX
    if index.is_file():
        names = _shard_names(index)
    elif (folder / SINGLE_FILE).is_file():
        names = [SINGLE_FILE]
    else:
        raise ValueError(f"weights must be {SINGLE_FILE}, or shards with {SHARD_INDEX}; {folder} has neither")
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ValueError(f"{index} names shards that {folder} does not have: {', '.join(absent)}")
    return [folder / name for name in names]


def require_whole(file: Path) -> None:
    """Refuse a file that is cut off, goes on after its end, or only points at the weights."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise ValueError(f"{file} is a git-lfs pointer, not the weights; fetch them with: git lfs pull")
        length = int.from_bytes(start[:LENGTH_BYTES], "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LARGEST_HEADER):
            raise ValueError(f"{file} is truncated or no safetensors file: its header ends beyond its {size:,} bytes")
        opened.seek(LENGTH_BYTES)
        header = _parsed(file, opened.read(length))
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    whole = LENGTH_BYTES + length + max(ends, default=0)
    if size < whole:
        raise ValueError(f"{file} is truncated: it has {size:,} of {whole:,} bytes; fetch it again")
    if size > whole:
        raise ValueError(f"{file} has {size - whole:,} bytes after its end at {whole:,}; fetch it again")


def _parsed(file: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
        _ = [int(entry["data_offsets"][1]) for key, entry in header.items() if key != "__metadata__"]
    except (ValueError, TypeError, LookupError, AttributeError):
        raise ValueError(f"{file} is no safetensors file: its header cannot be read") from None
    parsed: dict[str, Any] = header
    return parsed


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        outside = [name for name in names if _leaves_folder(name)]
    except (ValueError, TypeError, LookupError, AttributeError):
        raise ValueError(f"{index} must be JSON with a weight_map from keys to file names") from None
    if outside:
        raise ValueError(f"{index} must name files inside its folder; got {outside[0]!r}")
    if not names:
        raise ValueError(f"{index} must name at least one file; its weight_map is empty")
    return names


def _leaves_folder(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in name
