"""Digests of bytes, text and files: sixteen hexadecimal digits each."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

_PIECE = 2**24


def digest(*parts: bytes | str) -> str:
    """Sixteen hexadecimal digits over all parts."""
    return digest_each(parts)


def digest_each(parts: Iterable[bytes | str]) -> str:
    """The same for parts that come one by one."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def digest_files(paths: Iterable[Path]) -> str:
    """The digest of all names and contents, read piece by piece: checkpoints may be larger than memory."""
    total = hashlib.sha256()
    for path in paths:
        name = path.name.encode()
        total.update(len(name).to_bytes(8, "little") + name)
        total.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
    return total.hexdigest()[:16]
