"""The backbone: one prefix pass of the VLM, then expert passes over prompts and action tokens.

Axes: b batch, s prefix token, p prompt, h chunk step, m model action dim, w expert width.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from lerobot.policies.common.vla_utils import create_sinusoidal_pos_embedding
from torch import Tensor, nn
from torch.nn import functional

from lerobot_policy_quantile.backbone.attention import (
    Prefix,
    pooled,
    prefix_mask,
    prefix_positions,
    run_tower,
    suffix_mask,
    suffix_positions,
)
from lerobot_policy_quantile.backbone.bound_expert import BoundExpert
from lerobot_policy_quantile.backbone.compiled import static_linear
from lerobot_policy_quantile.backbone.fast import FastExpert, FastPrefix
from lerobot_policy_quantile.backbone.inputs import BackboneInputs
from lerobot_policy_quantile.backbone.int8 import int8_linear
from lerobot_policy_quantile.backbone.linear import MakeLinear, exact_linear, forget_blocks, packed_linear
from lerobot_policy_quantile.backbone.towers import WRAP_CLASSES, Precision, Towers
from lerobot_policy_quantile.backbone.variants import Variant
from lerobot_policy_quantile.core._checks import require_choice, require_shape
from lerobot_policy_quantile.core._devices import send
from lerobot_policy_quantile.core.episode import Episode

QUERIES = ("zero", "noise", "vlm")
MIN_PERIOD, MAX_PERIOD = 4e-3, 4.0
"""Periods of the noise time's sine and cosine embedding, as in pi0.5."""
PROMPT_STD = 0.02


class Reading(NamedTuple):
    """One prefix pass: what the expert reads, and the features behind it."""

    prefix: Prefix
    features: Float[Tensor, "b s v"]  # after the VLM's last layer: each camera's tokens, then the text's
    images: tuple[Float[Tensor, "b i v"], ...]  # each camera's tokens as the vision tower gives them


