"""Errors about unknown names: the list of choices and the nearest spelling."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(value: str, choices: Iterable[str]) -> str:
    """The closest spelling among `choices` as the end of an error message, or an empty string."""
    close = get_close_matches(value, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def require_choice(field: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`; the message lists them and the nearest spelling."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{field} must be one of {', '.join(choices)}; got {value!r}{nearest(value, choices)}")
