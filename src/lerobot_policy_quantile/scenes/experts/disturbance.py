"""What goes wrong on purpose while demonstrations are collected: the executed action differs, the label stays clean.

Each disturbance is a value; `Disturbances` applies several in order. One episode's draws come from its seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import Array

Executed = Callable[[Float[Array, "7"]], Float[Array, "7"]]
"""The expert's action -> what the robot does instead."""


class Disturbance(Protocol):
    """One way of being disturbed."""

    def begin(self, generator: np.random.Generator) -> Executed:
        """The disturbance of one episode."""


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on position and rotation."""

    scale: float = 0.1
    turn: float = 0.03

    def begin(self, generator: np.random.Generator) -> Executed:
        """Independent draws at every step."""
        spread = np.array([*[self.scale] * 3, *[self.turn] * 3, 0.0])
        return lambda action: action + spread * generator.standard_normal(7)


@dataclass(frozen=True)
class Kicks:
    """Now and then the hand is pushed into one direction for some steps."""

    rate: float = 0.01
    """Probability per step that one begins."""
    size: float = 0.6
    steps: int = 5

    def begin(self, generator: np.random.Generator) -> Executed:
        """One direction per kick."""
        left, push = 0, np.zeros(7)

        def executed(action: Float[Array, "7"]) -> Float[Array, "7"]:
            nonlocal left, push
            if left == 0 and generator.random() < self.rate:
                way = generator.standard_normal(3)
                left, push = self.steps, np.array([*(self.size * way / np.linalg.norm(way)), 0.0, 0.0, 0.0, 0.0])
            if left == 0:
                return action
            left -= 1
            return action + push

        return executed


@dataclass(frozen=True)
class Misses:
    """The fingers close beside the thing: the hand is drawn away while they begin to."""

    rate: float = 0.2
    """Probability per closing."""
    size: float = 0.7
    steps: int = 4

    def begin(self, generator: np.random.Generator) -> Executed:
        """Closings are told from the labels: the gripper's command turns from open to shut."""
        left, push, shut = 0, np.zeros(7), False

        def executed(action: Float[Array, "7"]) -> Float[Array, "7"]:
            nonlocal left, push, shut
            closes = bool(action[6] > 0) and not shut
            shut = bool(action[6] > 0)
            if closes and generator.random() < self.rate:
                angle = generator.uniform(-np.pi, np.pi)
                way = np.array([0.5 * np.cos(angle), 0.5 * np.sin(angle), 0.85])
                left, push = self.steps, np.array([*(self.size * way), 0.0, 0.0, 0.0, 0.0])
            if left == 0:
                return action
            left -= 1
            return action + push

        return executed


@dataclass(frozen=True)
class Disturbances:
    """Several, in order; the result stays within [-1, 1]. None at all leaves every action as it is."""

    parts: Sequence[Disturbance] = ()

    def begin(self, seed: int) -> Executed:
        """The disturbances of one episode."""
        chain = [
            part.begin(np.random.default_rng([seed, number, 0xD1])) for number, part in enumerate(self.parts, start=1)
        ]

        def executed(action: Float[Array, "7"]) -> Float[Array, "7"]:
            for apply in chain:
                action = apply(action)
            return np.clip(action, -1.0, 1.0)

        return executed


COLLECTION = Disturbances((Noise(), Kicks(), Misses()))
"""What collection uses unless told otherwise."""
