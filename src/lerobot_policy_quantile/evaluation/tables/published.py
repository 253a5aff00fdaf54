"""The paper's rows as data, with the table each was read from: `published.toml`."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lerobot_policy_quantile.evaluation.tables.benchmarks import CATEGORIES, SUITES

Rate = float | tuple[float, float]


@dataclass(frozen=True)
class PublishedRow:
    """One line of a published table: per cent by column, or the range that the text gives for several settings."""

    method: str
    rates: dict[str, Rate]
    source: str
    variant: str | None = None
    """The variant of a plan that it is a result of."""
    decoder: str = "median"
    seconds: float | None = None
    """Episode time; the paper does not say whether simulated or wall."""

    @property
    def key(self) -> tuple[str | None, str]:
        """What a line of ours is compared by: variant and decoder."""
        return self.variant, self.decoder


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))


def published_tables(benchmark: str) -> dict[str, tuple[PublishedRow, ...]]:
    """The paper's tables of a benchmark (`libero`, `libero_plus_by_suite`, ...) by title; those of plans left out."""
    return _tables(lambda table: table["benchmark"] == benchmark and "study" not in table)


def study_tables(study: str | None = None) -> dict[str, tuple[PublishedRow, ...]]:
    """The paper's results of a plan's variants (`ablations`, `k_sweep`, ...) by title; of all plans without one."""
    return _tables(lambda table: "study" in table and study in (None, table["study"]))


def _tables(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, tuple[PublishedRow, ...]]:
    return {
        table["title"]: tuple(_row(table["columns"], row) for row in table["rows"])
        for table in _content()["table"]
        if wanted(table)
    }


def _row(columns: Sequence[str], row: dict[str, Any]) -> PublishedRow:
    values = [tuple(value) if isinstance(value, list) else value for value in row["values"]]
    further = {name: row[name] for name in ("variant", "decoder", "seconds") if name in row}
    return PublishedRow(row["method"], dict(zip(columns, values, strict=True)), row["source"], **further)


def plus_counts() -> dict[tuple[str, str], int]:
    """(suite, category) -> how many of LIBERO-Plus's 10,030 instances."""
    counts = _content()["plus_counts"]
    return {(s, c): n for s in SUITES for c, n in zip(CATEGORIES, counts[s], strict=True)}
