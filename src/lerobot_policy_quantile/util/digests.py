"""Digests of bytes, text and files: sixteen hexadecimal digits each. Seeds that follow from a text.

Journals and stamps hold them: another way to compute one is another digest, so each of these stays as it is.
"""

import hashlib
from collections.abc import Collection, Iterable
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


def plain_digest(*parts: bytes | str) -> str:
    """Of the parts one after the other, without their lengths."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else part)
    return total.hexdigest()[:16]


def seed_of(text: str) -> int:
    """A seed in [0, 2**63) that follows from a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def digest_tree(root: Path, without: Collection[str] = ()) -> str:
    """Of every file below a folder, its place and its content; files directly in it can be left out by name."""
    total = hashlib.sha256()
    left_out = {root / name for name in without}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path not in left_out):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
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
