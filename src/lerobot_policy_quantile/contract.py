"""The records and interfaces that closed loop, policy server and adapters share.

A `World` is what can be acted in, a `Policy` what acts in it, a `Model` what a server answers with.

Axes: h chunk step, d action dim, k level; y and x are pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from lerobot_policy_quantile.util.names import require_choice

Array = NDArray[Any]
OWN_DECODER = "own"
"""The decoder a policy was saved with, or none at all: policies that know no decoders."""

CAMERA_KEYS = {"external": "observation.images.image", "wrist": "observation.images.image2"}
"""A world's cameras -> the features they are in LeRobot's LIBERO datasets."""

WIRE_NAMES = {"external": "observation/image", "wrist": "observation/wrist_image"}
"""A world's cameras -> what openpi's LIBERO client calls them."""

Images = Mapping[str, UInt8[Array, "y x 3"]]


class World(Protocol):
    """A simulated world, as `scenes` makes them."""

    @property
    def control_hz(self) -> int:
        """Control steps per simulated second."""

    @property
    def instruction(self) -> str:
        """What the robot is told to do in the current task."""

    @property
    def limit(self) -> int:
        """Steps after which an episode has failed, unless a plan says otherwise."""

    @property
    def camera_size(self) -> int:
        """Pixels of the square pictures."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Simulator, assets and settings that the physics or the pictures depend on."""

    def reset(self, task: int, index: int, seed: int) -> None:
        """Begin the episode of a key."""

    def step(self, action: Float[Array, " d"], *, observe: bool = False) -> None:
        """One control step; with `observe` the frames after it will be asked for."""

    def frames(self) -> Images:
        """Pictures of the current moment."""

    def state(self) -> Float[Array, " s"]:
        """The robot's state at the current moment."""

    def success(self) -> bool:
        """Whether the task is solved now."""

    def contacts(self) -> int:
        """Touches of the obstacle in the last step."""

    def simulator_state(self) -> Float[Array, " n"]:
        """All of the simulator's state, flat."""

    def close(self) -> None:
        """Free what the simulator holds."""


@runtime_checkable
class NotingWorld(Protocol):
    """A world that keeps more of an episode than robot states and contacts."""

    def notes(self) -> Mapping[str, Array]:
        """What it noted since the last reset, for the episode's side file."""


Handing = Literal["pause", "swap", "ensemble", "rank", "rtc"]
HANDINGS: tuple[Handing, ...] = get_args(Handing)
"""How a new chunk takes over from the old one where inference takes time (`evaluation.real_time`)."""


@dataclass(frozen=True)
class RealTime:
    """That answers take time, in steps, and what the robot does meanwhile and afterwards."""

    delay: int
    handover: Handing

    def __post_init__(self) -> None:
        require_choice("handover", self.handover, HANDINGS)
        if self.delay < 0:
            raise ValueError(f"delay must be 0 or more steps; got {self.delay}")


@dataclass(frozen=True)
class LeftOver:
    """What is left of the chunk being executed, from the step of the observation on, in the robot's action units."""

    actions: Float[Array, "t d"]
    delay: int
    """Steps of it that will have been executed when the answer is there."""


@dataclass(frozen=True)
class Observation:
    """What a policy sees. `images` is empty for a policy that looks at none."""

    images: Images
    state: Float[Array, " s"]
    instruction: str
    left_over: LeftOver | None = None
    """None at the first chunk, and for a policy that begins every chunk anew."""


class RawChunk(NamedTuple):
    """What a policy computed, not yet judged: it may hold numbers that no robot should see."""

    actions: Float[Array, "h d"]
    quantiles: Float[Array, "h d k"] | None = None
    ranks: Float[Array, "h d"] | None = None
    """At which rank of its law each action was read."""
    surprise: float | None = None
    """How far the left-over of the observation lies outside the law, in widths of it; None without either."""
    bounds: Float[Array, "h d 2"] | None = None
    """Lower and upper conformal bound of every action."""


