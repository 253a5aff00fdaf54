"""What may end a run before its plan is done, from the texts of --budget and --until."""

from collections.abc import Sequence

from lerobot_policy_quantile.evaluation.cost import Budget, NarrowEnough, parse_duration
from lerobot_policy_quantile.evaluation.engine import Halt
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import Plan


def parse_halts(budget: str | None, until: float | None, plan: Plan, rows: Sequence[Row] = ()) -> list[Halt]:
    """A time budget such as `45m`, and an interval width in percentage points; `rows` have been run already."""
    found: list[Halt] = []
    if budget is not None:
        found.append(Budget(parse_duration("--budget", budget)))
    if until is not None:
        if not 0 < until < 100:
            raise ValueError(f"--until must be a width in points between 0 and 100; got {until:g}")
        lines = frozenset((key.policy, key.decoder) for key in plan)
        found.append(NarrowEnough(until / 100, lines).count(rows))
    return found
