"""The scripted expert for every LIBERO task: the first step of its plan that is not done yet, one action at a time.

Which step comes next, whether a thing is being taken or carried, and how far a drawer, knob or door is, follow from the
simulator's state at the present moment, so a policy without memory can imitate it and it goes on from wherever a
disturbance leaves it. What it does remember is listed in `handling.py`.
"""

from copy import deepcopy
from typing import TYPE_CHECKING, cast

from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Scene
from lerobot_policy_quantile.scenes.experts.fixtures import Fixtures
from lerobot_policy_quantile.scenes.experts.geometry import OPEN, Pose
from lerobot_policy_quantile.scenes.experts.grips import family, grip_for
from lerobot_policy_quantile.scenes.experts.handling import Handling
from lerobot_policy_quantile.scenes.experts.motion import Motion
from lerobot_policy_quantile.scenes.experts.places import Spot, spot_for
from lerobot_policy_quantile.scenes.experts.plan import DRAG, PULL, PUSH, PUT, TURN, Step, plan_of
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.experts.view import View

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.libero.suites import LiberoScene

OPEN_TO_PUT = -0.12
"""Joint value of a drawer that is open enough to put something in."""


class TaskExpert:
    """One episode: made after `reset`, asked once per step. It goes on when the flag is up, until the hand has left."""

    def __init__(self, scene: Scene, style: Style | None = None) -> None:
        world = cast("LiberoScene", scene).world
        self.view = View(world)
        self.motion = Motion(self.view, style or Style.plain())
        self.handling, self.fixtures = Handling(self.view, self.motion), Fixtures(self.view, self.motion)
        plan = plan_of(world.parsed_problem["goal_state"])
        self.steps, self._goals = [step for step, _ in plan], dict(plan)
        self._grips = {s: grip_for(self.view.kind(s.thing), oven=self._into_oven(s)) for s in self._moving()}
        self.finished = False
        self.phase = ""

    def act(self, state: Float[Array, "8"]) -> Float[Array, "7"]:
        """The next action. The robot's state is read from the simulator, a moment later than what a policy sees."""
        self.view.refresh()
        step = self.current()
        self.finished = step is None and self.motion.at_rest
        if step is None:
            self.phase = "rest"
            return self.motion.rest()
        if step.skill in (PUT, DRAG):
            action = self._move_thing(step)
            self.phase = self.handling.phase
            return action
        skill = {PULL: self.fixtures.pull, PUSH: self.fixtures.push, TURN: self.fixtures.turn}
        action = skill.get(step.skill, self.fixtures.shut_door)(step.thing)
        self.phase = self.fixtures.phase
        return action

    def twin(self) -> "TaskExpert":
        """One that goes on from here in the same simulator; what it comes to remember, this one does not."""
        return deepcopy(self, {id(self.view): self.view})

    @property
    def grasp(self) -> Pose | None:
        """Where the fingers are to close, as last decided; None before the first."""
        return self.handling.grasp

    def current(self) -> Step | None:
        """The step to work on: what the hand holds comes first, then the first that is not done; None when all are."""
        for step in self._moving():
            if self.handling.holds(step.thing):
                return step
        return next((step for step in self.steps if not self.done(step)), None)

    def done(self, step: Step) -> bool:
        """Whether nothing is left to do for a step: its goal is true and the hand has let go."""
        if step.skill == PULL and step.unless is not None:
            return self.fixtures.is_open(step.thing, enough=OPEN_TO_PUT) or self.done(step.unless)
        if step.skill in (PUT, DRAG):
            return self.handling.let_go(step.thing) and (self.view.true(self._goals[step]) or self._settled(step))
        check = {PULL: self.fixtures.is_open, PUSH: self.fixtures.is_pushed, TURN: self.fixtures.is_turned}
        return check.get(step.skill, self.fixtures.is_shut)(step.thing)

    def _move_thing(self, step: Step) -> Float[Array, "7"]:
        thing, spot = step.thing, self._spot(step)
        put_down = self.handling.put_down(thing, spot) if step.skill == PUT else self.handling.stuck()
        if self.view.true(self._goals[step]) and (put_down or not self.handling.holds(thing)):
            self.handling.phase = f"let go of {thing}"
            return self.motion.stay(OPEN)
        act = self.handling.put if step.skill == PUT else self.handling.drag
        return act(thing, self._grips[step], spot)

    def _spot(self, step: Step) -> Spot:
        return spot_for(self.view, step, [other for other in self._moving() if other.place == step.place])

    def _settled(self, step: Step) -> bool:
        """A book that stands in the caddy is done: LIBERO's region begins 4 mm above where it stands."""
        parent = None if self.view.is_thing(str(step.place)) else self.view.parent(str(step.place))
        in_caddy = parent is not None and family(self.view.kind(parent)) == "desk_caddy"
        return in_caddy and self.handling.at_spot(step.thing, self._spot(step))

    def _moving(self) -> list[Step]:
        return [step for step in self.steps if step.skill in (PUT, DRAG)]

    def _into_oven(self, step: Step) -> bool:
        place = str(step.place)
        parent = None if self.view.is_thing(place) else self.view.parent(place)
        return parent is not None and family(self.view.kind(parent)) == "microwave"
