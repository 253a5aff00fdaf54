"""The parts of a bddl file that a conversion reads."""

import re
from pathlib import Path


def problem_of(text: str) -> str:
    """The problem's name, in the case it is written in."""
    return _only(r"\(problem\s+([^\s()]+)\s*\)", text, "a (problem NAME)")


def language_of(text: str) -> str:
    """The instruction as it is written; LIBERO reads it in lower case and with single spaces."""
    return _only(r"\(:language\b([^()]*)\)", text, "a (:language ...)").strip()


def kinds_in(text: str) -> list[str]:
    """What kinds of objects and fixtures are declared (`name_1 name_2 - kind`), in their order, each once."""
    kinds: list[str] = []
    for block in re.findall(r"\(:(?:objects|fixtures)\b([^()]*)\)", text):
        kinds += re.findall(r"-\s+([^\s()]+)", block)
    return list(dict.fromkeys(kinds))


def read_bddl(path: Path) -> str:
    """The file's text without comments."""
    return re.sub(r";.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _only(pattern: str, text: str, what: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"a bddl file must hold {what}; got {text[:60]!r}...")
    return found[1]
