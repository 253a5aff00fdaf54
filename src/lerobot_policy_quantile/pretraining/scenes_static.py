"""Static scenes: arbitrary poses of arm, objects and basket, without a motion that leads there.

Each costs one pair of images and has one first action per object that can be named. Episodes alone contain too few of
the time steps that decide a grasp.
"""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.pretraining.samples import STATIC, SampleList, Samples, first_actions
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import TABLE_TOP
from lerobot_policy_quantile.scenes.experts.reflex import GRIPPED_FINGER, HELD_FINGER, OPEN_FINGER
from lerobot_policy_quantile.scenes.experts.waypoints import GRASPS, Grasp
from lerobot_policy_quantile.scenes.staging import Stage

TILT = 0.03  # radians, standard deviation
DEEPEST = 0.006  # things further inside each other than this are not a scene (metres)
HAND_BOX = np.array([(-0.30, -0.36, 0.86), (0.16, 0.36, 1.14)])


def static_samples(stage: Stage, rng: np.random.Generator, count: int) -> Samples:
    """`count` scenes; unreachable poses are drawn again."""
    samples = SampleList()
    while len(samples) < count:
        if _pose(stage, rng):
            view = stage.look()
            samples.add(view, *first_actions(view), STATIC)
    return samples.finish()


def _pose(stage: Stage, rng: np.random.Generator) -> bool:
    target = stage.kinds[rng.integers(len(stage.kinds))]
    stage.shuffle(rng, target)
    kind = rng.choice(4, p=[0.25, 0.30, 0.20, 0.25])
    stage.set_fingers(OPEN_FINGER)
    if kind == 0:
        reached = stage.reach(rng.uniform(*HAND_BOX), rng.normal(0, TILT, 3))
    elif kind == 1:
        reached = _near(stage, rng, target)
    elif kind == 2:
        reached = _at_the_grasp(stage, rng, target)
    else:
        reached = _holding(stage, rng, target)
    stage.forward()
    return reached and stage.deepest_contact() < DEEPEST


def _grasp_point(stage: Stage, target: str) -> Float[Array, "3"]:
    point = stage.position(target)
    point[2] += GRASPS.get(target, Grasp()).above_centre
    return np.asarray(point)


def _near(stage: Stage, rng: np.random.Generator, target: str) -> bool:
    """Above the thing, more or less, at any height of the way down."""
    point = _grasp_point(stage, target)
    point[:2] += rng.normal(0, rng.choice([0.05, 0.02]), 2)
    point[2] += rng.uniform(-0.01, 0.14)
    return stage.reach(point, rng.normal(0, TILT, 3))


def _at_the_grasp(stage: Stage, rng: np.random.Generator, target: str) -> bool:
    """Within a centimetre or two of the grasp, at several heights, the fingers open or on their way."""
    point = _grasp_point(stage, target)
    point[:2] += rng.normal(0, 0.006, 2)
    point[2] += rng.choice([rng.uniform(-0.012, 0.012), rng.uniform(-0.015, 0.06)])
    if rng.random() < 0.35:
        stage.set_fingers(rng.uniform(HELD_FINGER[target], OPEN_FINGER))
    return stage.reach(point, rng.normal(0, TILT, 3))


def _holding(stage: Stage, rng: np.random.Generator, target: str) -> bool:
    """With the thing between the fingers: lifting, on the way, over the basket, letting go."""
    grasp = GRASPS.get(target, Grasp())
    basket = stage.goal[:2]
    place = np.array([*rng.uniform(*HAND_BOX[:, :2]), TABLE_TOP + rng.uniform(0.06, grasp.lift + 0.03)])
    moment = rng.choice(4, p=[0.25, 0.25, 0.30, 0.20])
    if moment == 0:  # where it stood
        place[:2] = stage.position(target)[:2]
        place[2] = _grasp_point(stage, target)[2] + rng.choice([0.003, rng.uniform(0.0, 0.2)])
    elif moment == 1:  # somewhere on the straight way
        place[:2] = stage.position(target)[:2] + rng.random() * (basket - stage.position(target)[:2])
        place[2] = TABLE_TOP + grasp.lift + rng.normal(0, 0.015)
    else:  # over the basket
        place[:2] = basket + rng.normal(0, rng.choice([0.03, 0.012, 0.006]), 2)
        place[2] = TABLE_TOP + grasp.release + rng.choice([rng.uniform(-0.01, 0.02), rng.uniform(-0.01, 0.12)])
    if not stage.reach(place, rng.normal(0, TILT, 3)):
        return False
    held = HELD_FINGER[target]
    gripped = GRIPPED_FINGER[target]
    stage.set_fingers(rng.uniform(held + 0.002, OPEN_FINGER) if moment == 3 else gripped + rng.normal(0, 0.0004))
    centre = place - np.array([0, 0, grasp.above_centre]) + rng.normal(0, 0.003, 3)
    centre[2] = max(centre[2], stage.position(target)[2])
    stage.put(target, centre, rng.normal(0, 0.1))
    return True
