"""The documentation as tests see it: where pages are, their code blocks, the commands in them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
EQUATIONS = DOCS / "explanation" / "equations.md"
STUDY_RESULTS = DOCS / "results" / "two_demo" / "README.md"
TUTORIAL = DOCS / "tutorial.md"
MANUALS = [README, DOCS / "getting_started.md", TUTORIAL, *sorted((DOCS / "guides").glob("*.md"))]
"""Pages whose commands a reader types."""

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"^[A-Z_]+=(?:\$\([^)]*\)|\S+)\s+")


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    title: str
    code: str


def blocks(page: Path, language: str | None = None) -> list[Block]:
    found = [Block(*parts) for parts in _FENCE.findall(page.read_text())]
    return [block for block in found if language in (None, block.language)]


def command_lines(page: Path) -> list[str]:
    """Every command of the page's `sh` blocks: continued lines joined, comments left out."""
    code = "".join(block.code for block in blocks(page, "sh")).replace("\\\n", " ")
    lines = [re.sub(r"(?:^|\s)#\s.*", "", line).strip() for line in code.splitlines()]
    return [" ".join(line.split()) for line in lines if line]


def words(line: str) -> list[str]:
    """A command line as its program gets it: no variables before it, no ellipsis behind it, no `.venv/bin/`."""
    program, *arguments = shlex.split(_VARIABLE.sub("", line))
    return [program.removeprefix(".venv/bin/"), *(word for word in arguments if word != "...")]
