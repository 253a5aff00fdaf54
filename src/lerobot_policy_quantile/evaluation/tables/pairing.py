"""Two runs on the same episodes, side by side."""

from collections.abc import Iterable
from dataclasses import dataclass

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.tables.aggregate import context_of
from lerobot_policy_quantile.util.stamps import moved

Episode = tuple[str, int, int, int]
"""Scene, task, index and seed: what two policies share when they met the same episode."""


@dataclass(frozen=True)
class Pairing:
    """Successes under A and B on the episodes both judged."""

    pairs: list[tuple[bool, bool]]
    only_in_one: int
    """Episodes that one of the two has not judged."""
    differences: list[str]
    """What the two were made with differently, in words; weights and decoders are meant to differ."""


def select(rows: Iterable[Row], side: str, policy: str | None, decoder: str | None) -> dict[Episode, Row]:
    """The judged rows of one policy with one decoder, by episode."""
    found: dict[Episode, Row] = {}
    for row in rows:
        if policy not in (None, row.key.policy) or decoder not in (None, row.key.decoder) or row.status == "error":
            continue
        episode = (row.key.scene, row.key.task, row.key.index, row.key.seed)
        if episode in found:
            raise ValueError(
                f"{side} must hold one policy with one decoder; it holds {found[episode].key.text} and"
                f" {row.key.text}: name one with --policy-{side.lower()} and --decoder-{side.lower()}"
            )
        found[episode] = row
    return found


def pair(a: dict[Episode, Row], b: dict[Episode, Row]) -> Pairing:
    """Match them by episode."""
    shared = sorted(a.keys() & b.keys())
    if not shared:
        raise ValueError(f"A and B must share episodes; {len(a)} and {len(b)} were judged, none in both")
    differences = {
        f"{name}: A {'-' if left is None else left}, B {'-' if right is None else right}"
        for key in shared
        for name, left, right in moved(dict(context_of(a[key])), dict(context_of(b[key])))
    }
    return Pairing(
        [(a[key].status == "success", b[key].status == "success") for key in shared],
        len(a) + len(b) - 2 * len(shared),
        sorted(differences),
    )
