"""Prefixes used again in a training run: the frozen VLM reads each frame of the dataset once.

`--policy.prefix_cache=memory` keeps prefixes as long as the process lives, `--policy.prefix_cache=FOLDER` in a mapped
file that later runs on the same dataset and frozen weights go on with.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from jaxtyping import Int
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor

from lerobot_policy_quantile.backbone import Backbone, Prefix
from lerobot_policy_quantile.backbone.fingerprints import row_digests, weights_digest
from lerobot_policy_quantile.backbone.prefix_cache import PrefixCache, Shape
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core._devices import send

IN_MEMORY = "memory"


class Reader(Protocol):
    """What a policy has to have."""

    backbone: Backbone
    config: Any

    def prefix(self, batch: dict[str, Tensor]) -> Prefix:
        """What the VLM says about a processed batch."""


class PrefixReuse:
    """The prefix cache of one dataset of so many frames; opened when the first of them arrive."""

    def __init__(self, place: str, frames: int | None) -> None:
        self._place, self._frames = place, frames
        self._cache: PrefixCache | None = None

    @classmethod
    def of(cls, place: str | None, dataset_meta: Any) -> Self | None:
        """As a configuration's `prefix_cache` asks for it; None without one."""
        frames = None if dataset_meta is None else int(dataset_meta.total_frames)
        return None if place is None else cls(place, frames)

    def digests(self, batch: dict[str, Tensor], cameras: Iterable[str]) -> Int[Tensor, " b"]:
        """Of what the VLM reads of every frame of a processed batch, still on its device."""
        if self._frames is None or "index" not in batch:
            raise ValueError(
                "prefix_cache needs to know the dataset and each sample's frame: make the policy with LeRobot's"
                f" make_policy(..., ds_meta=...) and give batches an `index`; got {sorted(batch)}"
            )
        return row_digests(_observed(batch, cameras).values())

    def prefix(self, frames: Sequence[int], digests: Sequence[int], batch: dict[str, Tensor], policy: Reader) -> Prefix:
        """Of each frame; the VLM runs over those that are new."""
        observed = _observed(batch, policy.config.image_features)
        if self._cache is None:
            self._cache = self._open(policy, {name: part[:1] for name, part in observed.items()})
        if unseen := self._cache.unseen(frames, digests):
            new = policy.prefix({name: _rows(part, unseen) for name, part in observed.items()})
            self._cache.put([frames[place] for place in unseen], [digests[place] for place in unseen], new)
        return self._cache.get(frames, next(iter(observed.values())).device)

    def _open(self, policy: Reader, one: dict[str, Tensor]) -> PrefixCache:
        """The cache that fits what this policy says about one frame."""
        shape, frames = shape_of(policy.prefix(one), policy), self._frames or 0
        if self._place == IN_MEMORY:
            return PrefixCache.in_memory(shape, frames)
        made_from = {"weights": weights_digest(policy.backbone.vlm_parameters()), "torch": torch.__version__}
        return PrefixCache.in_folder(Path(self._place), shape, frames, made_from)


def shape_of(prefix: Prefix, policy: Reader) -> Shape:
    """Sizes of a cache row: as many tokens as all cameras and the longest text have."""
    config: QuantileConfig = policy.config
    keys = prefix.layers[0].keys
    tokens = len(config.image_features) * policy.backbone.variant.image_tokens + config.token_length
    return Shape(len(prefix.layers), keys.shape[1], tokens, keys.shape[3], prefix.pooled.shape[1], keys.dtype)


def _observed(batch: dict[str, Tensor], cameras: Iterable[str]) -> dict[str, Tensor]:
    names = [*cameras, OBS_LANGUAGE_TOKENS, OBS_LANGUAGE_ATTENTION_MASK]
    return {name: batch[name] for name in names if name in batch}  # what is missing, the policy says


def _rows(part: Tensor, places: list[int]) -> Tensor:
    return part if len(places) == len(part) else part[send(torch.tensor(places), part.device)]
