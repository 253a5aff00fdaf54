"""Decoders: from predicted quantiles to actions, by composition."""

from lerobot_policy_quantile.core.decoders.composition import Decoded, Decoder, PerChunk, PerStep
from lerobot_policy_quantile.core.decoders.presets import PRESETS, Preset, canonical_text, parse_decoder
from lerobot_policy_quantile.core.decoders.rank_laws import (
    DensestInterval,
    DensityWeighted,
    Fixed,
    RankLaw,
    Window,
)

__all__ = [
    "PRESETS",
    "Decoded",
    "Decoder",
    "DensestInterval",
    "DensityWeighted",
    "Fixed",
    "PerChunk",
    "PerStep",
    "Preset",
    "RankLaw",
    "Window",
    "canonical_text",
    "parse_decoder",
]
