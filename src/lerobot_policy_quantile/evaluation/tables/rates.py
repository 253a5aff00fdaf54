"""Journal rows -> a table of success rates, the same bytes whatever the order of completion.

Wall-clock time and the number of attempts depend on the machine's day and are left out.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.util.tables import aligned

GROUPS = ("scene", "policy", "decoder", "task")
HEADER = ("episodes", "success", "failure", "error", "rate", "seconds")


def success_table(rows: Iterable[Row], *, by: Sequence[str] = GROUPS[:3]) -> str:
    """One line per group: counts, success rate without errors, mean simulated seconds, failures included (App. B)."""
    for name in by:
        if name not in GROUPS:
            raise ValueError(f"by must name some of {', '.join(GROUPS)}; got {name!r}")

    def group(row: Row) -> tuple[str | int, ...]:
        return tuple(getattr(row.key, name) for name in by)

    ordered = sorted(rows, key=lambda row: (group(row), row.key))
    lines = [(*by, *HEADER)]
    lines += [(*map(str, name), *_figures(list(members))) for name, members in groupby(ordered, group)]
    return aligned(lines, left=len(by)) + _contexts(ordered)


def _figures(rows: Sequence[Row]) -> tuple[str, ...]:
    counts = [sum(row.status == status for row in rows) for status in ("success", "failure", "error")]
    judged = [row for row in rows if row.status != "error"]
    if not judged:
        return (*map(str, (len(rows), *counts)), "-", "-")
    rate = f"{100 * counts[0] / len(judged):.1f} %"
    seconds = f"{math.fsum(row.simulated_seconds for row in judged) / len(judged):.2f}"
    return (*map(str, (len(rows), *counts)), rate, seconds)


def _contexts(rows: Sequence[Row]) -> str:
    """What the numbers were made with, one line per scene and policy."""
    known = {(row.key.scene, row.key.policy): row.versions for row in rows if row.versions and row.status != "error"}
    return "".join(
        f"# {scene}, {policy}: {'; '.join(f'{name} {value}' for name, value in sorted(versions.items()))}\n"
        for (scene, policy), versions in sorted(known.items())
    )
