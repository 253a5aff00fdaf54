"""The scene that needs nothing but PyPI packages: a can to be put into an open basket, on a table, by a Panda arm.

Same conventions as LIBERO (OSC_POSE at 20 Hz, two cameras, 7 action and 8 state values, frames turned by 180 degrees),
so a policy or an expert that works in one speaks the language of the other. An index decides the whole initial state:
index 0 is the plain layout, every other one moves the can, the basket, the distractors and the arm a little. The seed
has nothing left to decide here; it belongs to the contract.
"""

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
from lerobot_policy_quantile.scenes.obstacle import BODY, obstacle_body, stand_between
from lerobot_policy_quantile.scenes.physics import Light, RobosuiteScene, seeded

TABLE_TOP = 0.8
STATE_COUNT = 50
LIMIT = 400

_CAN = np.array([-0.12, -0.25])
_BASKET = np.array([0.0, 0.22])
_DISTRACTORS = {"milk": (0.20, -0.20), "cereal": (0.24, -0.02), "bread": (0.19, 0.10)}
_MODELS = {"can": CanObject, "milk": MilkObject, "bread": BreadObject, "cereal": CerealObject}
_INITIAL_JOINTS = np.array([0.0, 0.196, 0.0, -2.618, 0.0, 2.814, np.pi / 4])  # the hand points straight down
_START = np.array([-0.128, 0.0, 0.998])
"""Where those joints put the end effector; the obstacle's place is reckoned from here."""

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


class EmbeddedWorld(Light, SingleArmEnv):  # type: ignore[misc]
    """The robosuite environment; its model is built anew for every reset, from `start`."""

    def __init__(self, *, obstacle: bool, camera_size: int) -> None:
        self.start, self.with_obstacle, self.camera_size = start_of(0), obstacle, camera_size
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

    def begin(self, start: Start) -> None:
        """Reset to an initial state."""
        self.start = start
        self.reset()

    def reward(self, action: Any = None) -> float:
        """1 when the can is in the basket."""
        return float(self.can_in_basket())

    def can_in_basket(self) -> bool:
        """Whether the can's centre is between the walls and below the rim."""
        position = self.position("can")
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
    """The contract around `EmbeddedWorld`; one task."""

    task_count = 1
    limit = LIMIT

    def __init__(self, name: str, *, obstacle: bool, camera_size: int) -> None:
        super().__init__(name, obstacle=obstacle, camera_size=camera_size)
        self.instruction = "pick up the can and place it in the basket"
        self.versions["assets"] = f"robosuite {self.versions['robosuite']}"

    def state_count(self, task: int) -> int:
        """Fifty initial states."""
        require_index("task", task, self.task_count)
        return STATE_COUNT

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key. Frames of the start can be asked for."""
        require_index("index", index, self.state_count(task))
        if self.begin_again((task, index, seed)):
            return
        with seeded(seed):
            if self.world is None:
                self.world = EmbeddedWorld(obstacle=self.obstacle, camera_size=self.camera_size)
            self.world.begin(start_of(index))
        self.settle((task, index, seed))

    def success(self) -> bool:
        """Whether the can lies in the basket now."""
        return bool(self._world().can_in_basket())

    def layout(self) -> Layout:
        """Positions that only a scripted expert may know."""
        world = self._world()
        return Layout(
            object=world.position("can"),
            object_kind="can",
            goal=np.array([*world.start.basket, TABLE_TOP]),
            ground=TABLE_TOP,
            obstacle=_obstacle_centre() if self.obstacle else None,
        )


def make(name: str, *, obstacle: bool, camera_size: int) -> EmbeddedScene:
    """The registry's door."""
    return EmbeddedScene(name, obstacle=obstacle, camera_size=camera_size)
