"""A training step's view of its batch and of itself, without making the device wait.

Everything the host has to know of a batch (keys of its randomness, which labels are padding, whether they are finite)
comes in one copy, before the forward starts.

Axes: b batch, h chunk step, d action dim, t text token, w expert width.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_shape
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.calibration import interval_coverage, interval_width
from lerobot_policy_quantile.core.heads import Expert, Head, QuantileHead, direct_features
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.processor_quantile import require_finite_rows
from lerobot_policy_quantile.training_log import TrainingLog

LOGGED_MASSES = (0.5, 0.8, 0.95)
"""Central intervals whose coverage is logged in training, by the share of actions they should hold."""


@dataclass(frozen=True)
class Labels:
    """What a batch teaches, on the model's device, and what the host knows of it."""

    target: Float[Tensor, "b h d"]
    valid: Bool[Tensor, "b h d"]
    """True at real labels; `action_is_pad` marks steps beyond an episode's end."""
    valid_on_host: Bool[Tensor, "b h d"]
    text_on_host: Bool[Tensor, "b t"]
    frames: list[int]
    """Dataset frame of every sample; 0, 1, ... where the batch does not say."""
    run: int
    forward: int
    digests: list[int]
    """Of what the VLM reads of every sample, where they were asked for."""


def read_labels(
    batch: dict[str, Tensor],
    noise_key: Int[Tensor, "2"],
    sizes: tuple[int, int],
    digests: Int[Tensor, " b"] | None = None,
) -> Labels:
    """Chunks of `sizes` (steps, dimensions); one copy tells the host all it has to know. Bad labels are refused."""
    if ACTION not in batch:
        raise ValueError(f"{ACTION} is missing: training needs labels; got {sorted(batch)}")
    target = batch[ACTION].float()
    place, rows = target.device, len(target)
    require_shape(ACTION, target, (rows, *sizes))
    padding = batch.get(f"{ACTION}_is_pad")
    padding = torch.zeros(rows, sizes[0], dtype=torch.bool, device=place) if padding is None else padding.bool()
    require_shape(f"{ACTION}_is_pad", padding, (rows, sizes[0]))
    valid = ~padding[..., None].expand_as(target)
    finite = (torch.isfinite(target) | ~valid).all()
    index = batch["index"].flatten() if "index" in batch else torch.arange(rows)
    text = batch[OBS_LANGUAGE_ATTENTION_MASK]
    parts = [noise_key, index, padding, text, finite[None], digests if digests is not None else noise_key[:0]]
    flat = [send(part.flatten(), place, torch.int64) for part in parts]
    key, frames, pads, words, sound, digest = torch.split(torch.cat(flat).cpu(), [len(part) for part in flat])
    if not sound:
        require_finite_rows(ACTION, target, batch.get("index"), valid)
    run, forward = key.tolist()
    return Labels(
        target,
        valid,
        (pads == 0).view(rows, sizes[0], 1).expand(target.shape),
        (words != 0).view(text.shape),
        frames.tolist(),
        run,
        forward,
        digest.tolist(),
    )


class RecordingExpert:
    """An expert that remembers its last features, so that looking at them costs no second pass."""

    def __init__(self, expert: Expert) -> None:
        self._expert = expert
        self.features: Tensor = torch.empty(0)

    def __call__(self, actions: Float[Tensor, "b h m"], noise_time: Float[Tensor, " b"]) -> Float[Tensor, "b h w"]:
        """The expert's answer."""
        self.features = self._expert(actions, noise_time)
        return self.features

    def direct(self, queries: Float[Tensor, "b h m"]) -> Float[Tensor, "b h w"]:
        """The expert's answer to zero queries."""
        self.features = direct_features(self._expert, queries)
        return self.features


class PreciseExpert:
    """An expert that computes under `autocast` and answers in float32, the head's precision."""

    def __init__(self, expert: Expert, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self._expert, self._autocast = expert, autocast

    def __call__(self, actions: Float[Tensor, "b h m"], noise_time: Float[Tensor, " b"]) -> Float[Tensor, "b h w"]:
        """The expert's answer."""
        with self._autocast():
            return self._expert(actions, noise_time).float()

    def direct(self, queries: Float[Tensor, "b h m"]) -> Float[Tensor, "b h w"]:
        """The expert's answer to zero queries."""
        with self._autocast():
            return direct_features(self._expert, queries).float()


@torch.no_grad()
def training_log(head: Head, loss: Tensor, features: Float[Tensor, "b h w"], labels: Labels) -> TrainingLog:
    """The loss and how well the predicted intervals are calibrated; a NaN anywhere is found when it is read."""
    numbers = {"loss": loss.detach().mean(), **calibration(head, features, labels)}
    broken = torch.isnan(numbers["loss"]) + torch.isnan(features).sum()
    pending = torch.stack([number.float() for number in (*numbers.values(), broken)])
    return TrainingLog(dict.fromkeys(numbers, math.nan), pending=pending)


def calibration(head: Head, features: Float[Tensor, "b h w"], labels: Labels) -> dict[str, Float[Tensor, ""]]:
    """Coverage of the central intervals and the width of the 80 % one, in normalised units.

    The keys never depend on the batch: processes average them together. A batch of padding only has no coverage: NaN.
    """
    if not isinstance(head, QuantileHead) or head.supervise != "all":
        return {}
    names = [f"coverage_{round(100 * mass)}" for mass in LOGGED_MASSES]
    target, valid = labels.target, labels.valid
    if not bool(labels.valid_on_host.any()):
        return dict.fromkeys([*names, "width_80"], target.new_full((), torch.nan))
    with torch.autocast(target.device.type, enabled=False):
        law = QuantileFunction(head.host_levels, head.quantiles(features.detach()))
    covered = [interval_coverage(law, target, valid, mass) for mass in LOGGED_MASSES]
    return dict(zip(names, covered, strict=True)) | {"width_80": interval_width(law, valid, 0.8)}
