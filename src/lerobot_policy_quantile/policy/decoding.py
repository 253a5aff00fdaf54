"""From a head's prediction to actions: rows by their own decoders, and back into the robot's units.

Axes: b batch, h chunk step, d action dim, k level.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from lerobot.processor import PolicyAction, PolicyProcessorPipeline
from torch import Tensor

from lerobot_policy_quantile.core.decoders import Decoded, Decoder
from lerobot_policy_quantile.core.episode import Episode
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


def decode_rows(law: QuantileFunction, episodes: Sequence[Episode], decoders: Sequence[Decoder]) -> Decoded:
    """Every row by its own decoder; rows that share one are decoded together."""
    if len(set(decoders)) == 1:
        return decoders[0].decode(law, episodes)
    decoded = Decoded(law.quantiles.new_empty(law.shape), law.quantiles.new_empty(law.shape))
    for decoder in dict.fromkeys(decoders):
        rows = [row for row, own in enumerate(decoders) if own == decoder]
        part = decoder.decode(law.rows(rows), [episodes[row] for row in rows])
        for whole, piece in zip(decoded, part, strict=True):
            whole[rows] = piece
    return decoded


def in_action_units(
    actions: Float[Tensor, "b h d"],
    law: QuantileFunction | None,
    ranks: Float[Tensor, "b h d"] | None,
    postprocessor: PolicyProcessorPipeline[PolicyAction, PolicyAction],
) -> DecodedChunk:
    """A normalised chunk and its law through the policy's own postprocessor, the one place that knows the units."""
    if law is None:
        return DecodedChunk(postprocessor(actions), None, None, None)
    # Units are per action dimension, the last axis of what the postprocessor takes.
    quantiles = postprocessor(law.quantiles.transpose(-1, -2)).transpose(-1, -2)
    return DecodedChunk(postprocessor(actions), quantiles, law.levels.to(quantiles.device), ranks)
