"""Journals of one or several runs, read together for one table."""

from collections.abc import Iterable
from pathlib import Path

from lerobot_policy_quantile.evaluation.journal import Row, read_rows
from lerobot_policy_quantile.evaluation.tables.facts import Facts, read_facts

JOURNAL = "journal.sqlite"
"""The journal's name in the folder of a run."""


def read_folders(folders: Iterable[Path]) -> tuple[list[Row], Facts]:
    """The rows of all folders or journal files, and the facts stored beside them; equal episodes count once."""
    rows: dict[tuple[str, str], Row] = {}
    facts = Facts()
    for folder in folders:
        path = folder / JOURNAL if folder.is_dir() else folder
        for row in read_rows(path):
            rows.setdefault((row.key.text, repr(sorted(row.versions.items()))), row)
        facts += read_facts(path.parent)
    return list(rows.values()), facts
