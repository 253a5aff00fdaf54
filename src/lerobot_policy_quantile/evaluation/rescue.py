"""What is whole of a damaged run, as a run of its own that can be read and resumed."""

import shutil
from pathlib import Path

from lerobot_policy_quantile.evaluation.journal import Journal, JournalError, inspect_journal
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL


def rescue(folder: Path, target: Path) -> int:
    """Copy a run's folder with the whole rows of its journal into a new one; how many results those are.

    The same command with the new folder runs the episodes whose rows were lost.
    """
    if target.exists():
        raise JournalError(f"--rescue must name a new folder; {target} exists")
    found = inspect_journal(folder / JOURNAL)
    if not found.rows["results"]:
        raise JournalError(f"journal {folder / JOURNAL} has no whole row to rescue; {found.report()}")
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(f"{JOURNAL}*", Path(JOURNAL).stem + ".lock"))
    with Journal(target / JOURNAL) as journal:
        journal.take_over(found)
    return len(found.rows["results"])
