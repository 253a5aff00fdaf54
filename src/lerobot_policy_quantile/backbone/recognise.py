"""Which sizes a pi05 checkpoint has: its configuration does not say."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lerobot_policy_quantile.backbone.variants import VARIANTS, Variant
from lerobot_policy_quantile.backbone.weight_files import StoredTensor
from lerobot_policy_quantile.backbone.weights import INPUT, TEXT_EMBEDDING, VLM_LM_HEAD, pi05_tensors

_LAYER = re.compile(r"\.(language_model|vision_tower)\.(?:.*\.)?layers\.(\d+)\.")


class Sizes(NamedTuple):
    """What tells checkpoints apart."""

    depth: int
    vision_depth: int
    vocab_size: int
    vlm_width: int
    expert_width: int

    @classmethod
    def of(cls, variant: Variant) -> "Sizes":
        """Those of a variant."""
        return cls(*(getattr(variant, name) for name in cls._fields))

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items())


def recognise(folder: Path) -> tuple[str, list[int] | None]:
    """The variant of a pi05 checkpoint, and its layers (`backbone_layers`) where it has not all of them.

    Refuses a checkpoint of other sizes, and files that hold no pi05.
    """
    found = _sizes(pi05_tensors(folder))
    for name, variant in VARIANTS.items():
        whole = Sizes.of(variant)
        if found is not None and found[2:] == whole[2:]:
            return name, None if found == whole else [found.depth, found.vision_depth]
    known = "; ".join(f"{name}: {Sizes.of(variant)}" for name, variant in VARIANTS.items())
    raise ValueError(f"{folder} must hold a pi05 of these sizes, of any depth: {known}; got {found or 'no pi05'}")


def _sizes(stored: Mapping[str, StoredTensor]) -> Sizes | None:
    text = stored.get(TEXT_EMBEDDING) or stored.get(VLM_LM_HEAD)
    if text is None or INPUT not in stored:
        return None
    layers = {(match[1], match[2]) for name in stored if (match := _LAYER.search(name)) and "gemma_expert" not in name}
    depth, vision = (sum(tower == name for tower, _ in layers) for name in ("language_model", "vision_tower"))
    return Sizes(depth, vision, text.shape[0], text.shape[1], stored[INPUT].shape[0])
