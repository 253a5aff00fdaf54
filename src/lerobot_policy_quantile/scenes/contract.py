"""What every simulated world promises, and the registry that makes one by name.

Deterministic by key: the same scene, task, index, seed and actions give bit-identical states and frames, in one
process and across processes. Frames are made on demand: `step(action, observe=True)` says that the frames after this
step will be asked for, and they are bit-identical to those of a scene that renders on every step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt8

from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.scenes.libero.wording import TASK, require_wording
from lerobot_policy_quantile.util.names import nearest

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
"""One picture per camera, the right way up."""


@dataclass(frozen=True)
class Layout:
    """Where things are, in world coordinates (metres): what a scripted expert may know and a policy may not."""

    object: Float[Array, "3"]  # the thing to be moved; its name is in `object_kind`
    object_kind: str
    goal: Float[Array, "3"]  # the middle of where it shall be put
    ground: float  # height of the surface the object stands on
    obstacle: Float[Array, "3"] | None  # the box's centre, None in a free scene


class Scene(ABC):
    """One simulated world. Call `reset` first; every other method speaks of the current moment."""

    action_dim: ClassVar[int] = ACTION_DIM
    state_dim: ClassVar[int] = STATE_DIM
    control_hz: ClassVar[int] = CONTROL_HZ
    cameras: ClassVar[tuple[str, ...]] = tuple(CAMERA_KEYS)

    name: str
    camera_size: int  # pixels, height = width
    obstacle: bool
    task_count: int
    limit: int  # steps after which an episode has failed, unless a plan says otherwise
    instruction: str  # of the current task
    versions: dict[str, str]  # mujoco, robosuite, what the assets were

    @abstractmethod
    def state_count(self, task: int) -> int:
        """How many initial states the task has; indices run from 0."""

    @abstractmethod
    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key. Frames of the start can be asked for."""

    @abstractmethod
    def step(self, action: Float[Array, "7"], *, observe: bool = False) -> None:
        """One control step (1/20 s). Cameras are rendered only with `observe`."""

    @abstractmethod
    def frames(self) -> Frames:
        """The pictures a policy sees now; only after `reset` or a step with `observe`."""

    @abstractmethod
    def state(self) -> Float[Array, "8"]:
        """The robot state a policy sees now, sampled at the same instant as the frames."""

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
        """Positions that only a scripted expert may know."""

    @abstractmethod
    def close(self) -> None:
        """Free the simulator and its renderer; twice is once."""


def require_action(action: Float[Array, "7"]) -> Float[Array, "7"]:
    """Refuse an action of another shape, or one that is not finite, before it reaches the simulator."""
    values = np.asarray(action, dtype=np.float64)
    if values.shape != (ACTION_DIM,):
        raise ValueError(f"action must have shape ({ACTION_DIM},); got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"action must be finite; got {values.tolist()}")
    return values


def require_index(field: str, value: int, count: int) -> None:
    """Refuse a task or an initial state that does not exist."""
    if not 0 <= value < count:
        raise ValueError(f"{field} must lie in 0..{count - 1}; got {value}")


_SCENES = {
    "embedded": "lerobot_policy_quantile.scenes.embedded",
    "libero_spatial": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_object": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_goal": "lerobot_policy_quantile.scenes.libero.suites",
    "libero_10": "lerobot_policy_quantile.scenes.libero.suites",
}
"""Name -> the module whose `make(name, obstacle=, camera_size=)` builds it; imported when first asked for. LIBERO's
scenes take a `wording`, too; the embedded scene has one instruction per task."""


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
    """Build a scene by name; a near miss in spelling is named in the error."""
    require_wording(wording)
    modules = {**_SCENES, **{n: m for n in perturbed_scene_names() for p, m in _PERTURBED.items() if n.startswith(p)}}
    if name not in modules:
        raise ValueError(f"scene must be one of {', '.join(modules)}; got {name!r}{nearest(name, modules)}")
    if camera_size < 1:
        raise ValueError(f"camera_size must be at least 1 pixel; got {camera_size}")
    make: Callable[..., Scene] = import_module(modules[name]).make
    spoken = {"wording": wording} if name.startswith("libero_") else {}
    return make(name, obstacle=obstacle, camera_size=camera_size, **spoken)
