"""Rank handover: a new chunk that begins where the rest of the old one leads, inside what it predicts itself.

Axes: b batch, h chunk step, t left-over step, d action dim, k level. Not in the paper: ours.
The old chunk's remaining actions have ranks under the new law. The new chunk starts at these ranks and relaxes to the
decoder's own. One pass, no gradient; any decoder, the deterministic ones included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lerobot_policy_quantile.core._checks import require_choice, require_no_nan
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.decoders.composition import Decoded, Decoder
from lerobot_policy_quantile.core.quantile_function import SMALLEST_GAP, QuantileFunction

Schedule = Literal["fade", "zeros", "ones", "linear", "exp"]
LEROBOT_SCHEDULES: tuple[Schedule, ...] = ("zeros", "ones", "linear", "exp")
SCHEDULES: tuple[Schedule, ...] = ("fade", *LEROBOT_SCHEDULES)

FADE_FROM, FADE = 0.95, 0.15
"""Weight of the left-over in the first step after the delay, and what is left of a weight one step later. LeRobot's
schedules are made for chunks of fifty steps; in chunks of ten they hold on to the old plan for too long."""

FADE_TEXT = f"{FADE_FROM:g} x {FADE:g}^i"
"""How journals name it: episodes under another fade are others."""

FARTHEST = 20.0
"""Normalised actions beyond this belong to another action space: q01 and q99 of the data are at -1 and 1."""


@dataclass(frozen=True, eq=False)
class Handover:
    """The rest of the chunk that an episode is executing, and how the next chunk takes over from it.

    left_over  normalised actions from the step of the observation on; rows beyond the chunk are ignored
    delay      steps that will have been executed when the new chunk is ready: these are kept as they are
    schedule   weight of the left-over after the delay: ours, or one of LeRobot's RTC
    horizon    the step at which the weight has reached zero, at most the chunk's length
    """

    left_over: Float[Tensor, "t d"]
    delay: int = 0
    schedule: Schedule = "fade"
    horizon: int = 10

    def __post_init__(self) -> None:
        require_choice("schedule", self.schedule, SCHEDULES)
        if self.left_over.ndim != 2 or not self.left_over.shape[0]:
            raise ValueError(
                f"left_over must have axes (t, d) and at least one step; got shape {tuple(self.left_over.shape)}"
            )
        require_no_nan("left_over", self.left_over)
        if not (self.left_over.abs() <= FARTHEST).all():
            raise ValueError(
                f"left_over must be normalised actions of this policy, within +-{FARTHEST:g};"
                f" got {float(self.left_over.abs().max()):.6g}: were they made for another action space?"
            )
        for field in ("delay", "horizon"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be 0 or more steps; got {getattr(self, field)}")

    @property
    def steps(self) -> int:
        """Steps of the left-over."""
        return len(self.left_over)

    def require_fits(self, chunk_size: int, action_dim: int) -> None:
        """Refuse a left-over of another action space and a delay that leaves nothing of the new chunk."""
        if self.left_over.shape[1] != action_dim:
            raise ValueError(
                f"left_over must have this policy's {action_dim} action dimensions; got {self.left_over.shape[1]}"
            )
        if self.delay >= chunk_size:
            raise ValueError(f"delay must lie in 0..{chunk_size - 1}, inside the chunk; got {self.delay}")

    def weights(self, chunk_size: int) -> Float[Tensor, " h"]:
        """w_h: 1 before the delay, then the schedule down to the horizon, 0 from there on."""
        return handover_weights(self.schedule, self.delay, min(self.horizon, chunk_size), chunk_size)


def without_padding(left_over: Float[Tensor, "t d"]) -> Float[Tensor, "u d"]:
    """The rows up to the last one that is not all zeros: LeRobot fills a short left-over up with rows of zeros."""
    used = left_over.ne(0).any(-1).nonzero()
    return left_over[: int(used[-1]) + 1] if len(used) else left_over[:0]


class HandedOver(NamedTuple):
    """A chunk that continues the old one."""

    actions: Float[Tensor, "b h d"]
    ranks: Float[Tensor, "b h d"]
    """Of the actions; frozen steps that lie outside the law have the nearest learned level."""
    surprise: Float[Tensor, "b h d"]
    """How far the left-over lies outside the new law, in widths of its central interval; 0 without a left-over."""

    def surprises(self, handovers: Sequence[Handover | None], motion: Sequence[int]) -> list[float | None]:
        """Of every row one number, the mean over its left-over's steps and the motion coordinates; None without one."""
        return [
            None if handover is None else float(row[: handover.steps, list(motion)].mean())
            for row, handover in zip(self.surprise, handovers, strict=True)
        ]


