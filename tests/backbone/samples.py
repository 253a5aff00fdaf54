"""Backbones with weights at which every part matters, and random observations."""

import torch
from torch import Tensor

from benchmarks.lerobot_reference import MODEL_DIM, randomise
from lerobot_policy_quantile.backbone import VARIANTS, Backbone, BackboneInputs, Prefix, Variant

CHUNK, ACTION_DIM, BATCH = 10, 7, 3


def tiny_backbone(**settings: object) -> Backbone:
    return randomise(Backbone(VARIANTS["tiny"], model_dim=MODEL_DIM, **settings))


def observation(variant: Variant, batch: int = BATCH, text: int = 12, seed: int = 0) -> BackboneInputs:
    """Two cameras, the second absent in sample 1; texts of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    size = variant.image_size
    images = [torch.rand(batch, 3, size, size, generator=generator) * 2 - 1 for _ in range(2)]
    image_valid = [torch.ones(batch, dtype=torch.bool), torch.arange(batch) != 1]
    tokens = torch.randint(0, variant.vocab_size, (batch, text), generator=generator)
    token_valid = torch.arange(text) < torch.tensor([text - 2 * i for i in range(batch)])[:, None]
    return BackboneInputs(images, image_valid, tokens, token_valid)


def detached(prefix: Prefix) -> list[Tensor]:
    """Every tensor of a prefix, for comparisons."""
    return [tensor.detach().clone() for layer in prefix.layers for tensor in layer] + [prefix.pooled.detach().clone()]
