"""The hint that follows an unknown name. No torch: packages that stay light use it, too."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(value: str, choices: Iterable[str]) -> str:
    """The closest spelling among `choices` as the end of an error message, or nothing."""
    close = get_close_matches(value, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
