"""The fast path: the same numbers as `model.py` to about 1e-6, with less work.

What it leaves out or does once, each change by itself exact up to rounding:
- absent cameras and padded text tokens are dropped instead of masked; positions count valid tokens either way
- all cameras go through SigLIP as one batch
- the last VLM layer stops after its keys and values: nobody reads its features (except VLM queries)
- query, key and value are one product, gate and up are one product
- scaled dot-product attention without a mask tensor where all tokens are valid
- direct heads ask at noise time zero with zero queries: the adaptive norms' modulation and the first layer's
  projections of prompts and queries are constants
- the last expert layer runs on action rows only

Weights are not copied: a fused weight is one block of memory, and the module's own parameters become views of it.

Axes: b batch, n token, s prefix token, w width, e head size, c camera.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix, pooled, prefix_positions, suffix_positions
from lerobot_policy_quantile.backbone.compiled import LENGTHS, CompiledPass
from lerobot_policy_quantile.backbone.inputs import BackboneInputs
from lerobot_policy_quantile.backbone.linear import Linear, MakeLinear, fuse, halves, side_by_side, weights_of
from lerobot_policy_quantile.core._devices import on_host, send


def drop_invalid(
    tokens: Float[Tensor, "b n w"], valid: Bool[Tensor, "b n"], step: int = 1
) -> tuple[Float[Tensor, "b s w"], Bool[Tensor, "b s"]]:
    """Valid tokens to the front, in their order, and no more columns than the longest sample has, in whole steps.

    `valid` lies on the host, where lengths and places are worked out; so does what comes back of it.
    """
    length = -(-int(valid.sum(-1).max()) // step) * step
    order = valid.to(torch.int8).argsort(dim=-1, descending=True, stable=True)[:, :length]
    return tokens.take_along_dim(send(order, tokens.device)[..., None], dim=1), valid.take_along_dim(order, dim=1)


def key_mask(valid: Bool[Tensor, "b s"], extra: int = 0, *, full: bool | None = None) -> Bool[Tensor, "b 1 1 n"] | None:
    """Which keys may be looked at, `extra` further ones always; None if the host knows (`full`) or sees: all."""
    if full or (full is None and on_host(valid) and bool(valid.all())):
        return None
    return functional.pad(valid, (0, extra), value=True)[:, None, None]


def attend(
    queries: Float[Tensor, "b n heads e"],
    keys: Float[Tensor, "b kv s e"],
    values: Float[Tensor, "b kv s e"],
    mask: Bool[Tensor, "b 1 1 s"] | None,
) -> Float[Tensor, "b n m"]:
    """Attention of many query heads over few key heads: heads of a group are stacked as rows, nothing is repeated."""
    batch, length, heads, size = queries.shape
    kv_heads = keys.shape[1]
    rows = queries.view(batch, length, kv_heads, heads // kv_heads, size).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(batch, kv_heads, -1, size)
    seen = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
    seen = seen.view(batch, heads, length, size).transpose(1, 2)
    return seen.reshape(batch, length, heads * size)


class Modulation(NamedTuple):
    """What an adaptive norm makes of the noise time; plain norms have no shift and no gate."""

    scale: Float[Tensor, "*b w"]
    shift: Float[Tensor, "*b w"] | None = None
    gate: Float[Tensor, "*b w"] | None = None


def modulation(norm: Any, condition: Float[Tensor, "b w"] | None) -> Modulation:
    """Of LeRobot's PiGemmaRMSNorm, ready to multiply and add."""
    if norm.dense is None:
        return Modulation(1.0 + norm.weight.data.float())
    scale, shift, gate = norm.dense(condition)[:, None].chunk(3, dim=-1)
    return Modulation(1 + scale.float(), shift.float(), gate)


def normalise(x: Float[Tensor, "b n w"], eps: float, by: Modulation) -> Float[Tensor, "b n w"]:
    """RMS norm in float32, modulated."""
    normed = functional.rms_norm(x.float(), x.shape[-1:], eps=eps)
    return (normed * by.scale if by.shift is None else torch.addcmul(by.shift, normed, by.scale)).to(x.dtype)


def add_gated(x: Tensor, y: Tensor, gate: Tensor | None) -> Tensor:
    """Residual sum."""
    return x + y if gate is None else torch.addcmul(x, y, gate.to(x.dtype))


def rotate(x: Float[Tensor, "b n heads e"], rotary: tuple[Tensor, Tensor]) -> Float[Tensor, "b n heads e"]:
    """Rotary position embedding, all heads alike."""
    cosine, sine = (part[:, :, None] for part in rotary)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class Norms(NamedTuple):
    """Modulations of one layer: before attention, before the MLP."""

    attention: Modulation
    mlp: Modulation


