"""Randomness of training that survives a restart and does not depend on how a batch is split.

A draw is a pure function of (run, forward, dataset frame). The first two live in the checkpoint; so a
resumed run goes on bit for bit, and two processes with half a batch each drop the labels that one
process would. Torch's global generator gives neither: a data loader draws from it whenever it starts.
"""

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lerobot_policy_quantile.core.losses import keep_mask


def keyed_generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the whole key; near keys give unrelated streams."""
    seed = np.random.SeedSequence([int(part) for part in key]).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(seed) & (2**63 - 1))


def keep_labels(
    valid: Bool[Tensor, "b h d"], drop_ratio: float, *, run: int, forward: int, frames: Int[Tensor, " b"]
) -> Bool[Tensor, "b h d"]:
    """`keep_mask`, each sample's draw keyed by its own dataset frame (M12)."""
    if drop_ratio == 0:
        return valid
    here = valid.cpu()
    rows = [
        keep_mask(here[i : i + 1], drop_ratio, generator=keyed_generator(run, forward, frame))
        for i, frame in enumerate(frames.tolist())
    ]
    return torch.cat(rows).to(valid.device)
