"""The paper's rows as data, with the table each was read from: `published.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lerobot_policy_quantile.evaluation.benchmarks import CATEGORIES, SUITES


@dataclass(frozen=True)
class PublishedRow:
    """One line of a published table: per cent by column."""

    method: str
    rates: dict[str, float]
    source: str


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))


def published_tables(benchmark: str) -> dict[str, tuple[PublishedRow, ...]]:
    """The paper's tables of a benchmark (`libero`, `libero_plus_by_suite`, ...) by title."""
    return {
        table["title"]: tuple(
            PublishedRow(row["method"], dict(zip(table["columns"], row["values"], strict=True)), row["source"])
            for row in table["rows"]
        )
        for table in _content()["table"]
        if table["benchmark"] == benchmark
    }


def plus_counts() -> dict[tuple[str, str], int]:
    """(suite, category) -> how many of LIBERO-Plus's 10,030 instances."""
    counts = _content()["plus_counts"]
    return {(s, c): n for s in SUITES for c, n in zip(CATEGORIES, counts[s], strict=True)}
