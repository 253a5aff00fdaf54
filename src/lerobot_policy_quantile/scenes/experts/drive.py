"""One episode driven by the scripted expert, in a style, with disturbances, past the flag until the hand has left."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Scene
from lerobot_policy_quantile.scenes.experts.disturbance import Disturbances
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert

AFTER = 50
"""Steps for which an episode goes on once its flag is up."""


@dataclass(frozen=True)
class Drive:
    """How an episode went."""

    solved_at: int | None
    """Actions until LIBERO's flag was up for the first time; None if it never was."""
    still_solved: bool
    """Whether it was up at the end, `AFTER` steps later or more."""
    finished: bool
    """Whether the hand had let go and left by then."""
    steps: int


def drive(
    scene: Scene,
    key: tuple[int, int, int],
    *,
    style: Style | None = None,
    disturbances: Disturbances | None = None,
    limit: int | None = None,
    grace: int = 0,
    seen: Callable[[Float[Array, "7"], Float[Array, "7"]], None] | None = None,
) -> Drive:
    """Drive the episode of a key. `seen` is told the expert's clean action and the executed one before each step.

    The robot executes the disturbed action; `limit` counts until the flag is up and is the scene's unless given.
    A hand that has not left `AFTER` steps later gets up to `grace` more.
    """
    scene.reset(*key)
    expert, executed = TaskExpert(scene, style), (disturbances or Disturbances()).begin(key[2])
    solved_at, steps = None, 0
    most = limit or scene.limit
    while steps < most or (solved_at is not None and not expert.finished and steps < most + grace):
        action = expert.act(scene.state())
        done = executed(action)
        if seen is not None:
            seen(action, done)
        scene.step(done, observe=seen is not None)
        steps += 1
        if solved_at is None and scene.success():
            solved_at, most = steps, steps + AFTER
    return Drive(solved_at, solved_at is not None and scene.success(), expert.finished, steps)
