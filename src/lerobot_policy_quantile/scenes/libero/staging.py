"""A LIBERO-Object task rearranged for pretraining: its six objects and its basket in permuted places."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import TABLE_TOP
from lerobot_policy_quantile.scenes.libero.kinds import KINDS, instruction_for
from lerobot_policy_quantile.scenes.libero.suites import GROUND, LiberoScene
from lerobot_policy_quantile.scenes.staging import Stage

SUITE = "libero_object"
_PLACES = np.array([(-0.12, -0.24), (0.05, -0.10), (-0.15, 0.06), (0.10, -0.20), (0.15, 0.03), (-0.20, -0.08)])
"""Where LIBERO-Object puts its things (metres)."""

_BASKET = np.array([0.005, 0.26])
_REACH = 0.03  # a place is moved by at most this much
_BASKET_REACH = np.array([0.04, 0.03])
_ROOM = 0.10  # from the thing to be taken to any other


class LiberoStage(Stage):
    """One task of LIBERO-Object. Objects get random places; no stored initial state is used."""

    lift: ClassVar[float] = TABLE_TOP - GROUND

    def __init__(self, task: int, camera_size: int) -> None:
        scene = LiberoScene(SUITE, obstacle=False, camera_size=camera_size)
        scene.reset(task, 0, 0)
        world = scene.world
        self._things = {thing.category_name: (name, thing) for name, thing in world.objects_dict.items()}
        name, basket = self._things.pop("basket")
        self.kinds = tuple(kind for kind in KINDS if kind in self._things)
        super().__init__(scene, world.sim.model.body_id2name(world.obj_body_id[name]))
        self._basket_joint = basket.joints[0]
        self._standing = {kind: self._pose(thing.joints[0]) for kind, (_, thing) in self._things.items()}
        self._basket_standing = self._pose(self._basket_joint)
        self._start = np.array(self._rest[self._arm.joints])

    def _pose(self, joint: str) -> Float[Array, "7"]:
        return np.array(self.world.sim.data.get_joint_qpos(joint))

    def shuffle(self, rng: np.random.Generator, kind: str) -> None:
        """Things on permuted places, each moved a little, the basket and the arm, too."""
        self.forget()
        self.set_joints(self._start + rng.normal(0, 0.02, 7))
        while True:
            places = _PLACES[rng.permutation(len(_PLACES))[: len(self.kinds)]]
            places = places + rng.uniform(-_REACH, _REACH, places.shape)
            own = places[self.kinds.index(kind)]
            if np.sort(np.linalg.norm(places - own, axis=1))[1] > _ROOM:
                break
        for other, place in zip(self.kinds, places, strict=True):
            height = self._standing[other][2] + self.lift
            self.put(other, np.array([*place, height]), rng.normal(0, 0.1))
        basket = self._basket_standing.copy()
        basket[:2] = _BASKET + rng.uniform(-1, 1, 2) * _BASKET_REACH
        self.world.sim.data.set_joint_qpos(self._basket_joint, basket)
        self.scene.instruction = instruction_for(kind)
        self.forward()

    def body_of(self, kind: str) -> int:
        """The number of a thing's body."""
        return int(self.world.obj_body_id[self._things[kind][0]])

    def put(self, kind: str, place: Float[Array, "3"], yaw: float) -> None:
        """A thing's centre at a place, turned about the vertical from how LIBERO stands it."""
        w, x, y, z = self._standing[kind][3:]
        cos, sin = np.cos(yaw / 2), np.sin(yaw / 2)
        turned = [cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w]
        self.world.sim.data.set_joint_qpos(self._things[kind][1].joints[0], [*(place - self._up), *turned])
