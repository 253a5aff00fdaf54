"""The interface of every simulated scene, and the registry that builds one by name.

Deterministic by key: the same scene, task, index, seed and actions give bit-identical states and frames, in one
process and across processes. Frames are rendered on demand: only `step(action, observe=True)` renders the frames after
this step, and they are bit-identical to those of a scene that renders on every step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt8

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.libero.wording import require_wording
from lerobot_policy_quantile.util.names import nearest
from lerobot_policy_quantile.util.wording import TASK

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
else:
    Array = np.ndarray

ACTION_DIM = 7
"""Position (3), axis-angle (3), gripper (1: -1 opens, +1 closes); all in [-1, 1]."""

STATE_DIM = 8
"""End effector position (3), axis-angle (3), gripper joints (2)."""

CONTROL_HZ = 20

Frames = dict[str, UInt8[Array, "y x 3"]]
"""One upright image per camera."""


@dataclass(frozen=True)
class Layout:
    """Positions in world coordinates (metres): privileged information for scripted experts, hidden from policies."""

    object: Float[Array, "3"]  # the object to be moved; its name is in `object_kind`
    object_kind: str
    goal: Float[Array, "3"]  # centre of its goal
    ground: float  # height of the surface the object stands on
    obstacle: Float[Array, "3"] | None  # the obstacle's centre; None without one


class Scene(ABC):
    """One simulated scene. Call `reset` first; every other method refers to the current time step."""

    action_dim: ClassVar[int] = ACTION_DIM
    state_dim: ClassVar[int] = STATE_DIM
    control_hz: ClassVar[int] = CONTROL_HZ
    cameras: ClassVar[tuple[str, ...]] = tuple(CAMERA_KEYS)

    name: str
    camera_size: int  # pixels, height = width
    obstacle: bool
    task_count: int
    limit: int  # steps after which an episode has failed, unless a plan sets another limit
    instruction: str  # of the current task
    versions: dict[str, str]  # of mujoco, robosuite and the assets

    @abstractmethod
    def state_count(self, task: int) -> int:
        """How many initial states the task has; indices run from 0."""

    @abstractmethod
    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key. The frames of the start are available."""

    @abstractmethod
    def step(self, action: Float[Array, "7"], *, observe: bool = False) -> None:
        """One control step (1/20 s). Cameras are rendered only with `observe`."""

    @abstractmethod
    def frames(self) -> Frames:
        """The current camera images; only after `reset` or a step with `observe`."""

    @abstractmethod
    def state(self) -> Float[Array, "8"]:
        """The current robot state, sampled at the same instant as the frames."""

    @abstractmethod
    def success(self) -> bool:
        """Whether the task is solved now."""

    @abstractmethod
    def contacts(self) -> int:
        """Physics substeps of the last control step in which anything touched the obstacle."""

    @abstractmethod
    def simulator_state(self) -> Float[Array, "n"]:
        """Time, positions and velocities of everything, for equality checks."""

    @abstractmethod
    def layout(self) -> Layout:
        """Privileged positions for scripted experts."""

    @abstractmethod
    def close(self) -> None:
        """Free the simulator and its renderer, if they are open."""


def require_action(action: Float[Array, "7"]) -> Float[Array, "7"]:
    """Raise ValueError for an action of another shape or with values that are not finite."""
    values = np.asarray(action, dtype=np.float64)
    if values.shape != (ACTION_DIM,):
        raise ValueError(f"action must have shape ({ACTION_DIM},); got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"action must be finite; got {values.tolist()}")
    return values


def require_index(field: str, value: int, count: int) -> None:
    """Raise ValueError for a task or an initial state that does not exist."""
    if not 0 <= value < count:
        raise ValueError(f"{field} must lie in 0..{count - 1}; got {value}")


_SCENES = {
    "embedded": "lerobot_policy_quantile.scenes.embedded",
    "libero_spatial": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_object": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_goal": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_10": "lerobot_policy_quantile.scenes.libero.suites",
}
"""Name -> the module whose `make(name, obstacle=, camera_size=)` builds it; imported on first use. LIBERO's
scenes also take a `wording`; the embedded scene has one instruction per task."""


_PERTURBED = {
    "libero_plus_": "lerobot_policy_quantile.scenes.libero.plus",
    "libero_pro_": "lerobot_policy_quantile.scenes.libero.pro",
}
"""The same for families of scenes made from the LIBERO suites, by the beginning of their names."""

_SUITES = ("spatial", "object", "goal", "10")
_PERTURBATIONS = ("original", "object", "position", "semantic", "task", "environment")


def perturbed_scene_names() -> tuple[str, ...]:
    """LIBERO-Plus's four scenes and LIBERO-Pro's four times six."""
    plus = (f"libero_plus_{suite}" for suite in _SUITES)
    return (*plus, *(f"libero_pro_{suite}_{kind}" for suite in _SUITES for kind in _PERTURBATIONS))


def scene_names() -> tuple[str, ...]:
    """Every scene that `make_scene` knows, but for `perturbed_scene_names`."""
    return tuple(_SCENES)


def make_scene(name: str, *, obstacle: bool = False, camera_size: int = 256, wording: str = TASK) -> Scene:
    """Build a scene by name; the error for an unknown name suggests the nearest one."""
    require_wording(wording)
    modules = {**_SCENES, **{n: m for n in perturbed_scene_names() for p, m in _PERTURBED.items() if n.startswith(p)}}
    if name not in modules:
        raise ValueError(f"scene must be one of {', '.join(modules)}; got {name!r}{nearest(name, modules)}")
    if camera_size < 1:
        raise ValueError(f"camera_size must be at least 1 pixel; got {camera_size}")
    make: Callable[..., Scene] = import_module(modules[name]).make
    spoken = {"wording": wording} if name.startswith("libero_") else {}
    return make(name, obstacle=obstacle, camera_size=camera_size, **spoken)
