"""Initial text embeddings: ordered for numbers, random for other words.

State bins enter as words ("127"). With random vectors the model would have to learn the order of 256 unrelated words.
"""

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor, nn

from lerobot_policy_quantile.processor_quantile import STATE_BINS

SCALE = 0.3
OCTAVES = 8


def number_embeddings(width: int) -> Float[Tensor, "n v"]:
    """One row per bin: its value, then sine and cosine at rising frequencies, zeros after."""
    value = torch.linspace(-1, 1, STATE_BINS)[:, None]
    angles = torch.pi / 2 * value * 2.0 ** torch.arange(OCTAVES)
    rows = torch.cat([value, angles.sin(), angles.cos()], dim=1)
    repeats = -(-width // rows.shape[1])
    return SCALE * rows.repeat(1, repeats)[:, :width]


@torch.no_grad()
def start_embeddings(embedding: nn.Embedding, tokenizer: Tokenizer, generator: torch.Generator) -> None:
    """Write the starting values; every bin must be one token of its own."""
    embedding.weight.copy_(SCALE * torch.randn(embedding.weight.shape, generator=generator))
    numbers = number_embeddings(embedding.weight.shape[1])
    for number in range(STATE_BINS):
        ids = tokenizer.encode(f" {number}", add_special_tokens=False).ids
        if len(ids) != 1:
            raise ValueError(f"tokenizer must have one token per state bin; ' {number}' takes {len(ids)}")
        noise = 0.05 * torch.randn(numbers.shape[1], generator=generator)
        embedding.weight[ids[0]] = numbers[number] + noise
