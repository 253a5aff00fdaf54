"""Which labels a training step drops (Sec. 3.3), and the generators that training draws from.

A draw is a pure function of (run, forward, dataset frame). The first two live in the checkpoint; so a
resumed run goes on bit for bit, and two processes with half a batch each, or one that takes its batch in
pieces, drop the labels that one process would. Torch's global generator gives neither: a data loader
draws from it whenever it starts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from lerobot_policy_quantile.core.losses import keep_by_score


def keyed_generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the whole key; near keys give unrelated streams."""
    return torch.Generator().manual_seed(_seed(*key))


def _seed(*key: int) -> int:
    numbers = [int(part) for part in key]
    # Numbers of one word make the same sequence as an array, in a third of the time.
    entropy = np.array(numbers, np.uint32) if max(numbers) < 2**32 else numbers
    return int(np.random.SeedSequence(entropy).generate_state(1, dtype=np.uint64)[0]) & (2**63 - 1)


def keep_labels(
    valid: Bool[Tensor, "b h d"],
    drop_ratio: float,
    *,
    run: int,
    forward: int,
    frames: Sequence[int],
) -> Bool[Tensor, "b h d"]:
    """`keep_mask` of `core.losses` on the host, each sample's draw keyed by its own dataset frame. Paper Sec. 3.3."""
    if drop_ratio == 0:
        return valid
    generator, scores = torch.Generator(), torch.empty(valid.flatten(1).shape)
    for row, frame in zip(scores, frames, strict=True):
        torch.rand(row.shape, generator=generator.manual_seed(_seed(run, forward, frame)), out=row)
    return keep_by_score(valid, drop_ratio, scores)
