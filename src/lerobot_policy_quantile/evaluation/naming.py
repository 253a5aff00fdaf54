"""Episodes of a journal by the names that people give them."""

from collections.abc import Sequence

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.util.names import nearest


def rows_named(rows: Sequence[Row], text: str) -> list[Row]:
    """The rows with this key, as the journal spells it or as the sixteen digits that name its side files."""
    found = [row for row in rows if text in (row.key.text, row.key.digest)]
    if not found:
        raise ValueError(
            '--episode must be a key of the journal, such as \'["embedded",0,0,0,"ours","own"]\', or the sixteen'
            f" digits of its side files; got {text!r}{nearest(text, [row.key.text for row in rows])}"
        )
    return found