@dataclass(frozen=True)
class GemmaLayer:
    """One layer of LeRobot's Gemma with fused products."""

    layer: Any
    heads: int
    kv_heads: int
    qkv: Linear
    key_value: Linear
    out: Linear
    gate_and_up: Callable[[Tensor], Sequence[Tensor]]
    down: Linear

    @classmethod
    def of(cls, layer: Any, make: MakeLinear) -> "GemmaLayer":
        """The fast form of a layer; its parameters become views."""
        attention, mlp = layer.self_attn, layer.mlp
        size = attention.head_dim
        heads, kv_heads = (p.out_features // size for p in (attention.q_proj, attention.k_proj))
        qkv, _ = fuse(attention.q_proj, attention.k_proj, attention.v_proj)
        gate_up, _ = fuse(mlp.gate_proj, mlp.up_proj)
        return cls(
            layer,
            heads,
            kv_heads,
            make(qkv, None),
            make(qkv[heads * size :], None),
            make(attention.o_proj.weight.data, None),
            halves(make(gate_up, None)),
            make(mlp.down_proj.weight.data, None),
        )

    @classmethod
    def live(cls, layer: Any) -> "GemmaLayer":
        """On the module's own products, which gradients reach."""
        attention, mlp = layer.self_attn, layer.mlp
        size = attention.head_dim
        return cls(
            layer,
            attention.q_proj.out_features // size,
            attention.k_proj.out_features // size,
            side_by_side(attention.q_proj, attention.k_proj, attention.v_proj),
            side_by_side(attention.k_proj, attention.v_proj),
            attention.o_proj,
            lambda x: (mlp.gate_proj(x), mlp.up_proj(x)),
            mlp.down_proj,
        )

    def norms(self, condition: Tensor | None) -> Norms:
        """Both modulations for a noise time."""
        layer = self.layer
        return Norms(
            modulation(layer.input_layernorm, condition), modulation(layer.post_attention_layernorm, condition)
        )

    def project(self, x: Float[Tensor, "b n w"], norms: Norms) -> Float[Tensor, "b n heads e"]:
        """Normalised input -> queries, keys and values as heads, not yet rotated."""
        qkv = self.qkv(normalise(x, self.layer.input_layernorm.eps, norms.attention))
        return qkv.view(*x.shape[:2], self.heads + 2 * self.kv_heads, -1)

    def keys_and_values(self, x: Float[Tensor, "b n w"], norms: Norms, rotary: tuple[Tensor, Tensor]) -> KeyValue:
        """Only what later tokens read of this layer."""
        pair = self.key_value(normalise(x, self.layer.input_layernorm.eps, norms.attention))
        keys, values = pair.view(*x.shape[:2], 2 * self.kv_heads, -1).chunk(2, dim=2)
        return KeyValue(rotate(keys, rotary).transpose(1, 2), values.transpose(1, 2))

    def split(
        self, qkv: Float[Tensor, "b n heads e"], rotary: tuple[Tensor, Tensor]
    ) -> tuple[Float[Tensor, "b n heads e"], KeyValue]:
        """Rotated queries; rotated keys and values."""
        turned = rotate(qkv[:, :, : -self.kv_heads], rotary)
        keys, values = turned[:, :, self.heads :], qkv[:, :, -self.kv_heads :]
        return turned[:, :, : self.heads], KeyValue(keys.transpose(1, 2), values.transpose(1, 2))

    def finish(self, x: Float[Tensor, "b n w"], seen: Float[Tensor, "b n m"], norms: Norms) -> Float[Tensor, "b n w"]:
        """Output projection, residual, MLP, residual."""
        x = add_gated(x, self.out(seen), norms.attention.gate)
        gate, up = self.gate_and_up(normalise(x, self.layer.post_attention_layernorm.eps, norms.mlp))
        hidden = functional.gelu(gate, approximate="tanh")
        hidden = hidden * up if hidden.requires_grad else hidden.mul_(up)
        return add_gated(x, self.down(hidden), norms.mlp.gate)


class FastVision:
    """SigLIP and its projector; attention without copies, queries, keys and values in one product."""

    def __init__(self, paligemma: Any, make: MakeLinear) -> None:
        vision = paligemma.vision_tower.vision_model
        self._embeddings, self._last_norm = vision.embeddings, vision.post_layernorm
        self._projector = make(*weights_of(paligemma.multi_modal_projector.linear))
        self._layers = [(layer, *self._products(layer, make)) for layer in vision.encoder.layers]

    @staticmethod
    def _products(layer: Any, make: MakeLinear) -> tuple[Linear, Linear, Linear, Linear]:
        attention, mlp = layer.self_attn, layer.mlp
        qkv = fuse(attention.q_proj, attention.k_proj, attention.v_proj)
        return (
            make(*qkv),
            make(*weights_of(attention.out_proj)),
            make(*weights_of(mlp.fc1)),
            make(*weights_of(mlp.fc2)),
        )

    def __call__(self, images: Float[Tensor, "b 3 y x"]) -> Float[Tensor, "b n w"]:
        """Tokens of every image."""
        x = self._embeddings(images.float())
        for layer, qkv, out, fc1, fc2 in self._layers:
            batch, length, width = x.shape
            heads = qkv(layer.layer_norm1(x)).view(batch, length, 3, layer.self_attn.num_heads, -1)
            queries, keys, values = heads.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(queries, keys, values)
            x = x + out(seen.transpose(1, 2).reshape(batch, length, width))
            x = x + fc2(functional.gelu(fc1(layer.layer_norm2(x)), approximate="tanh"))
        return self._projector(self._last_norm(x)).to(images.dtype)


class FastPrefix:
    """SigLIP and VLM over what is really there."""

    def __init__(self, towers: Any, make: MakeLinear, *, features: bool) -> None:
        self._towers, self._features = towers, features
        self._vision = FastVision(towers.paligemma.model, make)
        self._tower = towers.language_model
        self._layers = [GemmaLayer.of(layer, make) for layer in self._tower.layers]
        self._norms = [layer.norms(None) for layer in self._layers]
        self._step = 1
        self._see: Callable[[Tensor], Tensor] = self._vision.__call__
        self._pass: Callable[..., tuple[tuple[KeyValue, ...], Tensor]] = self._run

    def compile(self) -> None:
        """Let torch compile both passes when they are first asked; lengths are padded, so that few graphs do."""
        self._see, self._pass = CompiledPass(self._vision.__call__), CompiledPass(self._run)
        self._step = LENGTHS

    def __call__(self, inputs: BackboneInputs) -> Prefix:
        """What the VLM says about an observation."""
        parts, valid = [self._towers.embed_language_tokens(inputs.tokens)], [inputs.token_valid.cpu()]
        if inputs.images:
            seen = torch.stack(inputs.image_valid, dim=1).cpu()
            embedded = self._embed(torch.stack(inputs.images, dim=1), seen)
            parts.insert(0, embedded.flatten(1, 2))
            valid.insert(0, seen[..., None].expand(embedded.shape[:3]).flatten(1))
        x, kept = drop_invalid(torch.cat(parts, dim=1), torch.cat(valid, dim=1), self._step)
        x = x.to(self._tower.layers[0].self_attn.q_proj.weight.dtype)
        full = self._step == 1 and bool(kept.all())  # compiled passes always have a mask: one graph for both
        kept = send(kept, x.device)
        rotary = self._tower.rotary_emb(x, prefix_positions(kept).clamp_min(0))
        layers, features = self._pass(x, rotary, key_mask(kept, full=full))
        return Prefix(layers, kept, pooled(features, kept), full)

    def _embed(self, images: Float[Tensor, "b c 3 y x"], seen: Bool[Tensor, "b c"]) -> Float[Tensor, "b c n w"]:
        """Tokens of the cameras that are there; zeros, soon dropped, elsewhere. `seen` lies on the host."""
        pictures = images.flatten(0, 1)
        if bool(seen.all()):
            every = self._see(pictures)
            return every.view(*seen.shape, *every.shape[1:])
        places = send(seen.flatten().nonzero()[:, 0], images.device)
        there = self._see(pictures.index_select(0, places))
        every = there.new_zeros(seen.numel(), *there.shape[1:]).index_copy_(0, places, there)
        return every.view(*seen.shape, *every.shape[1:])

    def _run(
        self, x: Float[Tensor, "b s w"], rotary: tuple[Tensor, Tensor], mask: Bool[Tensor, "b 1 1 s"] | None
    ) -> tuple[tuple[KeyValue, ...], Float[Tensor, "b s v"]]:
        """Keys and values of every layer; features after the last one, of width 0 where nobody reads them."""
        kept = []
        last = len(self._layers) - 1
        for number, (layer, norms) in enumerate(zip(self._layers, self._norms, strict=True)):
            if number == last and not self._features:
                kept.append(layer.keys_and_values(x, norms, rotary))
                return tuple(kept), x.new_zeros(*x.shape[:2], 0)
            queries, pair = layer.split(layer.project(x, norms), rotary)
            kept.append(pair)
            x = layer.finish(x, attend(queries, *pair, mask), norms)
        return tuple(kept), normalise(x, self._tower.norm.eps, modulation(self._tower.norm, None))


class FastExpert:
    """Expert passes over prompts and action tokens; what does not depend on the observation is computed for one row.

    make  how products are computed, on weights that stay as they are: what was computed for one row is kept.
          None: with the modules themselves, for training; nothing is kept, gradients reach every weight.
    """

    def __init__(self, backbone: Any, make: MakeLinear | None) -> None:
        self._backbone = backbone
        self._tower = backbone.paligemma_with_expert.expert
        self._keep = make is not None
        self._layers = [GemmaLayer.of(layer, make) if make else GemmaLayer.live(layer) for layer in self._tower.layers]
        self._at_zero: tuple[list[Norms], Modulation] | None = None
        self._first: dict[int, Tensor] = {}
        self._pass: Callable[..., Tensor] = self._run

    def compile(self) -> None:
        """Let torch compile the pass when it is first asked; on a GPU as a CUDA graph, for its kernels are small."""
        self._pass = CompiledPass(self._run, as_graph=self._backbone.action_in_proj.weight.is_cuda)

    def __call__(
        self,
        prefix: Prefix,
        actions: Float[Tensor, "b h m"],
        noise_time: Float[Tensor, " b"],
        *,
        at_zero: bool,
        blank: bool,
    ) -> Float[Tensor, "b h w"]:
        """Features of the action tokens. `at_zero`: all noise times are known to be zero; `blank`: the actions too."""
        tokens = self._tokens(actions)
        x = tokens.to(self._tower.layers[0].self_attn.q_proj.weight.dtype)
        norms, last_norm = self._modulations(noise_time, at_zero)
        first = self._first_projection(x, norms[0]) if blank else self._layers[0].project(x, norms[0])
        masks = tuple(
            key_mask(prefix.valid, extra, full=prefix.full) for extra in (self._backbone.n_prompts, x.shape[1])
        )
        features = self._pass(x, first, norms, self._rotary(x, prefix), masks, prefix.layers)
        return normalise(features, self._tower.norm.eps, last_norm).to(tokens.dtype)

    def _run(
        self,
        x: Float[Tensor, "b n w"],
        qkv: Float[Tensor, "b n heads e"],
        norms: list[Norms],
        rotary: tuple[Tensor, Tensor],
        masks: tuple[Tensor | None, Tensor | None],
        past: tuple[KeyValue, ...],
    ) -> Float[Tensor, "b h w"]:
        """All layers, from the first one's projections on; action rows of what comes out."""
        prompts, total = self._backbone.n_prompts, x.shape[1]
        to_prompts, to_all = masks
        last = len(self._layers) - 1
        for number, layer in enumerate(self._layers):
            qkv = layer.project(x, norms[number]) if number else qkv
            queries, (keys, values) = layer.split(qkv, rotary)
            keys, values = torch.cat([past[number].keys, keys], dim=2), torch.cat([past[number].values, values], dim=2)
            seen = attend(queries[:, prompts:], keys, values, to_all)
            if prompts and number < last:
                visible = keys.shape[2] - (total - prompts)
                mine = attend(queries[:, :prompts], keys[:, :, :visible], values[:, :, :visible], to_prompts)
                seen = torch.cat([mine, seen], dim=1)
            x = layer.finish(x[:, -seen.shape[1] :], seen, norms[number])
        return x

    def _tokens(self, actions: Float[Tensor, "b h m"]) -> Float[Tensor, "b n w"]:
        tokens: Tensor = self._backbone.action_in_proj(actions)
        if self._backbone.prompts is None:
            return tokens
        return torch.cat([self._backbone.prompts.expand(len(actions), -1, -1), tokens], dim=1)

    def _rotary(self, x: Float[Tensor, "b n w"], prefix: Prefix) -> tuple[Tensor, Tensor]:
        rotary: tuple[Tensor, Tensor] = self._tower.rotary_emb(x, suffix_positions(prefix, x.shape[1]))
        return rotary

    def _modulations(self, noise_time: Float[Tensor, " b"], at_zero: bool) -> tuple[list[Norms], Modulation]:
        """Of every norm; at noise time zero the same for all rows."""
        if not at_zero:
            return self._modulate(noise_time)
        found = self._at_zero or self._modulate(noise_time[:1])
        self._at_zero = found if self._keep else None
        return found

    def _modulate(self, noise_time: Float[Tensor, " b"]) -> tuple[list[Norms], Modulation]:
        condition = self._backbone._time_condition(noise_time)
        return [layer.norms(condition) for layer in self._layers], modulation(self._tower.norm, condition)

    def _first_projection(self, x: Float[Tensor, "b n w"], norms: Norms) -> Float[Tensor, "b n heads e"]:
        """Of prompts and zero queries: the same for every observation."""
        length = x.shape[1]
        found = self._first[length] if length in self._first else self._layers[0].project(x[:1], norms)
        if self._keep:
            self._first[length] = found
        return found.expand(len(x), -1, -1, -1)
