"""What the scripted expert of a LIBERO task is after now, and where that goes: privileged positions for training."""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.fixtures import DOOR_ARM, PULLED
from lerobot_policy_quantile.scenes.experts.geometry import Array, about_z
from lerobot_policy_quantile.scenes.experts.plan import DRAG, PULL, PUSH, PUT, TURN, Step
from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert
from lerobot_policy_quantile.scenes.experts.view import View


def aims(expert: TaskExpert) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Position of the current step's thing and of its destination. After the last step, that step's."""
    step = expert.current() or expert.steps[-1]
    return _aims_of(step, expert.view)


def _aims_of(step: Step, view: View) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    if step.skill in (PUT, DRAG):
        place = str(step.place)
        return view.position(step.thing), view.position(place) if view.is_thing(place) else view.site(place)
    if step.skill in (PULL, PUSH):
        joint, out, handle = view.drawer(step.thing)
        return handle, handle + (joint - (PULLED if step.skill == PULL else 0.0)) * out
    if step.skill == TURN:
        knob = view.anchor(f"{step.thing}_button")
        return knob, knob
    hinge, joint = view.anchor(f"{step.thing}_microjoint"), view.joint(f"{step.thing}_microjoint")
    arm = np.array([DOOR_ARM, 0.0, 0.0])
    return hinge + about_z(joint) @ arm, hinge + arm
