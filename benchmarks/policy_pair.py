"""Our policy and LeRobot's pi05 on the same weights, and random observations for both."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from lerobot_reference import lerobot_model_of, randomise
from torch import Tensor
from torch.nn import functional

from lerobot_policy_quantile.backbone import VARIANTS, Backbone, BackboneInputs, Prefix, Variant
from lerobot_policy_quantile.backbone.fast import FastPrefix
from lerobot_policy_quantile.backbone.int8 import int8_linear
from lerobot_policy_quantile.backbone.linear import MakeLinear, exact_linear, packed_linear
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.heads import QuantileHead
from lerobot_policy_quantile.core.levels import DEFAULT_K, quantile_levels

PI05 = VARIANTS["pi05"]
SIZES = {
    "tiny": VARIANTS["tiny"],
    "small": VARIANTS["small"],
    # Depths shrunk alike, so that SigLIP, VLM and expert keep their shares of the work.
    "widths": replace(PI05, name="real widths, a ninth of the depth", depth=2, vision_depth=3, vocab_size=1024),
    "full": PI05,
}
TEXT = 60
"""Text tokens that are there, of a buffer of up to 200."""


def observation(variant: Variant, *, cameras: int, absent: int, padded: bool, batch: int = 1) -> BackboneInputs:
    """Random pictures and words; `absent` cameras are there as zeros and masked."""
    draw = torch.Generator().manual_seed(0)
    size = variant.image_size
    text = min(TEXT, variant.max_token_length)
    buffer = variant.max_token_length if padded else text
    images = [torch.rand(batch, 3, size, size, generator=draw) * 2 - 1 for _ in range(cameras)]
    images += [torch.zeros(batch, 3, size, size)] * absent
    there = [torch.full((batch,), number < cameras) for number in range(cameras + absent)]
    tokens = torch.randint(0, variant.vocab_size, (batch, text), generator=draw)
    valid = torch.ones(batch, text, dtype=torch.bool)
    padding = (0, buffer - text)
    return BackboneInputs(images, there, functional.pad(tokens, padding), functional.pad(valid, padding))


@dataclass
class Pair:
    """Our model and LeRobot's on the same memory."""

    backbone: Backbone
    head: QuantileHead
    peer: Any

    @classmethod
    def of(cls, variant: Variant, chunk_size: int, *, n_prompts: int = 16, n_quantiles: int = DEFAULT_K) -> "Pair":
        """Random weights at which every part matters; ours on the fast path."""
        torch.manual_seed(0)
        backbone = randomise(Backbone(variant, n_prompts=n_prompts, fast_training=True))
        levels = quantile_levels(n_quantiles)
        head = QuantileHead(backbone.expert_width, chunk_size, 7, backbone.model_dim, levels=levels)
        backbone.optimize()  # moves weights together: before the peer is laid on their memory
        pair = cls(backbone, head.eval(), lerobot_model_of(backbone, head).eval())
        pair.optimize()
        return pair

    @property
    def reduced(self) -> bool:
        """Whether the model has real widths and fewer layers than the real one."""
        variant = self.backbone.variant
        return variant.vlm_width == PI05.vlm_width and variant.depth < PI05.depth

    def optimize(self, *, packed: bool = False, int8: bool = False) -> None:
        """The fast path; at reduced depth with the whole last VLM layer."""
        self.backbone.optimize(packed=packed, int8=int8)
        if self.reduced:
            make = int8_linear if int8 else packed_linear if packed else exact_linear
            self.backbone._fast_prefix = self._whole_prefix(make)

    def train(self) -> None:
        """Training mode, with the same prefix."""
        self.backbone.train()
        if self.reduced:
            self.backbone._fast_prefix = self._whole_prefix(exact_linear)

    def _whole_prefix(self, make: MakeLinear) -> FastPrefix:
        return FastPrefix(self.backbone.paligemma_with_expert, make, features=True)

    @torch.no_grad()
    def chunk(self, seen: BackboneInputs) -> Tensor:
        """Ours, from pictures to quantiles."""
        return self.decode(self.backbone.prefix(seen))

    @torch.no_grad()
    def decode(self, prefix: Prefix) -> Tensor:
        """Ours, from a given prefix."""
        prediction = self.head.predict(self.backbone.expert(prefix), episodes_from_seeds(range(len(prefix.valid))))
        return prediction.actions

    def flow(self, seen: BackboneInputs, expert_seconds: list[float] | None = None) -> Tensor:
        """The peer's, in ten steps; what they took together is added to the list."""
        noise = torch.zeros(len(seen.tokens), self.head.chunk_size, self.backbone.model_dim)
        step, taken = self.peer.denoise_step, []

        def timed(*given: Any, **named: Any) -> Tensor:
            began = time.perf_counter()
            velocity: Tensor = step(*given, **named)
            taken.append(time.perf_counter() - began)
            return velocity

        self.peer.denoise_step = timed
        try:
            actions: Tensor = self.peer.sample_actions(*seen, noise=noise, num_steps=10)
        finally:
            del self.peer.denoise_step
        if expert_seconds is not None:
            expert_seconds.append(sum(taken))
        return actions
