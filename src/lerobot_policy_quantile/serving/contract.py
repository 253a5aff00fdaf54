"""What the server asks of a policy. The closed loop's records are the server's too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lerobot_policy_quantile.evaluation.contract import Observation, Prediction


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
    decoder: str = "own"
    context: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint and settings on which the actions depend."""
    grippers: tuple[int, ...] = ()
    """Action dimensions that open and close: their spread says nothing about the path."""


class Model(Protocol):
    """A policy that serves any number of episodes, in any company."""

    @property
    def spec(self) -> Spec:
        """What it reads and answers."""

    def begin(self, seed: int, decoder: str | None) -> Any:
        """The memory of a new episode; ValueError for a decoder it does not know. None is its own decoder."""

    def predict(self, observations: Sequence[Observation], memories: Sequence[Any]) -> Sequence[Prediction]:
        """The next chunk of each episode, computed together. Called in one thread only."""
