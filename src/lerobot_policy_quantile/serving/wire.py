"""openpi's wire format: msgpack, with arrays and numpy scalars as maps of dtype, shape and bytes.

Frames are untrusted input. `unpack` first scans the headers, without allocating memory, and refuses frames that are
truncated, nested too deeply or made of too many objects; then msgpack decodes; then each array's dtype must be in a
fixed list and its shape must match its number of bytes. Data never becomes code: no pickle, no object arrays, no
extension types, no parsed dtypes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack
import numpy as np

MEBIBYTE = 2**20

DTYPES: Mapping[str, np.dtype[Any]] = {
    text: np.dtype(text)
    for text in ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "|b1")
}
"""Allowed element types, in openpi's spelling."""


class WireError(ValueError):
    """A frame that violates the wire format or its limits."""


@dataclass(frozen=True)
class Limits:
    """Largest size, depth and number of objects of a frame."""

    size: int = 16 * MEBIBYTE
    depth: int = 8
    objects: int = 4096
    """Numbers, texts, maps and lists in a frame. An observation has a few dozen; an array counts as one map."""
    axes: int = 5
    text: int = 65536


DEFAULT_LIMITS = Limits()


def pack(message: Any) -> bytes:
    """Encode a message for openpi clients and servers."""
    packed: bytes = msgpack.packb(message, default=_portable)
    return packed


def _portable(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.str in DTYPES:
        if isinstance(value, np.ndarray):
            return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    kind = f"dtype {value.dtype.str}" if hasattr(value, "dtype") else type(value).__name__
    raise WireError(f"a message may hold numbers, texts, lists, maps and arrays of {', '.join(DTYPES)}; got {kind}")


def unpack(frame: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode a frame; raises WireError that names the violated limit."""
    require_bounded(frame, limits)
    try:
        message = msgpack.unpackb(frame, strict_map_key=True, max_str_len=limits.text, object_pairs_hook=_map)
    except WireError:
        raise
    except (ValueError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise WireError(f"frame must be msgpack; {_reason(error)}") from None
    return _open(message, limits)


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map whose keys are texts, or bytes as in arrays, each once."""
    if wrong := [key for key, _ in pairs if not isinstance(key, str | bytes)]:
        raise WireError(f"keys must be texts; got {str(wrong[0])[:40]}")
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WireError(f"a map must hold every key once; got {str(twice)[:40]!r} again")
    return made


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}"


def _open(value: Any, limits: Limits) -> Any:
    """Replace maps that encode arrays by arrays; the depth has been checked before."""
    if isinstance(value, list):
        return [_open(item, limits) for item in value]
    if not isinstance(value, dict):
        return value
    if b"__ndarray__" in value:
        return _array(value, limits)
    if b"__npgeneric__" in value:
        return _scalar(value)
    if wrong := [key for key in value if not isinstance(key, str)]:
        raise WireError(f"keys must be texts; got {str(wrong[0])[:40]}")
    return {key: _open(item, limits) for key, item in value.items()}


def _array(value: Mapping[bytes, Any], limits: Limits) -> np.ndarray[Any, Any]:
    _require_keys(value, _ARRAY)
    dtype, shape, data = _dtype(value), value.get(b"shape"), value.get(b"data")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError(f"an array's shape must be a list of sizes; got {str(shape)[:80]}")
    if len(shape) > limits.axes:
        raise WireError(f"an array may have {limits.axes} axes; got {len(shape)}")
    if prod(n for n in shape if n) > limits.size:  # zero times a huge size is no size, either
        raise WireError(f"an array may have {limits.size} elements; got shape {str(shape)[:80]}")
    if not isinstance(data, bytes):
        raise WireError(f"an array's data must be bytes; got {type(data).__name__}")
    if prod(shape) * dtype.itemsize != len(data):
        raise WireError(f"an array of shape {shape} and dtype {dtype.str} needs other bytes than the {len(data)} sent")
    return np.frombuffer(data, dtype).reshape(shape)


def _scalar(value: Mapping[bytes, Any]) -> Any:
    _require_keys(value, _SCALAR)
    dtype, data = _dtype(value), value.get(b"data")
    if not isinstance(data, bool | int | float):
        raise WireError(f"a numpy scalar must be a number; got {type(data).__name__}")
    try:
        return dtype.type(data)
    except (OverflowError, ValueError) as error:
        raise WireError(f"a numpy scalar must fit {dtype.str}; {_reason(error)}") from None


_ARRAY = frozenset({b"__ndarray__", b"data", b"dtype", b"shape"})
_SCALAR = frozenset({b"__npgeneric__", b"data", b"dtype"})


def _require_keys(value: Mapping[bytes, Any], keys: frozenset[bytes]) -> None:
    if extra := [key for key in value if key not in keys]:
        allowed = ", ".join(sorted(key.decode() for key in keys))
        raise WireError(f"an array's map may hold {allowed}; got {str(extra[0])[:40]}")


def _dtype(value: Mapping[bytes, Any]) -> np.dtype[Any]:
    text = value.get(b"dtype")
    if not isinstance(text, str) or text not in DTYPES:
        raise WireError(f"dtype must be one of {', '.join(DTYPES)}; got {str(text)[:40]!r}")
    return DTYPES[text]


# --- scan of the headers -------------------------------------------------------------------------

_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""First byte of bytes and texts -> width of the length that follows."""
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
"""First byte of nil, booleans and numbers -> bytes that follow."""
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""First byte of long lists and maps -> width of the length, objects per entry."""


def require_bounded(frame: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise WireError, from the headers alone, if a frame is too large, truncated, too deep or has too many objects."""
    if len(frame) > limits.size:
        raise WireError(f"frame must have at most {limits.size} bytes; got {len(frame)}")
    at, seen, open_objects = 0, 0, [1]
    while open_objects:
        if not open_objects[-1]:
            open_objects.pop()
            continue
        open_objects[-1] -= 1
        seen += 1
        if seen > limits.objects:
            raise WireError(f"frame must hold at most {limits.objects} objects")
        at, children = _step(frame, at)
        if children:
            open_objects.append(children)
            if len(open_objects) - 1 > limits.depth:
                raise WireError(f"frame must be nested at most {limits.depth} deep")
    if at != len(frame):
        raise WireError(f"frame must hold one message; {len(frame) - at} bytes follow it")


def _step(frame: bytes, at: int) -> tuple[int, int]:
    """Position of the next header, and the number of objects that this one contains."""
    if at >= len(frame):
        raise WireError("frame ends in the middle of a message")
    first = frame[at]
    after, children = at + 1, 0
    if first in _FIXED:
        after += _FIXED[first]
    elif 0xA0 <= first <= 0xBF:
        after += first & 0x1F
    elif 0x80 <= first <= 0x8F:
        children = 2 * (first & 0x0F)
    elif 0x90 <= first <= 0x9F:
        children = first & 0x0F
    elif first in _SIZED:
        width = _SIZED[first]
        after += width + int.from_bytes(frame[after : after + width])
    elif first in _CONTAINERS:
        width, per_entry = _CONTAINERS[first]
        children = per_entry * int.from_bytes(frame[after : after + width])
        after += width
    elif 0x7F < first < 0xE0:
        raise WireError(f"frame must hold no extension types; got byte 0x{first:02x}")
    if after > len(frame):
        raise WireError("frame ends in the middle of a message")
    return after, children
