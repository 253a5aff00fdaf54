"""Who sees whom, and one pass of a tower with the keys and values of what came before.

Axes: b batch, s prefix token, p prompt, h action token, q query token, c context token.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from lerobot.policies.common.vla_utils import prepare_attention_masks_4d
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class KeyValue(NamedTuple):
    """Rotated keys and values of one layer."""

    keys: Float[Tensor, "b kv s e"]
    values: Float[Tensor, "b kv s e"]


@dataclass(frozen=True)
class Prefix:
    """What the VLM says about an observation: all that the expert ever reads of it."""

    layers: tuple[KeyValue, ...]
    valid: Bool[Tensor, "b s"]
    pooled: Float[Tensor, "b v"]
    """Mean of the last layer's features over the valid tokens."""
    full: bool | None = None
    """Whether every token is valid; None: nobody on the host has looked."""

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Valid tokens per sample; the expert's positions go on from here."""
        return self.valid.sum(-1)


def pooled(features: Float[Tensor, "b s v"], valid: Bool[Tensor, "b s"]) -> Float[Tensor, "b v"]:
    """Mean of the features over the valid tokens."""
    weight = valid.to(features.dtype)[..., None]
    return (features * weight).sum(1) / weight.sum(1).clamp_min(1)


def prefix_mask(valid: Bool[Tensor, "b s"]) -> Bool[Tensor, "b s s"]:
    """Valid prefix tokens see each other."""
    return valid[:, None, :] & valid[:, :, None]


def prefix_positions(valid: Bool[Tensor, "b s"]) -> Int[Tensor, "b s"]:
    """Positions count valid tokens only."""
    return valid.cumsum(-1) - 1


def suffix_mask(prefix_valid: Bool[Tensor, "b s"], n_prompts: int, chunk_size: int) -> Bool[Tensor, "b q c"]:
    """Prompts see VLM and prompts; actions see VLM, prompts and actions. Paper, attention blocks."""
    is_action = torch.arange(n_prompts + chunk_size, device=prefix_valid.device) >= n_prompts
    among_suffix = is_action[:, None] | ~is_action[None, :]
    batch, suffix = len(prefix_valid), len(is_action)
    to_prefix = prefix_valid[:, None, :].expand(batch, suffix, -1)
    return torch.cat([to_prefix, among_suffix.expand(batch, suffix, suffix)], dim=-1)


def suffix_positions(prefix: Prefix, length: int) -> Int[Tensor, "b q"]:
    """Positions of prompts and actions, continuing after the valid prefix tokens."""
    return prefix.lengths[:, None] + torch.arange(length, device=prefix.valid.device)


class _LayerMemory:
    """Stands for transformers' cache inside one layer: reads the past, keeps what is new, changes neither."""

    def __init__(self, past: KeyValue | None) -> None:
        self.past = past
        self.new: KeyValue | None = None

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Past and new keys and values, joined."""
        self.new = KeyValue(keys, values)
        if self.past is None:
            return keys, values
        return torch.cat([self.past.keys, keys], dim=2), torch.cat([self.past.values, values], dim=2)


def run_tower(
    tower: Any,
    tokens: Float[Tensor, "b q w"],
    *,
    mask: Bool[Tensor, "b q c"],
    positions: Int[Tensor, "b q"],
    past: tuple[KeyValue, ...] | None = None,
    condition: Float[Tensor, "b w"] | None = None,
    checkpointing: bool = False,
) -> tuple[Float[Tensor, "b q w"], tuple[KeyValue, ...]]:
    """Features after the last norm, and the keys and values of each layer.

    `tower` is LeRobot's PiGemmaModel; its own forward extends the cache it is given, and drops the
    cache when it checkpoints.
    """
    hidden = tokens.to(tower.layers[0].self_attn.q_proj.weight.dtype)
    rotary = tower.rotary_emb(hidden, positions)
    additive_mask = prepare_attention_masks_4d(mask)
    layers = []
    for index, layer in enumerate(tower.layers):
        arguments = (layer, hidden, additive_mask, rotary, past[index] if past else None, condition)
        if checkpointing:
            hidden, new = checkpoint(_run_layer, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            hidden, new = _run_layer(*arguments)
        layers.append(new)
    features, _ = tower.norm(hidden, condition)
    return features, tuple(layers)


def _run_layer(
    layer: nn.Module,
    hidden: Tensor,
    mask: Tensor,
    rotary: tuple[Tensor, Tensor],
    past: KeyValue | None,
    condition: Tensor | None,
) -> tuple[Tensor, KeyValue | None]:
    memory = _LayerMemory(past)
    hidden = layer(
        hidden,
        attention_mask=mask,
        position_embeddings=rotary,
        past_key_values=memory,
        adarms_cond=condition,
    )
    return hidden, memory.new