class Backbone(nn.Module):
    """pi0.5 with learnable prompts in front of the action tokens.

    query  "zero": action tokens are the projection of what the head gives, zeros for direct heads;
           "noise": fresh Gaussian queries; "vlm": a learned projection of the pooled prefix features
    fast_training  the fast path (`fast.py`) in training too: a frozen VLM reads only what is there, the expert (unless
           checkpointed) computes what all rows share once. Needs whole weights, so no FSDP
    """

    _no_split_modules: ClassVar[list[str]] = list(WRAP_CLASSES)

    def __init__(
        self,
        variant: Variant,
        *,
        model_dim: int = 32,
        n_prompts: int = 16,
        query: str = "zero",
        freeze_vlm: bool = True,
        gradient_checkpointing: bool = False,
        fast_training: bool = False,
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        require_choice("query", query, QUERIES)
        if n_prompts < 0:
            raise ValueError(f"n_prompts must be 0 (no prompts) or more; got {n_prompts}")
        if model_dim < 1:
            raise ValueError(f"model_dim must be at least 1; got {model_dim}")
        self.variant, self.model_dim, self.n_prompts, self.query = variant, model_dim, n_prompts, query
        self.freeze_vlm, self.gradient_checkpointing = freeze_vlm, gradient_checkpointing
        self.fast_training = fast_training
        self.expert_width = variant.expert_width
        self.expert_calls = 0
        """Expert passes since construction; a caller may set it back."""
        width = variant.expert_width
        self.paligemma_with_expert = Towers(variant, precision)
        self.action_in_proj = nn.Linear(model_dim, width)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)
        self.prompts = nn.Parameter(PROMPT_STD * torch.randn(n_prompts, width)) if n_prompts else None
        if query == "vlm":
            self.query_projection = nn.Linear(variant.vlm_width, model_dim)
        if freeze_vlm:
            self.paligemma_with_expert.paligemma.requires_grad_(False)
        self._fast_prefix: FastPrefix | None = None
        self._fast_expert: FastExpert | None = None
        self.register_load_state_dict_post_hook(_forget_fast_paths)  # type: ignore[no-untyped-call]
        self.train()

    @torch.no_grad()
    def optimize(self, *, packed: bool = False, int8: bool = False, compile: bool = False) -> None:  # noqa: A002
        """Evaluation mode on the fast path: the same answers to about 1e-6 with less work. `train()` undoes it.

        `packed` (CPU, float32) keeps a second copy of the weights in the order that the products read them.
        `int8` (CPU) is approximate: weights in 8 bits per output channel, activations quantised as they come.
        `compile` (experimental) hands the passes to torch.compile: the first answers take minutes, and again for each
        of the first few shapes; see `compiled.py`.
        """
        if packed + int8 + compile > 1:
            raise ValueError(f"optimize takes one of packed, int8, compile; got {packed=}, {int8=}, {compile=}")
        self.eval()
        make = int8_linear if int8 else packed_linear if packed else static_linear if compile else exact_linear
        self._fast_prefix = self._make_fast_prefix(make)
        self._fast_expert = FastExpert(self, make)
        if compile:
            self._fast_prefix.compile()
            self._fast_expert.compile()

    def _make_fast_prefix(self, make: MakeLinear = exact_linear) -> FastPrefix:
        return FastPrefix(self.paligemma_with_expert, make, features=self.query == "vlm")

    def _apply(self, *arguments: Any, **settings: Any) -> "Backbone":
        """Another device or precision: what the fast paths have computed is void."""
        self._fast_prefix = self._fast_expert = None
        forget_blocks(self)
        moved: Backbone = super()._apply(*arguments, **settings)  # type: ignore[no-untyped-call]
        return moved

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode; a frozen VLM stays in evaluation mode, training mode ends the fast path."""
        super().train(mode)
        if mode:
            self._fast_prefix = self._fast_expert = None
        if self.freeze_vlm:
            self.paligemma_with_expert.paligemma.eval()
        return self

    def vlm_parameters(self) -> Iterator[nn.Parameter]:
        """SigLIP, its projector and Gemma."""
        return self.paligemma_with_expert.paligemma.parameters()

    def prompt_parameters(self) -> Iterator[nn.Parameter]:
        """The learnable prompts, if there are any."""
        if self.prompts is not None:
            yield self.prompts

    def expert_parameters(self) -> Iterator[nn.Parameter]:
        """Action expert, action and query projections, noise time MLP."""
        modules = [self.paligemma_with_expert.gemma_expert, self.action_in_proj, self.time_mlp_in, self.time_mlp_out]
        if self.query == "vlm":
            modules.append(self.query_projection)
        return chain.from_iterable(module.parameters() for module in modules)

    def prefix(self, inputs: BackboneInputs) -> Prefix:
        """SigLIP and VLM, once per observation; no graph is built when the VLM is frozen."""
        if self._fast_prefix is None and self.fast_training and self.freeze_vlm:
            self._fast_prefix = self._make_fast_prefix()
        if self._fast_prefix is None:
            return self.read(inputs).prefix
        inputs.check(self.variant)
        with torch.no_grad():
            return self._fast_prefix(inputs)

    def read(self, inputs: BackboneInputs) -> Reading:
        """The prefix together with the features it was made of, for losses on what the VLM sees."""
        inputs.check(self.variant)
        towers = self.paligemma_with_expert
        with torch.no_grad() if self.freeze_vlm else nullcontext():
            place = inputs.tokens.device
            image_valid = [send(seen, place) for seen in inputs.image_valid]
            parts = [towers.embed_image(image) for image in inputs.images]
            valid = [seen[:, None].expand(part.shape[:2]) for part, seen in zip(parts, image_valid, strict=True)]
            parts.append(towers.embed_language_tokens(inputs.tokens))
            all_valid = torch.cat([*valid, send(inputs.token_valid, place)], dim=1)
            features, layers = run_tower(
                towers.language_model,
                torch.cat(parts, dim=1),
                mask=prefix_mask(all_valid),
                positions=prefix_positions(all_valid),
                checkpointing=self._checkpointing and not self.freeze_vlm,
            )
            prefix = Prefix(layers, all_valid, pooled(features, all_valid))
            return Reading(prefix, features, tuple(parts[:-1]))

    def expert(
        self,
        prefix: Prefix,
        *,
        generator: torch.Generator | None = None,
        episodes: Sequence[Episode] | None = None,
    ) -> BoundExpert:
        """The action expert with the observation given: what core's heads call.

        Noise queries are drawn from `generator`, or row by row from `episodes`.
        """
        return BoundExpert(self, prefix, generator, episodes)

    def suffix(
        self, prefix: Prefix, actions: Float[Tensor, "b h m"], noise_time: Float[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b p w"], Float[Tensor, "b h w"]]:
        """One expert pass: features of the prompts and of the action tokens, in the projections' precision."""
        self._check_suffix(prefix, actions, noise_time)
        batch, chunk_size = actions.shape[:2]
        self.expert_calls += 1
        tokens = action_tokens = self.action_in_proj(actions)
        if self.prompts is not None:
            tokens = torch.cat([self.prompts.expand(batch, -1, -1), action_tokens], dim=1)
        features, _ = run_tower(
            self.paligemma_with_expert.expert,
            tokens,
            mask=suffix_mask(prefix.valid, self.n_prompts, chunk_size),
            positions=suffix_positions(prefix, tokens.shape[1]),
            past=prefix.layers,
            condition=self._time_condition(noise_time),
            checkpointing=self._checkpointing,
        )
        features = features.to(action_tokens.dtype)
        return features[:, : self.n_prompts], features[:, self.n_prompts :]

    def _check_suffix(self, prefix: Prefix, actions: Tensor, noise_time: Tensor) -> None:
        batch = len(prefix.valid)
        require_shape("actions", actions, (batch, actions.shape[1], self.model_dim))
        require_shape("noise_time", noise_time, (batch,))

    @property
    def _live(self) -> bool:
        """Whether the expert trains on the fast path."""
        return self.fast_training and self.training and not self._checkpointing

    @property
    def _checkpointing(self) -> bool:
        return self.gradient_checkpointing and self.training and torch.is_grad_enabled()

    def _time_condition(self, noise_time: Float[Tensor, " b"]) -> Float[Tensor, "b w"]:
        """Embedding of the noise time, which modulates every norm of the expert."""
        embedding = create_sinusoidal_pos_embedding(
            noise_time, self.expert_width, MIN_PERIOD, MAX_PERIOD, device=noise_time.device
        ).to(noise_time.dtype)
        return functional.silu(self.time_mlp_out(functional.silu(self.time_mlp_in(embedding))))


def _forget_fast_paths(backbone: Backbone, _: Any) -> None:
    backbone._fast_prefix = backbone._fast_expert = None
