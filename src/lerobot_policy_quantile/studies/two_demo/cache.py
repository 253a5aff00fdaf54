"""Training samples and their frozen prefixes: the VLM runs once per demonstration step, not once per update.

Axes: n sample (demonstration step), h chunk step, d action dim, s prefix token.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.prefix_cache import require_fresh
from lerobot_policy_quantile.contract import CAMERA_KEYS
from lerobot_policy_quantile.studies.two_demo.records import DemonstrationRecord
from lerobot_policy_quantile.studies.two_demo.start import Fresh
from lerobot_policy_quantile.util.digests import digest_each

FILE = "prefix_cache.safetensors"
_ROWS = 32


@dataclass(frozen=True)
class LessonCache:
    """What training reads: prefixes, target chunks in normalised units, which of their steps are real."""

    layers: tuple[KeyValue, ...]
    prefix_valid: Bool[Tensor, "n s"]
    pooled: Float[Tensor, "n v"]
    target: Float[Tensor, "n h d"]
    valid: Bool[Tensor, "n h d"]

    def rows(self, index: Int[Tensor, " b"], device: torch.device | str = "cpu") -> Prefix:
        """The prefixes of some samples, on the device that computes; the cache stays in main memory."""
        layers = tuple(KeyValue(layer.keys[index].to(device), layer.values[index].to(device)) for layer in self.layers)
        return Prefix(layers, self.prefix_valid[index].to(device), self.pooled[index].to(device))

    @cached_property
    def first_alike(self) -> Int[Tensor, " n"]:
        """For every sample the first one with the same prefix, to the bit: demonstrations begin alike."""
        first: dict[str, int] = {}
        said = (
            digest_each(part[i].numpy().tobytes() for pair in self.layers for part in pair) for i in range(len(self))
        )
        return torch.tensor([first.setdefault(word, i) for i, word in enumerate(said)])

    def __len__(self) -> int:
        return len(self.target)


def processed(
    fresh: Fresh, instruction: str, demonstrations: tuple[DemonstrationRecord, ...], index: Int[Tensor, " b"]
) -> dict[str, Any]:
    """Samples as the policy takes them: observation, normalised target chunk, padding."""
    chunk_size = fresh.policy.config.chunk_size
    places = sample_places(demonstrations)
    rows = [places[int(i)] for i in index]
    chosen = [(demonstrations[which], step) for which, step in rows]
    batch: dict[str, Any] = {
        key: torch.stack([torch.from_numpy(d.frames[camera][step]) for d, step in chosen]).permute(0, 3, 1, 2) / 255
        for camera, key in CAMERA_KEYS.items()
    }
    batch["observation.state"] = torch.stack([torch.from_numpy(d.states[step]) for d, step in chosen])
    chunks = [d.actions[np.minimum(np.arange(step, step + chunk_size), len(d.actions) - 1)] for d, step in chosen]
    batch["action"] = torch.from_numpy(np.stack(chunks))
    batch["action_is_pad"] = torch.stack(
        [torch.arange(step, step + chunk_size) >= len(d.actions) for d, step in chosen]
    )
    batch["task"] = [instruction] * len(chosen)
    ready: dict[str, Any] = fresh.before(batch)
    return ready


def sample_places(demonstrations: tuple[DemonstrationRecord, ...]) -> list[tuple[int, int]]:
    """(demonstration, step) of every sample, one demonstration after the other."""
    return [(which, step) for which, d in enumerate(demonstrations) for step in range(len(d.actions))]


def in_parts(count: int, rows: int) -> list[Int[Tensor, " b"]]:
    """The numbers below `count`, a few rows at a time."""
    return [torch.arange(first, min(first + rows, count)) for first in range(0, count, rows)]


@torch.no_grad()
def build_cache(fresh: Fresh, instruction: str, demonstrations: tuple[DemonstrationRecord, ...]) -> LessonCache:
    """Run the VLM over every demonstration step."""
    fresh.policy.eval()
    layers: list[list[KeyValue]] = [[] for _ in range(fresh.policy.backbone.variant.depth)]
    tokens, pooled, targets, valid = [], [], [], []
    for index in in_parts(len(sample_places(demonstrations)), _ROWS):
        batch = processed(fresh, instruction, demonstrations, index)
        prefix = fresh.policy.prefix(batch)
        for parts, layer in zip(layers, prefix.layers, strict=True):
            parts.append(KeyValue(*(part.cpu() for part in layer)))
        tokens.append(prefix.valid.cpu())
        pooled.append(prefix.pooled.cpu())
        targets.append(batch["action"].cpu())
        valid.append((~batch["action_is_pad"].cpu())[..., None].expand_as(targets[-1]))
    valid_tokens = torch.cat(tokens)
    seen = valid_tokens.any(0)  # padding of every sample is not worth attending to; positions count valid tokens
    return LessonCache(
        tuple(_joined(parts, seen) for parts in layers),
        valid_tokens[:, seen],
        torch.cat(pooled),
        torch.cat(targets),
        torch.cat(valid),
    )


def _joined(parts: list[KeyValue], seen: Bool[Tensor, " s"]) -> KeyValue:
    """One layer of all samples; its parts are let go: at full size a cache is many gigabytes."""
    joined = KeyValue(*(torch.cat(each)[:, :, seen] for each in zip(*parts, strict=True)))
    parts.clear()
    return joined


def save_cache(cache: LessonCache, path: Path, made_from: dict[str, str]) -> None:
    """Write the cache and what it was made from, in whole or not at all."""
    tensors = {
        "prefix_valid": cache.prefix_valid,
        "pooled": cache.pooled,
        "target": cache.target,
        "valid": cache.valid.contiguous(),
    }
    for number, layer in enumerate(cache.layers):
        tensors |= {f"keys.{number}": layer.keys.contiguous(), f"values.{number}": layer.values.contiguous()}
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, metadata=made_from)
    temporary.replace(path)


def load_cache(path: Path, made_from: dict[str, str]) -> LessonCache:
    """Read a cache; refuse one that was made from other frozen weights, data or processors."""
    with safe_open(path, "pt") as file:
        require_fresh(path, file.metadata() or {}, made_from)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    depth = sum(name.startswith("keys.") for name in tensors)
    layers = tuple(KeyValue(tensors[f"keys.{i}"], tensors[f"values.{i}"]) for i in range(depth))
    return LessonCache(layers, *(tensors[name] for name in ("prefix_valid", "pooled", "target", "valid")))