def handover_weights(schedule: Schedule, start: int, end: int, total: int) -> Float[Tensor, " h"]:
    """LeRobot's prefix weights: ones up to `start`, zeros from `end` on, the schedule between them.

    A linear ramp ends one step before it would touch 1 or 0; the exponential one is w (e^w - 1) / (e - 1). Ours,
    `fade`, is 0.95 x 0.15^i in the i-th step from `start` on: a small seam, soon forgotten.
    """
    start = min(start, end)
    step = torch.arange(total, dtype=torch.float32)
    if schedule == "zeros":
        return (step < start).float()
    if schedule == "ones":
        return (step < end).float()
    if schedule == "fade":
        return torch.where(step < start, 1.0, torch.where(step < end, FADE_FROM * FADE ** (step - start), 0.0))
    ramp = (end - step) / (end - start + 1)
    if schedule == "exp":
        ramp = ramp * torch.expm1(ramp) / torch.expm1(torch.tensor(1.0))
    return torch.where(step < start, 1.0, torch.where(step < end, ramp, 0.0))


def hand_over(
    decoded: Decoded, law: QuantileFunction, handovers: Sequence[Handover | None], decoder: Decoder
) -> HandedOver:
    """The decoder's chunk, joined to the left-over actions of every row that has some.

    Steps before the delay are the left-over, exactly. After them the rank is r + w (F(a) - r), r the decoder's own and
    F(a) the left-over's, which is clipped to the learned levels, or to r where the decoder itself goes farther out.
    Beyond the end of the left-over F(a) - r is carried on, so that a short rest relaxes over the horizon all the same.
    A gripper keeps the decoder's rule. Only where that would take it across the middle of its range while the left-over
    is on the other side, it stays with the left-over, unless every learned quantile lies across.
    """
    batch, _, action_dim = law.shape
    if len(handovers) != batch:
        raise ValueError(f"handovers must match the batch, {batch} rows; got {len(handovers)}")
    left, known, frozen, weight = _in_rows(handovers, law)
    low, high = law.quantiles[..., 0], law.quantiles[..., -1]
    outside = (torch.maximum(low - left, left - high) / (high - low).clamp_min(SMALLEST_GAP)).clamp_min(0)
    surprise = torch.where(known[..., None], outside, 0.0)
    if all(handover is None for handover in handovers):
        return HandedOver(decoded.actions, decoded.ranks, surprise)

    own = decoded.ranks
    bottom, top = torch.minimum(own, law.levels[0]), torch.maximum(own, law.levels[-1])
    theirs = decoder.rank_of(law, left).clamp(bottom, top)
    last = (known.sum(1) - 1).clamp_min(0)
    offset = theirs - own
    carried = offset.gather(1, last[:, None, None].expand(-1, 1, action_dim))
    offset = torch.where(known[..., None], offset, carried)
    moved = torch.maximum(torch.minimum(own + weight[..., None] * offset, top), bottom)
    ranks = torch.where(weight[..., None] > 0, moved, own)

    grippers = decoder.gripper_indices(action_dim)
    held = _held_back(decoded.actions, left, low, high) & (known & (weight > 0))[..., None]
    ranks[..., grippers] = torch.where(held, theirs, own)[..., grippers]

    changed = frozen | (weight > 0)
    actions = torch.where(changed[..., None], decoder.read(law, ranks), decoded.actions)
    actions = torch.where(frozen[..., None], left, actions)
    return HandedOver(actions, torch.where(frozen[..., None], theirs, ranks), surprise)


def _held_back(
    own: Float[Tensor, "b h d"],
    left: Float[Tensor, "b h d"],
    low: Float[Tensor, "b h d"],
    high: Float[Tensor, "b h d"],
) -> Bool[Tensor, "b h d"]:
    """Where decoder and left-over lie on two sides of zero, the middle of the range, and the law is not sure of it."""
    crossing = (own >= 0) != (left >= 0)
    sure = torch.where(left >= 0, high < 0, low >= 0)
    return crossing & ~sure


def _in_rows(
    handovers: Sequence[Handover | None], law: QuantileFunction
) -> tuple[Float[Tensor, "b h d"], Bool[Tensor, "b h"], Bool[Tensor, "b h"], Float[Tensor, "b h"]]:
    """Left-over actions, where there are any, which of them are frozen, and their weights, for all rows at once."""
    batch, chunk_size, action_dim = law.shape
    device, dtype = law.quantiles.device, law.quantiles.dtype
    left = law.quantiles.new_zeros(batch, chunk_size, action_dim)
    steps, delay, weight = torch.zeros(batch, 1), torch.zeros(batch, 1), torch.zeros(batch, chunk_size)
    for row, handover in enumerate(handovers):
        if handover is None:
            continue
        handover.require_fits(chunk_size, action_dim)
        kept = handover.left_over[:chunk_size]
        left[row, : len(kept)] = send(kept, device, dtype)
        steps[row], delay[row] = len(kept), handover.delay
        weight[row] = handover.weights(chunk_size)
    known = torch.arange(chunk_size) < steps
    frozen = known & (torch.arange(chunk_size) < delay)
    return left, send(known, device), send(frozen, device), send(weight, device, dtype)
