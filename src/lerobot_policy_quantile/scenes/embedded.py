"""A pick-and-place scene that needs only PyPI packages: a Panda arm puts a named object into an open basket.

Same conventions as LIBERO (OSC_POSE at 20 Hz, two cameras, 7 action and 8 state values, frames turned by 180 degrees),
so policies and experts have the same interface in both. An index determines the whole initial state.
Task 0 is the can: index 0 is the plain layout, every other one moves the can, the basket, the distractors and the arm a
little. In tasks 1 to 4 (milk carton, loaf of bread, cereal box, can) all objects are mixed over the table and only the
instruction says which one to move. The seed has no effect here; the interface requires it.
"""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported

# isort: split

from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
from jaxtyping import Float
from robosuite import load_controller_config
from robosuite.environments.manipulation.single_arm_env import SingleArmEnv
from robosuite.models.arenas import TableArena
from robosuite.models.objects import BreadObject, CanObject, CerealObject, MilkObject
from robosuite.models.tasks import ManipulationTask

from lerobot_policy_quantile.scenes.contract import Array, Layout, require_index
from lerobot_policy_quantile.scenes.fast.physics import Light, RobosuiteScene, seeded
from lerobot_policy_quantile.scenes.obstacle import BODY, obstacle_body, stand_between

TABLE_TOP = 0.8
STATE_COUNT = 50
LIMIT = 400

_CAN = np.array([-0.12, -0.25])
_BASKET = np.array([0.0, 0.22])
NAMES = {"can": "can", "milk": "milk carton", "bread": "loaf of bread", "cereal": "cereal box"}
"""Each thing's name in an instruction."""

TARGETS = ("can", "milk", "bread", "cereal", "can")
"""The named thing of each task; from task 1 on, layouts are mixed."""

MIXED_SEED = 20261116
"""Of the layouts of tasks 1 to 4."""

_DISTRACTORS = {"milk": (0.20, -0.20), "cereal": (0.24, -0.02), "bread": (0.19, 0.10)}
_MODELS = {"can": CanObject, "milk": MilkObject, "bread": BreadObject, "cereal": CerealObject}
_INITIAL_JOINTS = np.array([0.0, 0.196, 0.0, -2.618, 0.0, 2.814, np.pi / 4])  # the hand points straight down
_START = np.array([-0.128, 0.0, 0.998])
"""End effector position at those joints; the obstacle's position is computed from it."""

_CAMERA_PLACE = [0.62, 0.0, 1.52]
_CAMERA_QUATERNION = [0.638, 0.305, 0.305, 0.638]

_INNER = 0.08  # the basket's inner half side
_WALL = 0.004  # its walls' half thickness
_HEIGHT = 0.10
_EXPENSIVE_LOOKS = (
    mujoco.mjtRndFlag.mjRND_SHADOW,
    mujoco.mjtRndFlag.mjRND_REFLECTION,
    mujoco.mjtRndFlag.mjRND_SKYBOX,
    mujoco.mjtRndFlag.mjRND_HAZE,
)


@dataclass(frozen=True)
class Start:
    """An initial state: places on the table (x, y, yaw), the basket's centre, the arm's joints."""

    objects: dict[str, tuple[float, float, float]]
    basket: Float[Array, "2"]
    joints: Float[Array, "7"] = field(default_factory=_INITIAL_JOINTS.copy)


def start_of(index: int) -> Start:
    """The initial state of an index; 0 is the plain layout."""
    places = {"can": tuple(_CAN), **_DISTRACTORS}
    if index == 0:
        return Start({name: (x, y, 0.0) for name, (x, y) in places.items()}, _BASKET)
    rng = np.random.default_rng([index, 20260922])
    reach = {"can": (0.05, 0.03)}
    objects = {}
    for name, (x, y) in places.items():
        dx, dy = rng.uniform(-1, 1, 2) * reach.get(name, (0.02, 0.02))
        objects[name] = (x + dx, y + dy, rng.uniform(-np.pi, np.pi))
    basket = _BASKET + rng.uniform(-1, 1, 2) * 0.03
    return Start(objects, basket, _INITIAL_JOINTS + rng.normal(0, 0.01, 7))


