"""Arrays out of `.npz` files that others made: numbers only, no more of them than the file has room for."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from lerobot_policy_quantile.util.quantiles import Array

LARGEST_ARRAY = 128 * 2**20
"""Bytes of one array: a thousand replans of 50 steps, 7 dimensions and 21 levels take 30 million."""
MOST_ARRAYS = 64
_KINDS = "biuf"
_FORMAT: Any = np.lib.format
_HEADERS = {(1, 0): _FORMAT.read_array_header_1_0, (2, 0): _FORMAT.read_array_header_2_0}


def read_arrays(path: Path) -> tuple[dict[str, Array], list[str]]:
    """Name -> array, and in words what could not be read. Nothing is unpickled."""
    found: dict[str, Array] = {}
    problems: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                problems.append(f"{path.name} must hold at most {MOST_ARRAYS} arrays; got {len(members)}")
            for member in members[:MOST_ARRAYS]:
                name = member.filename.removesuffix(".npy")
                try:
                    if name != "key":
                        found[name] = _array(archive, member)
                except Exception as error:  # a damaged archive raises whatever its decompressor raises
                    problems.append(f"{name[:40]!r} cannot be read: {_short(error)}")
    except Exception as error:
        problems.append(f"{path.name} cannot be read: {_short(error)}")
    return found, problems


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    if member.file_size > LARGEST_ARRAY:
        raise ValueError(f"an array must take at most {LARGEST_ARRAY} bytes; got {member.file_size}")
    stream = io.BytesIO(archive.read(member))
    header = _HEADERS.get(_FORMAT.read_magic(stream))
    if header is None:
        raise ValueError("it is of an unknown version of numpy's format")
    shape, fortran, dtype = header(stream)
    if dtype.kind not in _KINDS:
        raise ValueError(f"it must hold numbers; got {str(dtype)[:40]}")
    content = stream.read()
    wanted = dtype.itemsize
    for side in shape:
        wanted *= int(side)
    if min(shape, default=0) < 0 or wanted != len(content):
        raise ValueError(f"shape {shape} must take {len(content)} bytes; it takes {wanted}")
    array: Array = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    return array


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}" if str(error) else type(error).__name__
