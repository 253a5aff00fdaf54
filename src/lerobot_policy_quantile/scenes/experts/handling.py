"""Taking a thing and putting it somewhere: which of the two follows from whether the fingers hold it now.

Not a function of the moment alone: a grasp that was missed is remembered and avoided at the next try, a style's pause
is counted, and what grasps cost is kept until the thing has moved by 5 mm (computing it anew would give the same, but
takes a tenth of a second). Which of them is taken depends on where the hand is: close to a thing it takes what is near,
so that a policy without memory, which cannot know a demonstrator's side, sees one answer to every moment.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import OPEN, SHUT, Array, Pose
from lerobot_policy_quantile.scenes.experts.grips import Candidate, Grip
from lerobot_policy_quantile.scenes.experts.motion import RESTING, WIDE, Motion
from lerobot_policy_quantile.scenes.experts.places import Spot
from lerobot_policy_quantile.scenes.experts.view import View

MOVED = 0.005
"""Metres by which a thing has moved when its grasps are looked at anew."""
HOLDING = 0.02
"""The same while both fingers touch a thing: they may creep."""
WIDEST = 0.0393
"""A moka pot fills the hand: the fingers touch it until they are this far out."""
DRAG_HEIGHT = 0.016
"""Of the hand above the table when it drags a plate."""
APPROACHING, CLOSING = "approach", "close on"
TAKING = (APPROACHING, CLOSING)
"""How the phases begin in which the hand is on its way to a thing."""
AT_HAND, OUT_OF_HAND = 0.10, 0.16
"""Metres from hand to thing: nearer than this the nearest grasp counts most, beyond that where the hand is does not."""
NEARNESS = 3.0
"""Cost per metre to a grasp for a hand close to the thing."""
NEAR_REACH, FAR_REACH = 0.45, 0.63
"""Metres from shoulder to wrist: the arm folds below, and above the controller drifts."""


@dataclass(frozen=True)
class Known:
    """The grasps of a thing where it stands, and what they cost from afar."""

    thing: str
    position: Float[Array, "3"]
    candidates: list[Candidate]
    costs: Float[Array, "n"]

    def __deepcopy__(self, memo: object) -> "Known":
        """Itself: nothing in it changes."""
        return self


class Handling:
    """Takes and puts the things of one episode."""

    def __init__(self, view: View, motion: Motion) -> None:
        self.view, self.motion, self.style = view, motion, motion.style
        self.phase = ""
        self.grasp: Pose | None = None
        """Where the fingers are to close, as last decided."""
        self._known: Known | None = None
        self._taken: Candidate | None = None  # the choice while the fingers close
        self._missed: list[tuple[str, Pose]] = []  # relative to the thing
        self._waited = 0

    def holds(self, thing: str) -> bool:
        """Whether both fingers touch a thing and have come to rest on it."""
        both = all(self.view.touching(thing))
        return both and (abs(self.view.finger_speed) < HOLDING or not self.view.supported(thing))

    def let_go(self, thing: str) -> bool:
        """Whether the fingers are off a thing, or as wide as they go."""
        return self.view.finger > WIDEST or not any(self.view.touching(thing))

    def put(self, thing: str, grip: Grip, spot: Spot) -> Float[Array, "7"]:
        """One action of taking a thing and putting it onto its spot."""
        if self.at_spot(thing, spot) and any(self.view.touching(thing)):
            self.phase = f"release {thing}"
            return self.motion.stay(OPEN)
        if self.holds(thing):
            return self._carry(thing, spot) if spot.front is None else self._carry_in(thing, spot, spot.front)
        return self.take(thing, grip, spot)

    def drag(self, thing: str, grip: Grip, spot: Spot) -> Float[Array, "7"]:
        """One action of taking a flat thing's rim and pulling it over the table."""
        way = spot.position - self.view.position(thing)
        if np.linalg.norm(way[:2]) < spot.slack and any(self.view.touching(thing)):
            self.phase = f"release {thing}"
            return self.motion.stay(OPEN)
        if not self.holds(thing):
            return self.take(thing, grip, spot)
        self.phase = f"drag {thing}"
        hand = self.view.hand
        leg = self._first_leg(thing, way)
        target = np.array([*(hand.position + leg)[:2], self.view.ground + DRAG_HEIGHT])
        return self.motion.go(Pose(target, self.motion.level()), SHUT, 0.5)

    def _first_leg(self, thing: str, way: Float[Array, "3"]) -> Float[Array, "3"]:
        """Straight, or along one axis first if something lies on the straight way and not on that one."""
        x, y = np.array([way[0], 0.0, 0.0]), np.array([0.0, way[1], 0.0])
        share = np.linspace(0, 1, 16)[:, None]
        for first, second in ((way, np.zeros(3)), (y, x), (x, y)):
            if self.view.free_at(thing, np.concatenate([share * first[:2], first[:2] + share * second[:2]])):
                return first
        return way

    def at_spot(self, thing: str, spot: Spot) -> bool:
        """Whether a thing is where it may be let go of."""
        offset = self.view.position(thing) - spot.position
        return bool(np.linalg.norm(offset[:2]) < spot.slack and offset[2] < 0.008)

    def stuck(self) -> bool:
        """Whether the hand has come to rest."""
        return bool(np.linalg.norm(self.view.drift) < 0.0015)

    def put_down(self, thing: str, spot: Spot) -> bool:
        """Whether a thing stands on something, nearly on its spot."""
        offset = self.view.position(thing) - spot.position
        return bool(np.linalg.norm(offset[:2]) < 0.03 and offset[2] < 0.03 and self.view.supported(thing))

    # -- taking

    def take(self, thing: str, grip: Grip, spot: Spot | None) -> Float[Array, "7"]:
        """One action of taking a thing."""
        hand, finger = self.view.hand, self.view.finger
        choice = self._choice(thing, grip, spot)
        self.grasp = goal = choice.pose
        both, speed = all(self.view.touching(thing)), self.view.finger_speed
        if finger < WIDE and hand.near(goal, 0.02, 0.25):
            if both or speed < -RESTING:
                return self._close(thing, goal)
            if not self._tried(thing, goal):
                self._missed.append((thing, goal.moved(-self.view.position(thing))))
        elif hand.near(goal, 0.008, 0.1):
            return self._close(thing, goal)
        self._waited = 0
        if finger < WIDE:
            self.phase = f"open for {thing}"
            opening = bool(self.view.touched) and speed > RESTING
            return self.motion.stay(OPEN) if opening else self.motion.go(hand.moved(0.02 * hand.back), OPEN, 0.4)
        if hand.angle_to(goal) > 0.3 and (leaving := self.motion.back_off()) is not None:
            self.phase = "back off"
            return leaving
        self.phase = f"{APPROACHING} {thing}"
        if any(self.view.touching(thing)) and (hand.position - goal.position) @ goal.back > 0.012:
            return self.motion.go(goal.moved(0.05 * goal.back), OPEN)  # a finger stands on it
        return self.motion.approach(goal, OPEN, taken=thing, slack=grip.slack)

    def _close(self, thing: str, goal: Pose) -> Float[Array, "7"]:
        self._waited += 1
        self.phase = f"{CLOSING} {thing}"
        return self.motion.go(goal, SHUT if self._waited > self.style.pause else OPEN, 0.3)

    def _choice(self, thing: str, grip: Grip, spot: Spot | None) -> Candidate:
        """The cheapest grasp from where the hand is; while the fingers close, the one at which they do."""
        position, closing = self.view.position(thing), self.view.finger < WIDE
        known = self._known
        moved = np.inf if known is None or known.thing != thing else np.linalg.norm(position - known.position)
        if known is None or moved == np.inf or (moved >= MOVED and not closing):
            found = grip.candidates(position, self.view.yaw(thing), self.view.turn(thing))
            costs = [self._cost(candidate, thing, spot) for candidate in found] if len(found) > 1 else [0.0]
            self._known = known = Known(thing, position, found, np.array(costs))
            self._taken = None
        way = position - known.position
        if self._taken is None or not closing:
            best = known.candidates[int((known.costs + self._nearness(known)).argmin())]
            pose = self._eased(best.pose.moved(way), thing, grip)
            self._taken = Candidate(pose.moved(-way), best.cost, best.side)
        return Candidate(self._taken.pose.moved(way), self._taken.cost, self._taken.side)

    def _eased(self, pose: Pose, thing: str, grip: Grip) -> Pose:
        """The grasp as near to the hand as it may lie, unless something stands there."""
        eased = grip.eased(pose, self.view.position(thing), self.view.hand)
        in_the_way = eased is not pose and self.view.overlap(eased, thing) > self.view.overlap(pose, thing)
        return pose if in_the_way else eased

    def _nearness(self, known: Known) -> Float[Array, "n"]:
        """What each grasp costs more for lying away from the hand; nothing for a hand that is still far."""
        hand = self.view.hand
        away = float(np.linalg.norm(hand.position - self.view.position(known.thing)))
        share = float(np.clip((OUT_OF_HAND - away) / (OUT_OF_HAND - AT_HAND), 0, 1))
        if share == 0.0 or len(known.candidates) == 1:
            return np.zeros(len(known.candidates))
        poses = [candidate.pose for candidate in known.candidates]
        apart = np.linalg.norm(np.stack([pose.position for pose in poses]) - hand.position, axis=1)
        traces = np.einsum("nij,ij->n", np.stack([pose.rotation for pose in poses]), hand.rotation)
        nearness: Float[Array, "n"] = share * NEARNESS * (apart + 0.03 * np.arccos(np.clip((traces - 1) / 2, -1, 1)))
        return nearness

    def _cost(self, candidate: Candidate, thing: str, spot: Spot | None) -> float:
        pose = candidate.pose
        cost = candidate.cost + 20 * self.view.overlap(pose, thing)
        reach = self.view.reach(pose)
        cost += 1.5 * max(0.0, reach - FAR_REACH, NEAR_REACH - reach)
        cost += 0.1 * float(np.linalg.norm((pose.position - self.view.home)[:2]))
        if spot is not None:
            there = pose.moved(spot.position - self.view.position(thing))
            cost += 10 * self.view.overlap(there, thing)
        if candidate.side is not None and self.style.side is not None:
            cost += 0.04 * (1 - float(np.cos(candidate.side - self.style.side)))
        return cost + 0.1 * self._tried(thing, pose)

    def _tried(self, thing: str, pose: Pose) -> bool:
        """Whether the fingers closed on nothing there before."""
        here = pose.moved(-self.view.position(thing))
        return any(name == thing and here.near(other, 0.01, 0.1) for name, other in self._missed)

    # -- carrying

    def _carry(self, thing: str, spot: Spot) -> Float[Array, "7"]:
        """Up, across, and down inside a funnel; slowly while the thing is still supported."""
        view, hand = self.view, self.view.hand
        position = view.position(thing)
        rotation = self.motion.level() if spot.rotation is None else spot.rotation
        offset = spot.position - position
        aside = float(np.linalg.norm(offset[:2]))
        clearance = spot.margin + view.below_origin(thing)
        over = max(view.top_along(position, spot.position, 0.07, thing) + clearance, spot.position[2] + 0.02)
        ahead = view.top_along(position, self.motion.soon(position, spot.position), 0.07, thing) + clearance
        over = max(over, ahead, view.ground + clearance)
        down = 1.0 - float(np.clip((aside - 0.009) / 0.02, 0, 1))
        height = over + down * (spot.position[2] - over) + 0.03 * (aside > 0.04 and position[2] < ahead - 0.01)
        free = view.free_column(thing)
        if free.any() and aside > 0.05:
            self.phase = f"aside with {thing}"
            return self.motion.go(Pose(hand.position + free, rotation), SHUT)
        self.phase = f"carry {thing}"
        target = Pose(hand.position + np.array([*offset[:2], height - position[2]]), rotation)
        action = self.motion.go(target, SHUT, 0.6 if down > 0 else 0.9)
        if aside > 0.04:
            action = self.motion.held_back(action, (position[2] - ahead + 0.03) / 0.02)
        if view.supported(thing) and action[2] > 0:
            action[2] = min(action[2], 0.5)
        return action

    def _carry_in(self, thing: str, spot: Spot, front: Float[Array, "3"]) -> Float[Array, "7"]:
        """To the point in front, straight in, down."""
        position, hand = self.view.position(thing), self.view.hand
        before = front - position
        off_line = max(abs(before[0]), abs(before[2])) > 0.015
        if before[1] > 0.015 or (before[1] > -0.02 and off_line):
            self.phase, goal, speed = f"before the oven with {thing}", front, 0.7
        elif abs(spot.position[1] - position[1]) > 0.012:
            self.phase, speed = f"into the oven with {thing}", 0.5
            goal = np.array([front[0], spot.position[1], front[2]])
        else:
            self.phase, goal, speed = f"down in the oven with {thing}", spot.position, 0.4
        rotation = self.motion.level() if spot.rotation is None else spot.rotation
        return self.motion.go(Pose(hand.position + goal - position, rotation), SHUT, speed)