def instruction_for(thing: str) -> str:
    """The instruction to put this object into the basket."""
    return f"pick up the {NAMES[thing]} and place it in the basket"


def start_of_task(task: int, index: int) -> Start:
    """The initial state of a task's index."""
    if task == 0:
        return start_of(index)
    return mixed_start(np.random.default_rng([index, task, MIXED_SEED]), TARGETS[task])


def mixed_start(rng: np.random.Generator, target: str) -> Start:
    """A layout with objects anywhere on the table; the target within reach, with free space around it for the hand.

    The fingers close along y, so the target is rotated to fit. Half of the other objects are rotated the same way;
    otherwise the rotation would reveal the target.
    """
    while True:
        basket = _BASKET + rng.uniform(-1, 1, 2) * (0.08, 0.06)
        places = {target: rng.uniform((-0.21, -0.32), (0.08, 0.02))}
        for name in NAMES:
            front = rng.random() < 0.5
            low, high = ((0.15, -0.27), (0.26, 0.16)) if front else ((-0.22, -0.34), (0.26, 0.32))
            places.setdefault(name, rng.uniform(low, high))
        if _has_room(places, basket, target):
            break
    objects = {}
    for name in NAMES:
        aligned = name == target or rng.random() < 0.5
        objects[name] = (*places[name].tolist(), rng.uniform(-0.35, 0.35) if aligned else rng.uniform(-np.pi, np.pi))
    return Start(objects, basket, _INITIAL_JOINTS + rng.normal(0, 0.02, 7))


def _has_room(places: dict[str, Array], basket: Array, target: str) -> bool:
    names = list(places)
    for number, name in enumerate(names):
        if np.abs(places[name] - basket).max() < (0.18 if name == target else 0.15):
            return False
        for other in names[:number]:
            apart = 0.15 if target in (name, other) else 0.11
            if np.linalg.norm(places[name] - places[other]) < apart:
                return False
    return True