@dataclass(frozen=True)
class Chunk:
    """A policy's answer: the next actions and, if it has one, the law they were decoded from."""

    actions: Float[Array, "h d"]
    quantiles: Float[Array, "h d k"] | None = None
    surprise: float | None = None
    """As in `RawChunk`."""
    stop: bool = False
    """The episode shall end before any of these actions."""
    alarm: bool | None = None
    """Whether the alarm that watches the episode is on; None where none does."""

    def __post_init__(self) -> None:
        if self.actions.ndim != 2 or not len(self.actions):
            raise ValueError(f"actions must have axes (h, d) and at least one step; got shape {self.actions.shape}")
        if not np.isfinite(self.actions).all():
            raise ValueError(f"actions must be finite; got {self.actions.tolist()}")


class Policy(Protocol):
    """Anything that answers observations with chunks.

    What an episode remembers or draws lives in the memory that `begin` returns and is handed back with every
    observation: a policy object serves any number of episodes in any order.
    """

    @property
    def n_action_steps(self) -> int:
        """Actions of a chunk that are executed before the next query."""

    @property
    def needs_images(self) -> bool:
        """False spares the rendering."""

    @property
    def context(self) -> Mapping[str, str]:
        """Fingerprint and settings on which the actions depend."""

    def begin(self, seed: int, world: World, decoder: str) -> Any:
        """The memory of a new episode, whose chunks are decoded by `decoder` (`OWN_DECODER`: the policy's own).

        Only a scripted expert looks at the world. `UnusablePolicyError` for a decoder the policy cannot answer with.
        """

    def act(self, observations: Sequence[Observation], memories: Sequence[Any]) -> Sequence[Chunk]:
        """The next chunk of each episode."""

    def close(self) -> None:
        """Free the model or the connection; the policy is not asked again."""


@runtime_checkable
class DelayedPolicy(Protocol):
    """A policy whose answers take time in the closed loop."""

    @property
    def real_time(self) -> RealTime:
        """How long they take, and what is executed meanwhile."""

    @property
    def grippers(self) -> tuple[int, ...]:
        """Action dimensions that stay as they are while the robot stands still."""


class UnusablePolicyError(ValueError):
    """A policy that cannot be loaded or cannot answer with a decoder, now or at the next attempt."""


class Factory(Protocol):
    """Makes worlds and policies by the names in a key. It is sent to worker processes: it must pickle."""

    def world(self, scene: str) -> World:
        """A world of that name."""

    def policy(self, policy: str) -> Policy:
        """The policy of that name, for any decoder; `UnusablePolicyError` if there can be none."""


@runtime_checkable
class DescribingFactory(Protocol):
    """A factory that can say what a policy's context would be, without loading the policy."""

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """As the policy itself would say; None where nobody can say it now: a server is off, a folder is gone."""


class PromptLimit(NamedTuple):
    """How long an instruction may be, in the policy's tokens."""

    most: int
    tokens: Callable[[str], int]
    """Tokens that an instruction takes."""


@dataclass(frozen=True)
class Spec:
    """What a policy reads and answers: requests are held against it before they cost anything."""

    cameras: tuple[str, ...]
    """Names on the wire; an observation's images carry the same names."""
    state_dim: int
    action_dim: int
    chunk_size: int
    n_action_steps: int
    levels: tuple[float, ...] = ()
    """Empty for a policy without quantiles."""
    decoder: str = OWN_DECODER
    context: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint and settings on which the actions depend."""
    grippers: tuple[int, ...] = ()
    """Action dimensions that open and close: their spread says nothing about the path."""
    bounds: float | None = None
    """Mass of the conformal bounds in its chunks; None: it has none."""
    prompt_limit: PromptLimit | None = None
    """None for a policy that reads instructions of any length."""
    left_over_bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Smallest and largest value of every coordinate of a left-over; None for a policy that takes none."""


class Model(Protocol):
    """A policy that serves any number of episodes, in any company."""

    @property
    def spec(self) -> Spec:
        """What it reads and answers."""

    def begin(self, seed: int, decoder: str | None) -> Any:
        """The memory of a new episode; ValueError for a decoder it cannot answer with. None is its own decoder."""

    def predict(self, observations: Sequence[Observation], memories: Sequence[Any]) -> Sequence[RawChunk]:
        """The next chunk of each episode, computed together. Called in one thread only.

        If it raises, every memory is as it was before: the rows can then be computed one by one.
        """
