"""Decoded pictures of a dataset in a mapped file, which trainings side by side fill and read together.

Decoding the pictures of a batch takes a third of an update of the tiny policy, although a frozen VLM reads each frame
only once. A frame is decoded when it is first asked for; later it is copied. The samples are the same.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


class PictureRows:
    """A Hugging Face dataset whose single rows take their pictures from a mapped file; all else is the dataset's."""

    def __init__(self, whole: Any, keys: list[str], shape: tuple[int, int, int], folder: Path) -> None:
        self._whole, self._keys = whole, keys
        self._others = whole.select_columns([name for name in whole.column_names if name not in keys])
        row = np.dtype([("pictures", np.uint8, (len(keys), *shape)), ("there", np.uint8)])
        file = folder / f"pictures-{_identity(whole, keys, shape)}.bin"
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as grown:
            grown.truncate(len(whole) * row.itemsize)
        self._rows = np.memmap(file, row, mode="r+", shape=(len(whole),))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def __len__(self) -> int:
        return len(self._whole)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int):
            return self._whole[index]
        row = self._rows[index]
        if not row["there"]:
            item: dict[str, Any] = self._whole[index]
            for place, key in enumerate(self._keys):
                row["pictures"][place] = _bytes_of(item[key])
            row["there"] = 1  # last: a row that a killed training left half written is decoded again
            return item
        pictures = torch.from_numpy(row["pictures"].copy()).permute(0, 3, 1, 2).contiguous().to(torch.float32).div(255)
        item = self._others[index] | dict(zip(self._keys, pictures, strict=True))
        return {name: item[name] for name in self._whole.column_names}


def with_kept_pictures(whole: Any, features: dict[str, dict[str, Any]], folder: Path) -> Any:
    """The dataset with its RGB pictures kept in `folder`; itself where it has none of one size."""
    keys = [name for name, feature in features.items() if feature["dtype"] == "image"]
    shapes = {tuple(features[name]["shape"]) for name in keys}
    if len(shapes) != 1 or (shape := shapes.pop())[-1] != 3:
        return whole
    return PictureRows(whole, keys, shape, folder)


def _bytes_of(picture: Tensor) -> np.ndarray[Any, Any]:
    return (picture * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


def _identity(whole: Any, keys: list[str], shape: tuple[int, int, int]) -> str:
    """Of the dataset's files as they are now and of what is kept of them."""
    files = sorted({Path(part["filename"]) for part in whole.cache_files})
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([facts, len(whole), keys, shape]).encode()).hexdigest()[:16]