class EmbeddedWorld(Light, SingleArmEnv):  # type: ignore[misc]
    """The robosuite environment; every reset rebuilds its model from `start`."""

    def __init__(self, *, obstacle: bool, camera_size: int) -> None:
        self.start, self.target = start_of(0), TARGETS[0]
        self.with_obstacle, self.camera_size = obstacle, camera_size
        super().__init__(
            robots="Panda",
            controller_configs=load_controller_config(default_controller="OSC_POSE"),
            initialization_noise=None,
            use_camera_obs=False,
            has_offscreen_renderer=True,
            control_freq=20,
            ignore_done=True,
            hard_reset=True,
        )

    def begin(self, start: Start, target: str) -> None:
        """Reset to an initial state, with an object to be moved."""
        self.start, self.target = start, target
        self.reset()

    def reward(self, action: Any = None) -> float:
        """1 when the named thing is in the basket."""
        return float(self.in_basket(self.target))

    def in_basket(self, name: str) -> bool:
        """Whether a thing's centre is between the walls and below the rim."""
        position = self.position(name)
        inside = np.abs(position[:2] - self.start.basket) < _INNER
        return bool(inside.all() and position[2] < TABLE_TOP + _HEIGHT)

    def position(self, name: str) -> Float[Array, "3"]:
        """Where an object's centre is."""
        return np.array(self.sim.data.body_xpos[self.sim.model.body_name2id(self.things[name].root_body)])

    def _load_model(self) -> None:
        super()._load_model()
        self.robots[0].init_qpos = self.start.joints
        base = self.robots[0].robot_model
        base.set_base_xpos(base.base_xpos_offset["table"](0.8))
        arena = TableArena(table_full_size=(0.8, 0.8, 0.05), table_offset=(0, 0, TABLE_TOP))
        arena.set_origin([0, 0, 0])
        arena.set_camera(camera_name="agentview", pos=_CAMERA_PLACE, quat=_CAMERA_QUATERNION)
        arena.worldbody.append(_basket_body(self.start.basket))
        if self.with_obstacle:
            arena.worldbody.append(obstacle_body(_obstacle_centre(), _ahead()))
        self.things = {name: model(name=name) for name, model in _MODELS.items()}
        self.model = ManipulationTask(
            mujoco_arena=arena, mujoco_robots=[base], mujoco_objects=list(self.things.values())
        )

    def _reset_internal(self) -> None:
        super()._reset_internal()
        for name, (x, y, yaw) in self.start.objects.items():
            thing = self.things[name]
            height = TABLE_TOP - thing.bottom_offset[2]
            self.sim.data.set_joint_qpos(thing.joints[0], [x, y, height, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
        for look in _EXPENSIVE_LOOKS:
            self.sim._render_context_offscreen.scn.flags[look] = 0
        self.find_obstacle(BODY)


def _ahead() -> Float[Array, "3"]:
    return np.array([*(_CAN - _START[:2]), 0.0])


def _obstacle_centre() -> Float[Array, "3"]:
    return stand_between(_START, np.array([*_CAN, TABLE_TOP]), TABLE_TOP)


def _basket_body(centre: Float[Array, "2"]) -> ElementTree.Element:
    """Floor and four walls; every box once to collide and once to be seen."""
    body = ElementTree.Element("body", name="basket", pos=f"{centre[0]} {centre[1]} {TABLE_TOP}")
    side, tall = _INNER + 2 * _WALL, _HEIGHT / 2
    boxes = [((0.0, 0.0, _WALL), (side, side, _WALL))]
    for sign in (-1, 1):
        boxes.append(((sign * (_INNER + _WALL), 0.0, tall), (_WALL, side, tall)))
        boxes.append(((0.0, sign * (_INNER + _WALL), tall), (side, _WALL, tall)))
    for number, (place, half) in enumerate(boxes):
        box = {"type": "box", "pos": " ".join(map(str, place)), "size": " ".join(map(str, half))}
        box["rgba"] = "0.55 0.35 0.2 1"
        ElementTree.SubElement(body, "geom", {"name": f"basket_{number}", "group": "0", **box})
        looks = {"name": f"basket_{number}_visual", "group": "1", "contype": "0", "conaffinity": "0"}
        ElementTree.SubElement(body, "geom", {**looks, **box})
    return body


class EmbeddedScene(RobosuiteScene):
    """`EmbeddedWorld` as a `Scene`; one task per named object."""

    task_count = len(TARGETS)
    limit = LIMIT

    def __init__(self, name: str, *, obstacle: bool, camera_size: int) -> None:
        super().__init__(name, obstacle=obstacle, camera_size=camera_size)
        self.instruction = instruction_for(TARGETS[0])
        self.versions["assets"] = f"robosuite {self.versions['robosuite']}"

    def state_count(self, task: int) -> int:
        """Fifty initial states."""
        require_index("task", task, self.task_count)
        return STATE_COUNT

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key. The frames of the start are available."""
        require_index("index", index, self.state_count(task))
        self.instruction = instruction_for(TARGETS[task])
        if self.begin_again((task, index, seed)):
            return
        with seeded(seed):
            if self.world is None:
                self.world = EmbeddedWorld(obstacle=self.obstacle, camera_size=self.camera_size)
            self.starts.clear()  # another start is another model
            self.world.begin(start_of_task(task, index), TARGETS[task])
        self.settle((task, index, seed))

    def success(self) -> bool:
        """Whether the named thing lies in the basket now."""
        world = self._world()
        return bool(world.in_basket(world.target))

    def move_target(self, way: Float[Array, "2"]) -> None:
        """Put the named thing elsewhere on the table, as a push would, at rest."""
        world = self._world()
        joint = world.things[world.target].joints[0]
        pose = np.array(world.sim.data.get_joint_qpos(joint))
        pose[:2] += way
        world.sim.data.set_joint_qpos(joint, pose)
        world.sim.data.set_joint_qvel(joint, np.zeros(6))

    def layout(self) -> Layout:
        """Privileged positions for scripted experts."""
        world = self._world()
        return Layout(
            object=world.position(world.target),
            object_kind=NAMES[world.target],
            goal=np.array([*world.start.basket, TABLE_TOP]),
            ground=TABLE_TOP,
            obstacle=_obstacle_centre() if self.obstacle else None,
        )


def make(name: str, *, obstacle: bool, camera_size: int) -> EmbeddedScene:
    """Build the scene; called by `scenes.contract.make_scene`."""
    return EmbeddedScene(name, obstacle=obstacle, camera_size=camera_size)
