"""The four LIBERO suites through hf-libero, and the obstacle of the two-demonstration study.

An episode begins as LeRobot's own LIBERO environment begins it: seed, reset, stored initial state, ten waiting steps.
The seed comes before every reset because fixtures are placed anew each time. The instruction follows the rule in
`wording.py`.
"""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported

# isort: split

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from robosuite import load_controller_config
from robosuite.utils.errors import RandomizationError

from lerobot_policy_quantile.scenes.contract import Array, Layout, require_index
from lerobot_policy_quantile.scenes.fast.kept_start import Key
from lerobot_policy_quantile.scenes.fast.physics import Light, RobosuiteScene, seeded
from lerobot_policy_quantile.scenes.libero.assets import (
    assets_hash,
    find_assets,
    import_libero,
    libero_package,
    stand_ins,
)
from lerobot_policy_quantile.scenes.libero.dressing import Dressing
from lerobot_policy_quantile.scenes.libero.initial_states import load_initial_states
from lerobot_policy_quantile.scenes.libero.wording import bddl_language, require_wording
from lerobot_policy_quantile.scenes.obstacle import BODY, obstacle_body, stand_between
from lerobot_policy_quantile.util.wording import BDDL, TASK, WORDING

LIMITS = {"libero_spatial": 280, "libero_object": 280, "libero_goal": 300, "libero_10": 520}
"""Steps per episode, those of LIBERO-Plus; libero_10 is also called LIBERO-Long."""

OBSTACLE_LIMIT = 600
_OBSTACLE_TASK = ("libero_object", 0)
_START = np.array([-0.1526, -0.0063, 0.2484])  # end effector and soup can of task 0, index 0, after waiting
_SOUP = np.array([-0.1191, -0.2398, 0.0384])
GROUND = 0.0
_PLACEMENT_TRIES = 100
FRESH = -1
"""In place of the index of a stored initial state: the layout was drawn."""


def _world_class(problem: str, with_obstacle: bool, dressing: Dressing) -> Any:
    """hf-libero's class for a problem, with the faster step mixed in. The name is kept, because LIBERO compares it."""
    from libero.libero.envs import TASK_MAPPING

    base = TASK_MAPPING[problem]

    class LightProblem(Light, base):  # type: ignore[misc, valid-type]
        def _load_model(self) -> None:
            known = len(self.object_property_initializers)
            super()._load_model()
            self._initializers = self.object_property_initializers[known:]
            if with_obstacle:
                centre = stand_between(_START, _SOUP, GROUND)
                self.model.worldbody.append(obstacle_body(centre, _SOUP - _START))

        def reset(self) -> Any:
            if not self.hard_reset:  # LIBERO only ever adds to this list, once per loaded model
                self.object_property_initializers.extend(self._initializers)
            return super().reset()

        def _setup_camera(self, mujoco_arena: Any) -> None:
            super()._setup_camera(mujoco_arena)
            dressing.move_camera(mujoco_arena)

        def _load_robots(self) -> None:
            for config in self.robot_configs:
                config["initial_qpos"] = dressing.joints
            super()._load_robots()

        def _reset_internal(self) -> None:
            super()._reset_internal()
            self.find_obstacle(BODY)

        def after_step(self) -> None:
            self._post_process()

    LightProblem.__name__ = base.__name__
    return LightProblem


