"""From the goal predicates of a bddl file to the steps that bring them about, in the order they can be done.

Drawers are opened first, then knobs turned, things put, doors and drawers shut. A thing that belongs into a drawer
brings the opening of that drawer with it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PULL, TURN, PUT, DRAG, PUSH, SHUT_DOOR = "pull", "turn", "put", "drag", "push", "shut door"

_ORDER = {"open": 0, "turnon": 1, "on": 2, "in": 2, "close": 3}
_DRAWER = re.compile(r"(?P<cabinet>.*cabinet_\d+)_(?P<level>top|middle|bottom)_region$")


@dataclass(frozen=True)
class Step:
    """One skill and what it is applied to."""

    skill: str
    thing: str
    """What is moved: an object, a drawer's region, a stove, a microwave."""
    place: str | None = None
    """Where it goes: an object or a region."""
    unless: "Step | None" = None
    """The step that this one prepares: there is nothing to prepare once that is done."""


def plan_of(goals: Sequence[Sequence[str]]) -> list[tuple[Step, Sequence[str]]]:
    """Steps in order, each with the goal predicate it serves."""
    for goal in goals:
        if goal[0] not in _ORDER:
            raise ValueError(f"goal predicate must be one of {', '.join(_ORDER)}; got {goal[0]!r} in {list(goal)}")
    steps: list[tuple[Step, Sequence[str]]] = []
    for goal in sorted(goals, key=lambda goal: _ORDER[goal[0]]):
        step = _step_for(goal)
        if step.skill == PUT and is_drawer(step.place or ""):
            steps.append((Step(PULL, step.place or "", unless=step), goal))
        steps.append((step, goal))
    return steps


def _step_for(goal: Sequence[str]) -> Step:
    predicate, thing, *place = goal
    if predicate == "open":
        return Step(PULL, thing)
    if predicate == "turnon":
        return Step(TURN, thing)
    if predicate == "close":
        return Step(PUSH if is_drawer(thing) else SHUT_DOOR, thing)
    return Step(DRAG if "plate" in thing else PUT, thing, place[0])


def is_drawer(region: str) -> bool:
    """Whether a region is the inside of a drawer."""
    return _DRAWER.match(region) is not None


def drawer_names(region: str) -> tuple[str, str]:
    """Cabinet and level of a drawer's region."""
    match = _DRAWER.match(region)
    if match is None:
        raise ValueError(f"region must be a cabinet's top, middle or bottom drawer; got {region!r}")
    return match["cabinet"], match["level"]
