"""What a scripted expert reads from a LIBERO simulator: positions, joints, boxes and contacts of the present moment."""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported

# isort: split

from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import CONTROL_HZ
from lerobot_policy_quantile.scenes.experts.geometry import UP, Array, Boxes, Pose, hand_overlap
from lerobot_policy_quantile.scenes.experts.plan import drawer_names

LEFT, RIGHT = 1, 2


class View:
    """One episode's simulator. `refresh` at every step: what was computed for the last moment is forgotten."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.model, self.data = world.sim.model._model, world.sim.data._data
        self.names = [*world.objects_dict, *world.fixtures_dict]
        self._number = {name: number for number, name in enumerate(self.names, start=1)}
        self._site = world.robots[0].eef_site_id
        self._fingers = world.robots[0]._ref_gripper_joint_pos_indexes
        self._finger_speeds = world.robots[0]._ref_gripper_joint_vel_indexes
        self._owner, self._finger = self._sort_geoms()
        self._solid = np.nonzero(self._owner)[0]
        bodies = [str(self.model.body(body).name) for body in self.model.geom_bodyid]
        self._robot = np.array([name.startswith(("robot0", "gripper0")) for name in bodies])
        self._moment: dict[str, Any] = {}

    def refresh(self) -> None:
        """A new moment."""
        self._moment = {}

    def _sort_geoms(self) -> tuple[Array, Array]:
        """Of which thing a colliding geom is part (0: none), and of which finger."""
        roots = {self.world.obj_body_id[name]: number for name, number in self._number.items()}
        fingers = {self.model.body(f"gripper0_{side}finger").id: n for side, n in (("left", LEFT), ("right", RIGHT))}
        owner, finger = np.zeros(self.model.ngeom, int), np.zeros(self.model.ngeom, int)
        for geom in range(self.model.ngeom):
            body = self.model.geom_bodyid[geom]
            while body and body not in roots and body not in fingers:
                body = self.model.body_parentid[body]
            if self.model.geom_contype[geom] or self.model.geom_conaffinity[geom]:
                owner[geom], finger[geom] = roots.get(body, 0), fingers.get(body, 0)
        return owner, finger

    # -- the robot

    @property
    def hand(self) -> Pose:
        """The point between the finger tips, and the hand's rotation."""
        return Pose(self.data.site_xpos[self._site].copy(), self.data.site_xmat[self._site].reshape(3, 3).copy())

    @property
    def drift(self) -> Float[Array, "3"]:
        """Metres that the hand moves in a control step at its present velocity."""
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(self.model, self.data, mujoco.mjtObj.mjOBJ_SITE, self._site, velocity, 0)
        moved: Float[Array, "3"] = velocity[3:] / CONTROL_HZ
        return moved

    @property
    def finger(self) -> float:
        """How far one finger is from the middle."""
        one, other = self.data.qpos[self._fingers]
        return float(one - other) / 2

    @property
    def finger_speed(self) -> float:
        """Metres per second, positive when opening."""
        one, other = self.data.qvel[self._finger_speeds]
        return float(one - other) / 2

    @property
    def home(self) -> Float[Array, "3"]:
        """Where the hand is when episodes begin, roughly: 45 cm in front of the robot."""
        x, y, z = self.data.body("robot0_base").xpos
        return np.array([x + 0.45, y, z])

    def reach(self, pose: Pose) -> float:
        """Distance from shoulder to wrist (joint 6); the arm is straight at 0.72 m."""
        base = self.data.body("robot0_base").xpos
        out = np.array([*(pose.position - base)[:2], 0.0])
        wrist = pose.position + 0.21 * pose.back - 0.088 * out / np.linalg.norm(out)
        return float(np.linalg.norm(wrist - base - 0.333 * UP))

    # -- things

    def kind(self, name: str) -> str:
        """LIBERO's category of a thing."""
        things = {**self.world.objects_dict, **self.world.fixtures_dict}
        return str(things[name].category_name)

    def is_thing(self, name: str) -> bool:
        """Whether a name is an object's or a fixture's, and not a region's."""
        return name in self._number

    def position(self, name: str) -> Float[Array, "3"]:
        """A thing's origin."""
        return np.array(self.data.xpos[self.world.obj_body_id[name]])

    def axes(self, name: str) -> Float[Array, "3 3"]:
        """A thing's axes, as columns."""
        return np.array(self.data.xmat[self.world.obj_body_id[name]].reshape(3, 3))

    def yaw(self, name: str) -> float:
        """Direction of its x axis, seen from above."""
        axes = self.axes(name)
        return float(np.arctan2(axes[1, 0], axes[0, 0]))

    def turn(self, name: str) -> float:
        """Its yaw up to quarter turns, by whichever of its axes lies flattest."""
        axes = self.axes(name)
        flat = axes[:, int(np.argmin(np.abs(axes[2])))]
        return float((np.arctan2(flat[1], flat[0]) + np.pi / 4) % (np.pi / 2) - np.pi / 4)

    def site(self, region: str) -> Float[Array, "3"]:
        """The middle of a region."""
        return np.array(self.data.site_xpos[self.model.site(region).id])

    def half_size(self, region: str) -> Float[Array, "3"]:
        """Half the size of a region, along its own axes."""
        return np.array(self.world.object_sites_dict[region].size, dtype=float)

    def parent(self, region: str) -> str | None:
        """The thing that a region belongs to; None for a part of the table."""
        name = self.world.object_sites_dict[region].parent_name
        return str(name) if name in self._number else None

    def true(self, goal: Any) -> bool:
        """LIBERO's own predicate."""
        return bool(self.world._eval_predicate(goal))

    @property
    def boxes(self) -> Boxes:
        """Boxes around the colliding geoms of things."""
        if "boxes" not in self._moment:
            axes = self.data.geom_xmat[self._solid].reshape(-1, 3, 3)
            middle = np.einsum("nij,nj->ni", axes, self.model.geom_aabb[self._solid, :3])
            centre = self.data.geom_xpos[self._solid] + middle
            half, owner = self.model.geom_aabb[self._solid, 3:], self._owner[self._solid]
            self._moment["boxes"] = Boxes(centre, axes.copy(), half, owner)
        found: Boxes = self._moment["boxes"]
        return found

    @property
    def spans(self) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
        """Their lowest and highest corners."""
        if "spans" not in self._moment:
            self._moment["spans"] = self.boxes.spans()
        low, high = self._moment["spans"]
        return low, high

    @property
    def ground(self) -> float:
        """Height of what things stand on: the lowest point of those that can be moved."""
        return float(self.spans[0][self.boxes.owner <= len(self.world.objects_dict), 2].min())

    def extent(self, name: str) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        """Lowest and highest corner of a thing."""
        low, high = self.spans
        mine = self.boxes.owner == self._number[name]
        return low[mine].min(axis=0), high[mine].max(axis=0)

    def below_origin(self, name: str) -> float:
        """How far a thing reaches down from its origin."""
        return float(self.position(name)[2] - self.extent(name)[0][2])

    def top_along(
        self, start: Float[Array, "3"], end: Float[Array, "3"], width: float, but: str | None = None
    ) -> float:
        """Height of the highest thing under the way from start to end, `width` to either side.

        What is beside the start counts only if the way comes nearer to it.
        """
        low, high = self.spans
        points = start[:2] + np.linspace(0, 1, 32)[:, None, None] * (end - start)[:2]
        beside = np.maximum(low[:, :2] - points, points - high[:, :2]).max(axis=2)
        nearer = (beside < width) & (beside < beside[0] - 0.002)
        under = nearer.any(axis=0) | (beside[0] < min(width, 0.03))
        under &= self.boxes.owner != self._number.get(but or "", 0)
        return float(high[under, 2].max()) if under.any() else 0.0

    def overlap(self, pose: Pose, taken: str) -> float:
        """How deep the open hand at a pose would be in things."""
        return hand_overlap(pose, self.boxes, self._number[taken])

    def free_at(self, name: str, offsets: Float[Array, "k 2"]) -> bool:
        """Whether a thing on the table would meet nothing if it were moved by any of some offsets."""
        low, high = self.spans
        bottom, top = self.extent(name)
        others = (self.boxes.owner != self._number[name]) & (low[:, 2] < top[2])
        moved = offsets[:, None]
        meets = (low[others, :2] < top[:2] + moved) & (high[others, :2] > bottom[:2] + moved)
        return not meets.all(axis=2).any()

    def free_column(self, name: str) -> Float[Array, "3"]:
        """The shortest way aside to where nothing hangs above a thing; zero if nothing does, or no way is known."""
        low, high = self.spans
        bottom, top = self.extent(name)
        hangs = (self.boxes.owner != self._number[name]) & (high[:, 2] > top[2])
        for way in _ASIDE:
            mine = (low[:, :2] < (top + way)[:2] + 0.008) & (high[:, :2] > (bottom + way)[:2] - 0.008)
            if not (hangs & mine.all(axis=1)).any():
                return way
        return np.zeros(3)

    # -- contacts

    def touching(self, name: str) -> tuple[bool, bool]:
        """Whether the left and the right finger touch a thing."""
        fingers = {finger for finger, owner in self._finger_contacts if owner == self._number[name]}
        return LEFT in fingers, RIGHT in fingers

    @property
    def touched(self) -> list[str]:
        """Things that a finger touches."""
        return [self.names[owner - 1] for owner in sorted({owner for _, owner in self._finger_contacts if owner})]

    @property
    def _finger_contacts(self) -> set[tuple[int, int]]:
        if "contacts" not in self._moment:
            pairs = self.data.contact.geom[: self.data.ncon]
            both = np.concatenate([pairs, pairs[:, ::-1]]) if len(pairs) else np.zeros((0, 2), int)
            fingers, owners = self._finger[both[:, 0]], self._owner[both[:, 1]]
            self._moment["contacts"] = {
                (int(finger), int(owner)) for finger, owner in zip(fingers, owners, strict=True) if finger and owner
            }
        found: set[tuple[int, int]] = self._moment["contacts"]
        return found

    def supported(self, name: str) -> bool:
        """Whether a thing touches anything but the robot."""
        pairs = self.data.contact.geom[: self.data.ncon]
        both = np.concatenate([pairs, pairs[:, ::-1]]) if len(pairs) else np.zeros((0, 2), int)
        mine = self._owner[both[:, 0]] == self._number[name]
        other = both[:, 1]
        return bool((mine & ~self._robot[other] & (self._owner[other] != self._number[name])).any())

    # -- joints

    def joint(self, name: str) -> float:
        """The value of a hinge or a slide."""
        return float(self.data.qpos[self.model.jnt_qposadr[self.model.joint(name).id]])

    def anchor(self, name: str) -> Float[Array, "3"]:
        """Where a joint's axis is."""
        return np.array(self.data.xanchor[self.model.joint(name).id])

    def drawer(self, region: str) -> tuple[float, Float[Array, "3"], Float[Array, "3"]]:
        """How far a drawer is out (negative), which way is out, and where its handle is."""
        cabinet, level = drawer_names(region)
        joint = self.model.joint(f"{cabinet}_{level}_level").id
        out = -np.array(self.data.xaxis[joint])
        body = self.model.body(f"{cabinet}_cabinet_{level}").id
        parts = [geom for geom in self._solid if self.model.geom_bodyid[geom] == body]
        handle = max(parts, key=lambda geom: float(self.data.geom_xpos[geom] @ out))
        return self.joint(f"{cabinet}_{level}_level"), out, np.array(self.data.geom_xpos[handle])


_ASIDE = sorted(
    (np.array([x, y, 0.0]) for x in (0, -0.03, -0.06, -0.09, -0.12, 0.06, 0.12) for y in (0, 0.04, 0.08, -0.04, -0.08)),
    key=lambda way: float(np.linalg.norm(way)),
)
