"""What a check found, and what to do about it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """Result of one check: `ok`, `warn` (works with restrictions) or `fail` (does not work)."""

    what: str
    status: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""
