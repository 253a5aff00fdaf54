"""Which episodes to run: a plan is a list of episode keys, and a key is all that an episode depends on."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from itertools import product
from math import prod
from typing import Self

from lerobot_policy_quantile.util.digests import plain_digest, seed_of

MAX_NUMBER = 2**31 - 1
"""Largest task, index or seed: what every random generator in use accepts."""

MOST_NUMBERS, MOST_EPISODES = 100_000, 1_000_000
"""Of one option, and of one plan: more is a slip of the finger, and would not fit into memory."""


@dataclass(frozen=True, order=True)
class EpisodeKey:
    """The name of one episode. Everything random in it follows from these fields, nothing from the order of runs."""

    scene: str
    task: int
    index: int
    """Which of the task's stored initial states."""
    seed: int
    policy: str
    decoder: str

    def __post_init__(self) -> None:
        for field in ("scene", "policy", "decoder"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value or not value.isprintable():
                raise ValueError(f"{field} must be a printable text; got {value!r}")
        for field in ("task", "index", "seed"):
            value = getattr(self, field)
            if type(value) is not int or not 0 <= value <= MAX_NUMBER:
                raise ValueError(f"{field} must be an integer in 0..{MAX_NUMBER}; got {value!r}")

    @property
    def text(self) -> str:
        """The one spelling of this key: a JSON list of its fields."""
        return json.dumps(astuple(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key that `text` spells."""
        values = json.loads(text)
        if not isinstance(values, list) or len(values) != len(fields(cls)):
            names = ", ".join(field.name for field in fields(cls))
            raise ValueError(f"key must be a JSON list of {names}; got {text!r}")
        return cls(*values)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that stand for the key in file names."""
        return plain_digest(self.text)

    @property
    def noise_seed(self) -> int:
        """Seed of what policy and decoder draw, in [0, 2**63).

        Policy and decoder are left out on purpose: given the same episode, all of them see the same noise, so a
        comparison between two decoders is a paired one.
        """
        return seed_of(json.dumps(["noise", self.scene, self.task, self.index, self.seed]))


@dataclass(frozen=True)
class Plan:
    """Distinct keys in the order they were first named."""

    keys: tuple[EpisodeKey, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(dict.fromkeys(self.keys)))

    @classmethod
    def cross(
        cls,
        *,
        scenes: Iterable[str],
        tasks: Iterable[int] = (0,),
        indices: Iterable[int] = (0,),
        seeds: Iterable[int] = (0,),
        policies: Iterable[str],
        decoders: Iterable[str] = ("median",),
    ) -> Self:
        """Every combination of the given values."""
        scenes, policies, decoders = tuple(scenes), tuple(policies), tuple(decoders)
        tasks, indices, seeds = tuple(tasks), tuple(indices), tuple(seeds)
        axes = {"scenes": scenes, "policies": policies, "decoders": decoders}
        for field, values in {**axes, "tasks": tasks, "indices": indices, "seeds": seeds}.items():
            if not values:
                raise ValueError(f"{field} must name at least one; got none")
        count = prod(map(len, (scenes, policies, decoders, tasks, indices, seeds)))
        if count > MOST_EPISODES:
            raise ValueError(f"a plan must have at most {MOST_EPISODES} episodes; got {count}: name fewer of anything")
        return cls(
            tuple(
                EpisodeKey(scene, task, index, seed, policy, decoder)
                for scene, policy, decoder, task, index, seed in product(
                    scenes, policies, decoders, tasks, indices, seeds
                )
            )
        )

    def __add__(self, other: "Plan") -> "Plan":
        """Both plans; what they share is run once."""
        return Plan((*self.keys, *other.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[EpisodeKey]:
        return iter(self.keys)


def parse_numbers(field: str, text: str) -> tuple[int, ...]:
    """The numbers in a text such as `0-9` or `0,2,5-7`."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ValueError(f"{field} must read like 0-9 or 0,2,5-7; got {text[:80]!r}")
        first, last = (int(piece) if len(piece) < 20 else sys.maxsize for piece in (low, high or low))
        if last < first:
            raise ValueError(f"{field} must read like 0-9 or 0,2,5-7; got {text[:80]!r}")
        if len(numbers) + last - first + 1 > MOST_NUMBERS or last > MAX_NUMBER:
            raise ValueError(
                f"{field} must name at most {MOST_NUMBERS} numbers, none above {MAX_NUMBER}; got {text[:80]!r}"
            )
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))
