"""Arrays of equal length under names, kept in one file."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Arrays:
    """Base of dataclasses whose fields are arrays with one row per sample; `state` is one of them."""

    def __len__(self) -> int:
        return len(getattr(self, "state"))  # noqa: B009  a field of every subclass

    def save(self, path: Path) -> None:
        """Write one file, completely or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, **{field.name: getattr(self, field.name) for field in fields(self)})
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{field.name: stored[field.name] for field in fields(cls)})

    @classmethod
    def load_all(cls, paths: Sequence[Path]) -> Self:
        """All samples of all files, in order, one field at a time: the pictures are not in memory twice."""
        return cls(**{field.name: np.concatenate([_read(path, field.name) for path in paths]) for field in fields(cls)})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """All samples of all parts, in order."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


def _read(path: Path, name: str) -> Any:
    with np.load(path, allow_pickle=False) as stored:
        return stored[name]
