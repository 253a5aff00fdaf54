"""The random state of one episode: everything a decoder or a flow sampler remembers or draws.

It is made from a seed and belongs to the episode, never to a policy, a head or a decoder: the
same seed gives the same actions whatever else is decoded in between, and on any device.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor


class Episode:
    """Generator and latents of one episode.

    Noise is drawn on the CPU, so that a seed means the same numbers on every machine.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be an integer in [0, 2**63); got {seed}")
        self.seed = seed
        self.latent: Float[Tensor, " *c"] | None = None
        """Gaussian latents of the last decoded chunk, one per coordinate or more; None before the first."""
        self.rank: float | None = None
        """The rank that a decoder which keeps to a route follows; None before it has chosen one."""
        self.executed: Float[Tensor, "h d"] | None = None
        """Actions of the last chunk that were executed, in normalised units; the policy writes them down."""
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """The next standard normal draws of this episode."""
        return torch.randn(shape, generator=self._generator)

    def next_latent(self, rho: float, innovation: Float[Tensor, " *c"]) -> Float[Tensor, " *c"]:
        """z_k = rho z_{k-1} + sqrt(1 - rho^2) eps_k with z_0 = eps_0, remembered. Paper eq. B.2."""
        if self.latent is None:
            self.latent = innovation
        else:
            self.latent = rho * self.latent + math.sqrt(1 - rho**2) * innovation
        return self.latent


@contextmanager
def unchanged_on_error(episodes: Sequence[Episode]) -> Iterator[None]:
    """If the block raises, the episodes are as they were before it: a second attempt draws the same noise."""
    before = [(e.latent, e.rank, e.executed, e._generator.get_state()) for e in episodes]
    try:
        yield
    except BaseException:
        for episode, (latent, rank, executed, state) in zip(episodes, before, strict=True):
            episode.latent, episode.rank, episode.executed = latent, rank, executed
            episode._generator.set_state(state)
        raise


def episodes_from_seeds(seeds: Sequence[int]) -> list[Episode]:
    """One fresh episode per seed: the rows of a batch."""
    return [Episode(seed) for seed in seeds]
