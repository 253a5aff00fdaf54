"""A robosuite environment that steps faster and renders only on request, with bit-identical results.

robosuite computes the whole dynamics twice or three times per substep and renders every camera on every control step.
`Light` computes positions, collisions and velocities once (mj_step1, controller, mj_step2) and repeats only the
constraint solver, whose warm start would differ in the last bits otherwise. It keeps one observable of its own, the
snapshot, which is taken by robosuite's own observable clock: at one fixed substep of every control step; which one
depends on the number of forced updates during the reset. A frame is therefore a little older than the end of its
step, and rendering after the step would show another moment.
"""

import atexit
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from robosuite.utils.observables import Observable, sensor
from robosuite.utils.transform_utils import convert_quat, quat2axisangle

from lerobot_policy_quantile.scenes.contract import Array, Frames, Scene, require_action
from lerobot_policy_quantile.scenes.fast.arm_control import controls, one_reading
from lerobot_policy_quantile.scenes.fast.kept_start import Built, KeptStart, Key, SavedMoment
from lerobot_policy_quantile.scenes.fast.visible import VisibleOnly, visible_only

MUJOCO_VERSION = "3.3.2"
"""Newer releases draw LIBERO darker and throw objects that start inside a table higher (docs/guides/scenes.md)."""

KEPT_STARTS = 100
"""Per scene. One takes its pictures (0.4 MB at 256 x 256 pixels) and a few kilobytes."""

OPEN_GRIPPER = np.array([0.0, 0, 0, 0, 0, 0, -1])
SETTLING_STEPS = 10
"""As in LIBERO: objects settle while the robot waits."""

EXTERNAL_CAMERA, WRIST_CAMERA = "agentview", "robot0_eye_in_hand"


def require_mujoco() -> None:
    """Raise unless MuJoCo has the version that all results were made with."""
    found = version("mujoco")
    if found != MUJOCO_VERSION:
        raise ValueError(f"mujoco must be {MUJOCO_VERSION}; found {found}; run: pip install mujoco=={MUJOCO_VERSION}")


class Light:
    """Mixin, first among the base classes of a robosuite environment: `class World(Light, SingleArmEnv)`."""

    sim: Any
    timestep: int
    camera_size: int
    announced = False  # whether the snapshot of this step includes the cameras
    touches = 0
    obstacle_geoms: Array | None = None  # whether a geom is the obstacle's, per geom
    noting: Callable[[], None] | None = None  # called at the snapshot's instant, to record more
    draws_all = False  # every triangle, as robosuite does; for comparisons
    built: Built | None = None  # where `sim.reset` goes back to
    _drawing: VisibleOnly | None = None  # None where everything is drawn
    _drawn: tuple[Any, int] | None = None  # the simulator and the size of pictures that `_drawing` is for

    def _initialize_sim(self, xml_string: str | None = None) -> None:
        super()._initialize_sim(xml_string)  # type: ignore[misc]
        self.built = Built(self)

    def _setup_observables(self) -> "OrderedDict[str, Observable]":
        """One observable in place of robosuite's dozens; it reads the simulator at the clock's moment."""
        self.snapshot_state: Array = np.zeros(8)
        self.snapshot_frames: Frames | None = None

        @sensor(modality="snapshot")  # type: ignore[untyped-decorator]
        def snapshot(_: dict[str, Any]) -> float:
            self._look()
            return 0.0

        return OrderedDict(snapshot=Observable(name="snapshot", sensor=snapshot))

    def _look(self) -> None:
        robot, data = self.robots[0], self.sim.data  # type: ignore[attr-defined]
        position = data.site_xpos[robot.eef_site_id]
        quaternion = convert_quat(data.get_body_xquat(robot.robot_model.eef_name), to="xyzw")
        gripper = data.qpos[robot._ref_gripper_joint_pos_indexes]
        self.snapshot_state = np.concatenate([position, quat2axisangle(quaternion), gripper])
        self.snapshot_frames = self._render() if self.announced else None
        if self.noting is not None:
            self.noting()

    def _render(self) -> Frames:
        # Several scenes may live in one process; robosuite draws into whichever context came last.
        self.sim._render_context_offscreen.gl_ctx.make_current()
        return {
            name: np.ascontiguousarray(self._draw(camera)[::-1, ::-1])
            for name, camera in (("external", EXTERNAL_CAMERA), ("wrist", WRIST_CAMERA))
        }

    def _draw(self, camera: str) -> Array:
        size = self.camera_size
        if self._drawn != (self.sim, size):
            self._drawn, self._drawing = (self.sim, size), visible_only(self.sim, size)
        picture = None if self._drawing is None or self.draws_all else self._drawing.draw(camera)
        return np.asarray(self.sim.render(size, size, camera_name=camera)) if picture is None else picture

    def _destroy_sim(self) -> None:
        self._drawn = self._drawing = self.built = None  # or the simulator would live on
        if self.sim is not None:
            vars(self.sim).pop("reset", None)
        super()._destroy_sim()  # type: ignore[misc]

    def light_step(self, action: Float[Array, "7"]) -> None:
        """The dynamics of robosuite's `step`, each quantity computed once."""
        model, data, robot = self.sim.model._model, self.sim.data._data, self.robots[0]  # type: ignore[attr-defined]
        substeps = round(self.control_timestep / self.model_timestep)  # type: ignore[attr-defined]
        self.touches = 0
        with _solver_for_forward(self.sim), one_reading(robot.controller):
            for control in controls(robot, action, substeps):
                mujoco.mj_step1(model, data)
                self.sim.forward()
                control()
                mujoco.mj_step2(model, data)
                self._update_observables()  # type: ignore[attr-defined]
                self.touches += self._touched(data)
        self.timestep += 1
        self.cur_time += self.control_timestep  # type: ignore[attr-defined]

    def after_step(self) -> None:
        """Hook for what an environment does at the end of a control step besides the dynamics."""

    def _touched(self, data: Any) -> bool:
        if self.obstacle_geoms is None or data.ncon == 0:
            return False
        return np.count_nonzero(self.obstacle_geoms[data.contact.geom]) > 0

    def find_obstacle(self, body: str) -> None:
        """Remember which geoms belong to the obstacle's body, if there is one."""
        model = self.sim.model._model
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, body)
        self.obstacle_geoms = None if number < 0 else model.geom_bodyid == number


