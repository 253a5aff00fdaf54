"""LIBERO-Plus in two parts: instances for demonstrations, and those that a sampled evaluation draws from.

One instance in four, by a digest of suite and number, is for training. `qhead collect --suite libero_plus` takes its
instances from that part and `qhead eval --suite libero_plus --sample N` from the other. An evaluation of all 10,030
instances, the benchmark's own protocol, runs both.
"""

from collections.abc import Sequence

from lerobot_policy_quantile.scenes.libero.plus_instances import Instance, instances, why_unavailable
from lerobot_policy_quantile.util.digests import plain_digest, seed_of

ONE_IN = 4
PREFIX = "libero_plus_"


def for_training(scene: str, number: int) -> bool:
    """Whether an instance (scene `libero_plus_object`, ..., and its number there) is for demonstrations."""
    return seed_of(f"{scene}/{number}") % ONE_IN == 0


def training_instances(scenes: Sequence[str], count: int, seed: int) -> tuple[tuple[str, int], ...]:
    """Scene and number of `count` instances for demonstrations that can be run here, the same ones for a seed.

    Suites and categories take turns, so that each is demonstrated equally often as long as it has instances.
    """
    groups: dict[tuple[str, str], list[tuple[str, Instance]]] = {}
    for scene in scenes:
        for instance in instances(scene.replace(PREFIX, "libero_")):
            if for_training(scene, instance.number) and why_unavailable(instance) is None:
                groups.setdefault((scene, instance.category), []).append((scene, instance))
    turns = [
        sorted(members, key=lambda each: plain_digest(f"{seed}/{each[0]}/{each[1].number}"))
        for members in groups.values()
    ]
    depth = max(map(len, turns), default=0)
    order = [members[place] for place in range(depth) for members in turns if place < len(members)]
    if not 1 <= count <= len(order):
        raise ValueError(f"--instances must lie in 1..{len(order)}, those for training that can be run; got {count}")
    return tuple(sorted((scene, instance.number) for scene, instance in order[:count]))
