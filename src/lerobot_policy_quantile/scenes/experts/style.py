"""How a demonstration is driven: people differ in speed, side and height; drawn from a seed, or plain."""

from dataclasses import dataclass

import numpy as np

RIGHT, LEFT_HANDED = -np.pi / 2, 0.15
"""Most demonstrators take the right rim of a bowl, some the left one. Drawn from all round, the median of many
demonstrations would be the middle of the bowl, which nobody takes.
"""


@dataclass(frozen=True)
class Style:
    """One demonstrator's manner. Everything but `pause` is a function of the moment, as the expert itself is."""

    speed: float = 0.9
    """Share of full scale that free motions go at; precise ones are slower by themselves."""
    bow: float = 0.0
    """Metres that the approach swings to the left (positive) or right of the straight way."""
    height: float = 0.0
    """Metres by which the approach is higher than it must be."""
    side: float | None = None
    """Direction (radians, seen from above) of the preferred rim or wrist, where several work equally well."""
    pause: int = 0
    """Steps of waiting before the fingers close. The expert counts them, which is memory."""

    def __post_init__(self) -> None:
        if not 0 < self.speed <= 1:
            raise ValueError(f"speed must lie in (0, 1]; got {self.speed}")
        if not -0.15 <= self.bow <= 0.15:
            raise ValueError(f"bow must lie in [-0.15, 0.15] metres; got {self.bow}")
        if not 0 <= self.height <= 0.2:
            raise ValueError(f"height must lie in [0, 0.2] metres; got {self.height}")
        if self.pause < 0:
            raise ValueError(f"pause must not be negative; got {self.pause}")

    @classmethod
    def plain(cls) -> "Style":
        """The style of evaluation: fast, straight, without a pause."""
        return cls()

    @classmethod
    def draw(cls, seed: int) -> "Style":
        """One of many; the same seed gives the same style."""
        generator = np.random.default_rng([seed, 0x57])
        return cls(
            speed=float(generator.uniform(0.35, 0.9)),
            bow=float(generator.uniform(-0.08, 0.08)),
            height=float(generator.uniform(0.0, 0.10)),
            side=float(generator.normal(RIGHT, 0.4) + np.pi * (generator.random() < LEFT_HANDED)),
            pause=int(generator.integers(0, 9)),
        )