@contextmanager
def _solver_for_forward(sim: Any) -> Iterator[None]:
    """Within the block, `sim.forward` (also called by the controller) only does what mj_step1 has not done yet."""
    model, data = sim.model._model, sim.data._data

    def solve() -> None:
        mujoco.mj_fwdActuation(model, data)
        mujoco.mj_fwdAcceleration(model, data)
        mujoco.mj_fwdConstraint(model, data)

    sim.forward = solve
    try:
        yield
    finally:
        del sim.forward


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, from which robosuite and LIBERO draw, and restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


_open_scenes: "weakref.WeakSet[RobosuiteScene]" = weakref.WeakSet()


def _close_scenes() -> None:
    for scene in list(_open_scenes):
        scene.close()


@cache
def _close_at_exit() -> None:
    """robosuite shuts the display down at exit, and a renderer freed after that complains: close scenes before.

    Exit handlers run in reverse order, so this must be called when the display has already been opened.
    """
    atexit.register(_close_scenes)


class RobosuiteScene(Scene):
    """What the embedded scene and LIBERO share: everything except how an episode begins."""

    world: Any  # a robosuite environment with `Light`, None before the first reset and after close

    def __init__(self, name: str, *, obstacle: bool, camera_size: int) -> None:
        require_mujoco()
        self.name, self.obstacle, self.camera_size = name, obstacle, camera_size
        self.instruction = ""
        self.versions = {"mujoco": version("mujoco"), "robosuite": version("robosuite")}
        self.world = None
        self.starts: OrderedDict[Key, KeptStart] = OrderedDict()  # the last one used at the end
        _open_scenes.add(self)

    def begin_again(self, key: Key) -> bool:
        """Go back to the start of `key` if it is kept; False if it must be made."""
        start = self.starts.get(key)
        if start is None:
            return False
        self.starts.move_to_end(key)
        start.before.restore(self.world)
        self.step(OPEN_GRIPPER)
        self._begun({name: frame.copy() for name, frame in start.frames.items()})
        return True

    def settle(self, key: Key) -> None:
        """Wait with an open gripper until things lie still; the last step is seen, and the start of `key` kept."""
        _close_at_exit()
        for _ in range(SETTLING_STEPS - 1):
            self.step(OPEN_GRIPPER)
        before = SavedMoment.of(self.world)
        self.step(OPEN_GRIPPER, observe=True)
        self.starts[key] = KeptStart(before, self.frames())
        while len(self.starts) > KEPT_STARTS:
            self.starts.popitem(last=False)
        self._begun({name: frame.copy() for name, frame in self.frames().items()})

    def _begun(self, frames: Frames) -> None:
        self.world.snapshot_frames, self.world.announced, self.world.touches = frames, True, 0

    def step(self, action: Float[Array, "7"], *, observe: bool = False) -> None:
        """One control step (1/20 s). Cameras are rendered only with `observe`."""
        world = self._world()
        world.announced = observe
        world.light_step(require_action(action))
        world.after_step()

    def frames(self) -> Frames:
        """The current camera images; only after `reset` or a step with `observe`."""
        frames: Frames | None = self._world().snapshot_frames
        if frames is None:
            raise ValueError("frames must be announced: call step(action, observe=True) for the step before them")
        return frames

    def state(self) -> Float[Array, "8"]:
        """The current robot state, sampled at the same instant as the frames."""
        return np.array(self._world().snapshot_state)

    def contacts(self) -> int:
        """Physics substeps of the last control step in which anything touched the obstacle."""
        return int(self._world().touches)

    def simulator_state(self) -> Float[Array, "n"]:
        """Time, positions and velocities of everything, for equality checks."""
        return np.array(self._world().sim.get_state().flatten())

    def close(self) -> None:
        """Free the simulator and its renderer; twice is once."""
        self.starts.clear()
        self.close_world()

    def close_world(self) -> None:
        """Free the simulator alone; starts stay kept."""
        if self.world is not None:
            self.world.close()
            self.world = None

    def _world(self) -> Any:
        if self.world is None:
            raise ValueError(f"scene {self.name} has no episode yet; call reset(task, index, seed) first")
        return self.world
