"""Decoders: from predicted quantiles to actions, by composition."""

from lerobot_policy_quantile.core.decoders.choice import Tracked, WhereChoice
from lerobot_policy_quantile.core.decoders.composition import Decoded, Decoder, PerChunk, PerStep
from lerobot_policy_quantile.core.decoders.copula import CopulaLatents, fit_copula
from lerobot_policy_quantile.core.decoders.handover import HandedOver, Handover, hand_over
from lerobot_policy_quantile.core.decoders.presets import PRESETS, Preset, canonical_text, parse_decoder
from lerobot_policy_quantile.core.decoders.rank_laws import (
    ChunkDraw,
    DensestInterval,
    DensityWeighted,
    Fixed,
    RankLaw,
    Window,
)

__all__ = [
    "PRESETS",
    "ChunkDraw",
    "CopulaLatents",
    "Decoded",
    "Decoder",
    "DensestInterval",
    "DensityWeighted",
    "Fixed",
    "HandedOver",
    "Handover",
    "PerChunk",
    "PerStep",
    "Preset",
    "RankLaw",
    "Tracked",
    "WhereChoice",
    "Window",
    "canonical_text",
    "fit_copula",
    "hand_over",
    "parse_decoder",
]
