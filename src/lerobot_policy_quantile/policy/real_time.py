"""Real-time chunking as LeRobot asks for it: its arguments as handovers, its guidance for flow matching.

Axes: b batch, h chunk step, t left-over step, d action dim, m model action dim.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.rtc import RTCConfig, RTCProcessor
from lerobot.processor import NormalizerProcessorStep, create_transition
from torch import Tensor

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.decoders.handover import Handover, Schedule, without_padding
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.heads import Expert, FlowHead, Head, Prediction

RTC_HEADS = ("quantile", "flow")
"""Heads whose chunks can take over from the rest of the last one: a law to place it in, or a flow to bend."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RealTimeRequest:
    """The arguments with which LeRobot's RTC engine asks for a chunk."""

    inference_delay: int | None = None
    prev_chunk_left_over: Float[Tensor, "..."] | None = None
    execution_horizon: int | None = None

    def handovers(self, config: QuantileConfig, rows: int) -> list[Handover | None]:
        """One per row; none at the first chunk, where nothing is left over, and where `rtc_config` is disabled.

        LeRobot pads a short left-over with zeros, and its delay is the slowest answer so far: one slow first answer
        makes it longer than a chunk. Then all of the left-over is kept, and a warning says so.
        """
        settings = config.rtc_config or RTCConfig()
        if self.prev_chunk_left_over is None or not settings.enabled:
            return [None] * rows
        left, delay = self._left_over(rows, config.action_dim), int(self.inference_delay or 0)
        if delay >= config.chunk_size:
            _logger.warning(
                "inference_delay should be below chunk_size = %d; got %d: the old chunk is kept to its end",
                *(config.chunk_size, delay),
            )
            delay = config.chunk_size - 1
        schedule, horizon = relaxation(config)
        horizon = horizon if self.execution_horizon is None else self.execution_horizon
        return [handover_of(row, delay, schedule, horizon) for row in left.unbind()]

    def _left_over(self, rows: int, action_dim: int) -> Float[Tensor, "b t d"]:
        left = cast(Tensor, self.prev_chunk_left_over).detach().cpu().float()
        left = left[None] if left.ndim == 2 else left
        if left.ndim != 3 or left.shape[0] != rows or left.shape[2] != action_dim:
            raise ValueError(
                f"prev_chunk_left_over must have shape (t, {action_dim}) or ({rows}, t, {action_dim}): normalised"
                f" actions of this policy; got {tuple(cast(Tensor, self.prev_chunk_left_over).shape)}"
            )
        if not bool(torch.isfinite(left).all()):
            raise ValueError("prev_chunk_left_over must be finite; got NaN or infinity")
        return left


def relaxation(config: QuantileConfig) -> tuple[Schedule, int]:
    """Schedule and horizon: `rtc_config`'s; without one ours, over the whole chunk, for guidance LeRobot's."""
    if config.rtc_config is None and config.head != "flow":
        return "fade", config.chunk_size
    settings = config.rtc_config or RTCConfig()
    return cast(Schedule, settings.prefix_attention_schedule.value.lower()), settings.execution_horizon


def handover_of(left_over: Float[Tensor, "t d"], delay: int, schedule: Schedule, horizon: int) -> Handover | None:
    """A row's handover; None if nothing is left over."""
    left_over = without_padding(left_over)
    return Handover(left_over, delay, schedule, horizon) if len(left_over) else None


def normalised_handover(left_over: Any, delay: int, processor: Any, config: QuantileConfig) -> Handover | None:
    """The handover of left-over actions in the robot's units, by the processor's own normaliser of labels."""
    left = torch.as_tensor(left_over, dtype=torch.float32)
    if left.ndim != 2 or left.shape[1] != config.action_dim:
        raise ValueError(f"left_over must have shape (t, {config.action_dim}); got {tuple(left.shape)}")
    if not bool(torch.isfinite(left).all()):
        raise ValueError("left_over must be finite; got NaN or infinity")
    step = next(step for step in processor.steps if isinstance(step, NormalizerProcessorStep))
    normalised = step(create_transition(action=left))[TransitionKey.ACTION]
    return Handover(normalised.cpu(), delay, *relaxation(config)) if len(left) else None


def predict_towards(
    head: Head,
    expert: Expert,
    episodes: Sequence[Episode],
    handovers: Sequence[Handover | None],
    config: QuantileConfig,
) -> Prediction:
    """A head's prediction; flow matching is guided to the left-over actions, every other head predicts as ever."""
    if all(handover is None for handover in handovers):
        return head.predict(expert, episodes)
    if config.head not in RTC_HEADS:
        raise ValueError(
            f"prev_chunk_left_over needs head = {' or '.join(RTC_HEADS)}; this policy's is {config.head!r}, which"
            " predicts points: nothing says how far an old chunk fits them"
        )
    if not isinstance(head, FlowHead):
        return head.predict(expert, episodes)
    for handover in handovers:
        if handover is not None:
            handover.require_fits(config.chunk_size, config.action_dim)
    return head.predict(expert, episodes, LeRobotGuide(handovers, RTCProcessor(config.rtc_config or RTCConfig())))


@dataclass(frozen=True)
class LeRobotGuide:
    """LeRobot's RTC at every integration step; rows with the same delay and length of left-over together."""

    handovers: Sequence[Handover | None]
    processor: RTCProcessor

    def __call__(
        self, actions: Float[Tensor, "b h m"], noise_time: float, velocity: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "b h m"]:
        """The guided velocity."""
        guided = torch.empty_like(actions)
        for rows in self._groups():
            chosen = torch.tensor(rows, device=actions.device)

            def own(part: Tensor, chosen: Tensor = chosen) -> Tensor:
                return velocity(actions.index_copy(0, chosen, part))[chosen]

            guided[chosen] = self.processor.denoise_step(
                x_t=actions[chosen],
                **self._arguments(rows, actions),
                time=noise_time,
                original_denoise_step_partial=own,
            )
        return guided

    def _groups(self) -> list[list[int]]:
        groups: dict[Any, list[int]] = {}
        for row, handover in enumerate(self.handovers):
            kind = None if handover is None else (handover.steps, handover.delay, handover.horizon)
            groups.setdefault(kind, []).append(row)
        return list(groups.values())

    def _arguments(self, rows: Sequence[int], actions: Tensor) -> dict[str, Any]:
        chosen = [handover for row in rows if (handover := self.handovers[row]) is not None]
        if not chosen:
            return {"prev_chunk_left_over": None, "inference_delay": 0}
        left = torch.stack([handover.left_over[: actions.shape[1]] for handover in chosen])
        return {
            "prev_chunk_left_over": send(left, actions.device, actions.dtype),
            "inference_delay": chosen[0].delay,
            "execution_horizon": chosen[0].horizon,
        }
