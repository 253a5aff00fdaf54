"""From a head's prediction to actions: rows by their own decoders, and back into the robot's units.

Axes: b batch, h chunk step, d action dim, k level.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from lerobot.processor import PolicyAction, PolicyProcessorPipeline
from torch import Tensor

from lerobot_policy_quantile.core.decoders import Decoder, HandedOver, Handover, hand_over
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.heads import Prediction
from lerobot_policy_quantile.core.quantile_function import QuantileFunction


class Distribution(NamedTuple):
    """A chunk and the law it was decoded from, in the robot's action units."""

    actions: Float[Tensor, "b h d"]
    quantiles: Float[Tensor, "b h d k"] | None
    """Increasing along the last axis; None for heads that predict no distribution."""
    levels: Float[Tensor, " k"] | None


class DecodedChunk(NamedTuple):
    """A chunk, its law and the rank each action was read at; all but the ranks in the robot's action units."""

    actions: Float[Tensor, "b h d"]
    quantiles: Float[Tensor, "b h d k"] | None
    levels: Float[Tensor, " k"] | None
    ranks: Float[Tensor, "b h d"] | None
    surprises: list[float | None] | None = None
    """Per row, how far its left-over lay outside the law (`HandedOver.surprises`)."""


class Decision(NamedTuple):
    """A chunk in normalised units, what it was decoded from, and the ranks it was read at."""

    actions: Float[Tensor, "b h d"]
    prediction: Prediction
    ranks: Float[Tensor, "b h d"] | None = None
    surprises: list[float | None] | None = None


def decode_rows(
    law: QuantileFunction,
    episodes: Sequence[Episode],
    decoders: Sequence[Decoder],
    handovers: Sequence[Handover | None],
) -> HandedOver:
    """Every row by its own decoder, joined to its left-over; rows that share a decoder are decoded together."""
    if len(set(decoders)) == 1:
        return hand_over(decoders[0].decode(law, episodes), law, handovers, decoders[0])
    whole = HandedOver(*(law.quantiles.new_empty(law.shape) for _ in HandedOver._fields))
    for decoder in dict.fromkeys(decoders):
        rows = [row for row, own in enumerate(decoders) if own == decoder]
        part = decode_rows(
            law.rows(rows),
            [episodes[row] for row in rows],
            [decoder] * len(rows),
            [handovers[row] for row in rows],
        )
        for all_rows, piece in zip(whole, part, strict=True):
            all_rows[rows] = piece
    return whole


def in_action_units(
    decision: Decision,
    postprocessor: PolicyProcessorPipeline[PolicyAction, PolicyAction],
) -> DecodedChunk:
    """A normalised chunk and its law through the policy's own postprocessor, the one place that knows the units."""
    actions, prediction, ranks, surprises = decision
    law = prediction.quantiles
    if law is None:
        return DecodedChunk(postprocessor(actions), None, None, None)
    # Units are per action dimension, the last axis of what the postprocessor takes.
    quantiles = postprocessor(law.quantiles.transpose(-1, -2)).transpose(-1, -2)
    return DecodedChunk(postprocessor(actions), quantiles, law.levels.to(quantiles.device), ranks, surprises)