class LiberoScene(RobosuiteScene):
    """One suite. Going to another task builds another simulator; going to another index of the same task does not.

    Starts are kept for every task, since building a task's model gives the same model each time.
    """

    def __init__(
        self, name: str, *, obstacle: bool, camera_size: int, wording: str = TASK, suite: str | None = None
    ) -> None:
        super().__init__(name, obstacle=obstacle, camera_size=camera_size)
        self.wording = require_wording(wording)
        import_libero()
        from libero.libero.benchmark import task_maps

        self.suite = suite or name
        self.tasks = list(task_maps[self.suite].values())
        self.task_count = len(self.tasks)
        self.limit = OBSTACLE_LIMIT if obstacle else LIMITS[self.suite]
        self.versions["assets"] = assets_hash(find_assets())
        self.versions["stand-in visuals"] = str(len(stand_ins(find_assets())))
        self.versions[WORDING] = wording
        self.task = -1
        self._states: dict[int, Float[Array, "index n"]] = {}

    def state_count(self, task: int) -> int:
        """How many initial states are stored for the task."""
        return len(self._initial_states(task))

    def instruction_of(self, task: int) -> str:
        """Instruction of a task by the wording rule; builds no simulator."""
        require_index("task", task, self.task_count)
        return bddl_language(self._dressing(task).bddl) if self.wording == BDDL else self._words(task)

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key. The frames of the start are available."""
        states = self._initial_states(task)
        require_index("index", index, len(states))
        if self.obstacle and (self.name, task) != _OBSTACLE_TASK:
            raise ValueError(f"obstacle is defined for libero_object, task 0; got {self.name}, task {task}")
        self._begin((task, index, seed), states[index])

    def reset_fresh(self, task: int, seed: int) -> None:
        """Begin an episode from a layout that LIBERO's own placement sampler draws from the seed; none is stored."""
        require_index("task", task, self.task_count)
        self._begin((task, FRESH, seed), None)

    def _begin(self, key: Key, stored: Float[Array, "n"] | None) -> None:
        task, _, seed = key
        with seeded(seed):
            if self.world is None or task != self.task:
                self.close_world()
                self._build(task)
            if self.begin_again(key):
                return
            np.random.seed(seed)  # building draws as well; the episode must not depend on whether it happened
            self._restart(stored)
        self.settle(key)

    def success(self) -> bool:
        """LIBERO's own flag."""
        return bool(self._world()._check_success())

    def layout(self) -> Layout:
        """Privileged positions for scripted experts, for tasks that put one object into a basket."""
        world = self._world()
        (predicate, thing, region), *others = world.parsed_problem["goal_state"]
        if others or predicate != "in" or not region.endswith("_contain_region"):
            raise ValueError(f"layout is known for tasks that put one thing into a basket; got {self.instruction!r}")
        number = world.obj_body_id[thing]
        return Layout(
            object=np.array(world.sim.data.body_xpos[number]),
            object_kind=world.objects_dict[thing].category_name,
            goal=np.array(world.sim.data.body_xpos[world.obj_body_id[region.removesuffix("_contain_region")]]),
            ground=GROUND,
            obstacle=stand_between(_START, _SOUP, GROUND) if self.obstacle else None,
        )

    def _initial_states(self, task: int) -> Float[Array, "index n"]:
        require_index("task", task, self.task_count)
        if task not in self._states:
            self._states[task] = load_initial_states(self._file(task, "init_files", "init_states_file"))
        return self._states[task]

    def _words(self, task: int) -> str:
        """hf-libero's `task.language`, or what a perturbation of language or goal puts in its place."""
        return str(self.tasks[task].language)

    def _dressing(self, task: int) -> Dressing:
        """What the task's world is built from; LIBERO itself changes nothing about it."""
        return Dressing(self._file(task, "bddl_files", "bddl_file"))

    def _file(self, task: int, folder: str, field: str) -> Path:
        entry = self.tasks[task]
        return libero_package() / folder / str(entry.problem_folder) / str(getattr(entry, field))

    def _build(self, task: int) -> None:
        from libero.libero.envs.bddl_utils import get_problem_info

        dressing = self._dressing(task)
        path = dressing.bddl
        problem = get_problem_info(str(path))
        world = _world_class(problem["problem_name"], self.obstacle, dressing)
        self.task, self.instruction = task, self.instruction_of(task)
        self.world = _try_placements(
            lambda: world(
                str(path),
                robots=["Panda"],
                controller_configs=load_controller_config(default_controller="OSC_POSE"),
                initialization_noise=None,
                use_camera_obs=False,
                has_offscreen_renderer=True,
                control_freq=self.control_hz,
                ignore_done=True,
                hard_reset=False,
                **dressing.options(),
            )
        )
        self.world.camera_size = self.camera_size

    def _restart(self, stored: Float[Array, "n"] | None) -> None:
        world = self.world
        world.announced = False  # the pictures of a reset are seen by nobody
        world.object_property_initializers.clear()
        _try_placements(world.reset)
        if stored is not None:
            world.sim.set_state_from_flattened(stored)
            world.sim.forward()
        world._check_success()
        world._post_process()
        world._update_observables(force=True)


def _try_placements(attempt: Any) -> Any:
    """Random placement can fail; LIBERO retries without limit, this a fixed number of times."""
    for left in reversed(range(_PLACEMENT_TRIES)):
        try:
            return attempt()
        except RandomizationError:
            if left == 0:
                raise
    raise ValueError(f"placement tries must be positive; got {_PLACEMENT_TRIES}")


def make(name: str, *, obstacle: bool, camera_size: int, wording: str) -> LiberoScene:
    """Build the scene; called by `scenes.contract.make_scene`."""
    return LiberoScene(name, obstacle=obstacle, camera_size=camera_size, wording=wording)
