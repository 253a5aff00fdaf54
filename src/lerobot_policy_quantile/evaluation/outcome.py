"""What came of one attempt at an episode: the record that goes into the journal."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from lerobot_policy_quantile.evaluation.plan import EpisodeKey

Status = Literal["success", "failure", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Outcome:
    """Success or failure as the world's flag says; error when no such flag could be had."""

    key: EpisodeKey
    status: Status
    steps: int = 0
    control_hz: int = 20
    wall_seconds: float = 0.0
    first_action: tuple[float, ...] | None = None
    contacts: int = 0
    """Physics substeps in which something touched the obstacle, over the whole episode."""
    final_state: tuple[float, ...] | None = None
    scene_context: dict[str, str] = field(default_factory=dict)
    """Versions, asset hash and settings of the world. One journal holds one such context per scene."""
    policy_context: dict[str, str] = field(default_factory=dict)
    """Fingerprint and settings of the policy. One journal holds one such context per policy."""
    hashes: dict[str, str] = field(default_factory=dict)
    """Of the actions taken and of the simulator's last state, to compare episodes without their side files."""
    traceback: str | None = None
    side_error: str | None = None
    """Why the side files are missing; the result stands without them."""
    side_files: dict[str, str] = field(default_factory=dict)
    """Suffix -> digest of the content of the side files that were written."""
    hopeless: str | None = None
    """Why no further episode can be run either. It ends the run and is not written down."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}; got {self.status!r}")
        if (self.status == "error") != (self.traceback is not None):
            raise ValueError(f"traceback must be given for an error and for nothing else; got status {self.status!r}")

    @property
    def simulated_seconds(self) -> float:
        """The robot's time: steps at the control rate."""
        return self.steps / self.control_hz
