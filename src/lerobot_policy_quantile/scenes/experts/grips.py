"""Where the fingers close on each kind of thing LIBERO has, measured in the simulator (metres, radians)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import UP, Array, Pose, about_z, hand_frame, nearest_half_turn
from lerobot_policy_quantile.util.names import nearest


@dataclass(frozen=True)
class Candidate:
    """A pose to close the fingers at, what it costs by itself, and the direction a `Style` may prefer it for."""

    pose: Pose
    cost: float
    side: float | None = None


class Grip(ABC):
    """A way to take a thing that stands at a position, turned by `yaw`; `turn` is its yaw up to quarter turns."""

    slack: float = 0.006
    """Metres beside the line of the fingers at which they may come down."""

    @abstractmethod
    def candidates(self, position: Float[Array, "3"], yaw: float, turn: float) -> list[Candidate]:
        """All poses that would do."""

    def eased(self, pose: Pose, position: Float[Array, "3"], hand: Pose) -> Pose:
        """The pose nearest to the hand among those that do as well as a candidate's; here it alone."""
        return pose


@dataclass(frozen=True)
class Rim(Grip):
    """A thin round rim: one finger inside, one outside, on any side; further in or leaning where walls are near."""

    radius: float
    height: float

    def candidates(self, position: Float[Array, "3"], yaw: float, turn: float) -> list[Candidate]:
        """Sixteen sides."""
        found = []
        for side in np.arange(16) * np.pi / 8:
            closing = nearest_half_turn(side - np.pi / 2)
            out = np.array([np.cos(side), np.sin(side), 0.0])
            for inward in (0.0, 0.015, 0.02, 0.03):
                point = position + (self.radius - inward) * out + self.height * UP
                for tilt in (0.0, 0.4) if abs(closing) < 0.3 else (0.0,):
                    cost = 0.06 * abs(closing) + 0.2 * tilt + 3 * inward
                    found.append(Candidate(Pose(point, hand_frame(closing, tilt)), cost, float(side)))
        return found

    def eased(self, pose: Pose, position: Float[Array, "3"], hand: Pose) -> Pose:
        """Turned about the thing towards the hand, up to halfway to the next side."""
        here, there = (each.position[:2] - position[:2] for each in (pose, hand))
        angle = float(np.arctan2(here[0] * there[1] - here[1] * there[0], here @ there))
        turn = about_z(float(np.clip(angle, -np.pi / 16, np.pi / 16)))
        return Pose(position + turn @ (pose.position - position), turn @ pose.rotation)


@dataclass(frozen=True)
class Side(Grip):
    """One point, in the thing's own frame; the fingers close along its x axis turned by `angle`."""

    offset: tuple[float, float, float]
    angle: float = 0.0
    tilt: float = 0.0

    def candidates(self, position: Float[Array, "3"], yaw: float, turn: float) -> list[Candidate]:
        """One; a leaning hand leans away from the robot's left."""
        closing = yaw + self.angle - np.pi / 2
        if self.tilt == 0.0:
            closing = nearest_half_turn(closing)
        elif np.cos(closing - np.pi / 2) < 0:
            closing += np.pi
        point = position + about_z(yaw) @ np.array(self.offset)
        return [Candidate(Pose(point, hand_frame(closing, self.tilt)), 0.0)]


@dataclass(frozen=True)
class Round(Grip):
    """A standing cylinder, at a height above its origin, with any wrist."""

    height: float

    def candidates(self, position: Float[Array, "3"], yaw: float, turn: float) -> list[Candidate]:
        """Eight wrists."""
        return [
            Candidate(Pose(position + self.height * UP, hand_frame(angle)), 0.06 * abs(angle), float(angle))
            for angle in np.arange(-3, 5) * np.pi / 8
        ]


@dataclass(frozen=True)
class Block(Grip):
    """A box, taken across `angle` at a height above its origin; a little beside its middle where something is near."""

    height: float
    angle: float = 0.0
    shift: float = 0.0
    slack: float = 0.006

    def candidates(self, position: Float[Array, "3"], yaw: float, turn: float) -> list[Candidate]:
        """Three wrists times three places."""
        found = []
        for more in (0.0, 0.25, -0.25):
            rotation = hand_frame(self.angle + turn + more)
            for shift in dict.fromkeys((0.0, self.shift, -self.shift)):
                point = position + self.height * UP + shift * rotation[:, 0]
                found.append(Candidate(Pose(point, rotation), 3 * abs(shift) + 0.1 * abs(more)))
        return found


GRIPS: dict[str, Grip] = {
    "akita_black_bowl": Rim(0.048, 0.034),
    "plate": Rim(0.064, 0.012),
    "porcelain_mug": Side((0.057, 0.0, 0.095)),
    "white_yellow_mug": Side((-0.062, 0.0, 0.090)),
    "wine_bottle": Round(0.128),
    "moka_pot": Block(0.052, angle=np.pi / 2, slack=0.003),  # 77 mm wide, in a hand of 80
    "black_book": Side((0.0, -0.012, 0.112)),
    "cream_cheese": Block(0.0, shift=0.012),
    "butter": Block(0.003, shift=0.012),
    "chocolate_pudding": Block(0.003, shift=0.010),
    "alphabet_soup": Round(0.01),
    "tomato_sauce": Round(0.01),
    "salad_dressing": Block(0.045, shift=0.010),
    "ketchup": Block(0.045, shift=0.010),
    "bbq_sauce": Block(0.025, shift=0.010),
    "milk": Block(0.035, shift=0.005),
    "orange_juice": Block(0.035, shift=0.005),
}

OVEN_GRIPS: dict[str, Grip] = {"white_yellow_mug": Side((0.062, 0.0, 0.070), angle=np.pi / 2, tilt=0.6)}
"""For the way into a microwave: by the handle, fingers leaning in."""

LIKE = {
    "yellow_plate": "plate",
    "red_basket": "basket",
    "green_butter": "butter",
    "red_cream_cheese": "cream_cheese",
    "green_chocolate_pudding": "chocolate_pudding",
    "red_salad_dressing": "salad_dressing",
    "yellow_tomato_sauce": "tomato_sauce",
    "blue_ketchup": "ketchup",
    "red_alphabet_soup": "alphabet_soup",
    "yellow_milk": "milk",
    "green_bbq_sauce": "bbq_sauce",
    "white_bottle": "wine_bottle",
    "brown_rack": "wine_rack",
    "yellow_moka_pot": "moka_pot",
    "white_porcelain_mug": "porcelain_mug",
    "white_cabinet": "wooden_cabinet",
    "yellow_cabinet": "wooden_cabinet",
    "yellow_stove": "flat_stove",
}
"""LIBERO-Pro's things in other colours, and the white cabinet: which kind they are handled like."""


def family(kind: str) -> str:
    """The kind whose data hold for this one."""
    return LIKE.get(kind, kind)


def grip_for(kind: str, *, oven: bool = False) -> Grip:
    """How a kind of thing is taken; a kind that was never measured is refused."""
    known = OVEN_GRIPS if oven else GRIPS
    if family(kind) not in known:
        where = " for the microwave" if oven else ""
        raise ValueError(
            f"object must be one the scripted expert can take{where}: {', '.join(known)}; got {kind!r}"
            f"{nearest(kind, known)}"
        )
    return known[family(kind)]
