"""A training step's view of its batch and of itself, without making the device wait.

Everything the host has to know of a batch (keys of its randomness, which labels are padding, whether they are finite)
comes in one copy, before the forward starts.

Axes: b batch, h chunk step, d action dim, t text token, w expert width.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
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
from lerobot_policy_quantile.policy.training_log import TrainingLog
from lerobot_policy_quantile.processor_quantile import require_finite_rows

LOGGED_MASSES = (0.5, 0.8, 0.95)
"""Central intervals whose coverage is logged in training, by the share of actions they should hold."""
LOGGED_WIDTH = 0.8
"""The one whose width is logged."""


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

    def rows(self, start: int, stop: int) -> "Labels":
        """Those of some samples; nothing is read again."""
        part = slice(start, stop)
        names = ("target", "valid", "valid_on_host", "text_on_host", "frames", "digests")
        return replace(self, **{name: getattr(self, name)[part] for name in names})


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
def measured(
    head: Head, loss: Float[Tensor, "..."], features: Float[Tensor, "b h w"], labels: Labels
) -> Float[Tensor, " n"]:
    """The loss, how well the predicted intervals are calibrated, and how many values are NaN: one tensor, not read yet.

    Coverage of the central intervals and the width of the 80 % one are in normalised units. Which numbers there are
    never depends on the batch: processes average them together. A batch of padding only has no coverage: NaN.
    """
    mean = loss.detach().mean().float()
    broken = torch.isnan(mean) + torch.isnan(features).sum()
    numbers = [mean.new_full((), torch.nan)] * (len(logged_names(head)) - 1)
    if isinstance(head, QuantileHead) and numbers and bool(labels.valid_on_host.any()):
        with torch.autocast(mean.device.type, enabled=False):
            law = QuantileFunction(head.host_levels, head.quantiles(features.detach()))
        numbers = [interval_coverage(law, labels.target, labels.valid, mass) for mass in LOGGED_MASSES]
        numbers.append(interval_width(law, labels.valid, LOGGED_WIDTH))
    return torch.stack([mean, *(number.float() for number in numbers), broken.float()])


def logged_names(head: Head) -> list[str]:
    """Of the numbers that `measured` gives, its count of NaN left out."""
    if not isinstance(head, QuantileHead) or head.supervise != "all":
        return ["loss"]
    covered = [f"coverage_{round(100 * mass)}" for mass in LOGGED_MASSES]
    return ["loss", *covered, f"width_{round(100 * LOGGED_WIDTH)}"]


def training_log(head: Head, numbers: Float[Tensor, " n"]) -> TrainingLog:
    """What `measured` gave, by name."""
    return TrainingLog(dict.fromkeys(logged_names(head), math.nan), pending=numbers)
