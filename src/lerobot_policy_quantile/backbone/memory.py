"""Memory that training with a frozen VLM takes, counted on a model that has none.

The model is built on torch's meta device and run once: shapes are computed, numbers are not. What
autograd would keep for the backward pass is summed over storages, so views are not counted twice.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from lerobot_policy_quantile.backbone.attention import KeyValue, Prefix
from lerobot_policy_quantile.backbone.inputs import BackboneInputs
from lerobot_policy_quantile.backbone.live_bytes import LiveBytes
from lerobot_policy_quantile.backbone.model import Backbone
from lerobot_policy_quantile.backbone.towers import Precision
from lerobot_policy_quantile.backbone.variants import Variant
from lerobot_policy_quantile.core.heads import QuantileHead

ADAM_MOMENTS = 2
HALF = torch.bfloat16.itemsize


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes held at the same time at the end of a forward pass; working space of single layers comes on top."""

    frozen_weights: int
    trained_weights: int
    gradients: int
    optimiser: int
    prefix: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return int(sum(astuple(self)))


@dataclass(frozen=True)
class TrainingShape:
    """What the memory of a training step depends on: sizes, precision, checkpointing."""

    variant: Variant
    batch: int
    cameras: int = 2
    text: int | None = None
    """Text tokens; None: as many as the variant's prompts may have."""
    chunk_size: int = 10
    action_dim: int = 7
    precision: Precision = "float32"
    gradient_checkpointing: bool = False

    @property
    def text_tokens(self) -> int:
        """Text tokens of every row."""
        return self.variant.max_token_length if self.text is None else self.text

    def model(self, *, freeze_vlm: bool = True) -> tuple[Backbone, QuantileHead]:
        """Backbone and head on the default device, weights as in training: what is trained is float32."""
        backbone = Backbone(
            self.variant,
            precision=self.precision,
            freeze_vlm=freeze_vlm,
            gradient_checkpointing=self.gradient_checkpointing,
        )
        for parameter in backbone.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return backbone, QuantileHead(backbone.expert_width, self.chunk_size, self.action_dim, backbone.model_dim)


def training_memory(shape: TrainingShape) -> TrainingMemory:
    """Bytes of one training process: AdamW, frozen VLM, quantile head.

    With bfloat16 the frozen weights are half as large and trained ones stay float32 under autocast:
    activations are then an upper bound, float32 ones and a half-precision copy of each trained matrix.
    """
    with torch.device("meta"):
        backbone, head = shape.model()
        prefix = empty_prefix(shape)
        queries, noise_time = torch.zeros(shape.batch, shape.chunk_size, backbone.model_dim), torch.zeros(shape.batch)
    trained = [p for p in backbone.parameters() if p.requires_grad]
    keys_values = [tensor for layer in prefix.layers for tensor in layer]
    held_already = {_storage_id(t) for t in (*backbone.parameters(), *head.parameters(), *keys_values)}
    kept = SavedTensors()
    with kept:
        head.quantiles(backbone.expert(prefix)(queries, noise_time))
    half = HALF if shape.precision == "bfloat16" else 0
    copies = half * sum(p.numel() for p in trained if p.ndim > 1)
    trained += head.parameters()
    return TrainingMemory(
        frozen_weights=_bytes(backbone.vlm_parameters()),
        trained_weights=_bytes(trained),
        gradients=_bytes(trained),
        optimiser=ADAM_MOMENTS * _bytes(trained),
        prefix=_bytes(keys_values),
        activations=kept.bytes_besides(held_already) + copies,
    )


def training_peak(
    shape: TrainingShape, *, micro_batch: int | None = None, processes: int = 1, freeze_vlm: bool = True
) -> int:
    """Bytes of one training process at the worst moment of an update: the batch, in pieces if told, AdamW.

    Forward and backward of one piece run on the meta device, and everything alive is counted. On top come AdamW's
    moments and what its update makes, the buckets of several processes, and the images that wait for their piece. With
    bfloat16 it is an upper bound, as in `training_memory`.
    """
    variant = shape.variant
    rows = min(shape.batch, micro_batch or shape.batch)
    with torch.device("meta"):
        backbone, head = shape.model(freeze_vlm=freeze_vlm)
        images = [torch.zeros(rows, 3, variant.image_size, variant.image_size) for _ in range(shape.cameras)]
        seen = [torch.ones(rows, dtype=torch.bool) for _ in images]
        tokens = torch.zeros(rows, shape.text_tokens, dtype=torch.long)
        queries, noise_time = torch.zeros(rows, shape.chunk_size, backbone.model_dim), torch.zeros(rows)
    parameters = [*backbone.parameters(), *head.parameters()]
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    backbone.train()
    with LiveBytes(known=parameters) as live:
        prefix = backbone.prefix(BackboneInputs(images, seen, tokens, torch.ones_like(tokens, dtype=torch.bool)))
        head.quantiles(backbone.expert(prefix)(queries, noise_time)).sum().backward()  # type: ignore[no-untyped-call]
    gradients = _bytes(trained)
    cast = [  # a checkpointed layer keeps no half-precision copy of its weights
        p for name, p in backbone.named_parameters() if not shape.gradient_checkpointing or "vision_tower" in name
    ]
    half = HALF if shape.precision == "bfloat16" else 0
    copies = half * sum(p.numel() for p in cast if p.requires_grad and p.ndim > 1)
    computing, updating = live.most + copies, 2 * gradients
    waiting = (shape.batch - rows) * shape.cameras * 3 * variant.image_size**2 * torch.float32.itemsize
    buckets = gradients if processes > 1 else 0
    held = _bytes(parameters) + ADAM_MOMENTS * gradients + buckets + waiting
    return int(held + max(computing, updating))


def weight_bytes(variant: Variant, *, precision: Precision = "float32", freeze_vlm: bool = True) -> int:
    """Bytes of a backbone's weights: trained ones are float32 whatever the precision of the others."""
    with torch.device("meta"):
        backbone = Backbone(variant, precision=precision, freeze_vlm=freeze_vlm)
    return sum(
        p.numel() * (torch.float32.itemsize if p.requires_grad else p.element_size()) for p in backbone.parameters()
    )


def empty_prefix(shape: TrainingShape) -> Prefix:
    """A prefix of the right shapes on the default device, without values."""
    variant, dtype = shape.variant, getattr(torch, shape.precision)
    tokens = shape.cameras * variant.image_tokens + shape.text_tokens
    size = (shape.batch, variant.kv_heads, tokens, variant.head_dim)
    layers = [KeyValue(torch.empty(size, dtype=dtype), torch.empty(size, dtype=dtype)) for _ in range(variant.depth)]
    valid = torch.ones(shape.batch, tokens, dtype=torch.bool)
    return Prefix(tuple(layers), valid, torch.empty(shape.batch, variant.vlm_width))


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Inside this context, remembers the storages that autograd keeps for the backward pass."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        super().__init__(self._remember, lambda tensor: tensor)

    def bytes_besides(self, known: set[int]) -> int:
        """Bytes of all remembered storages that are not `known`."""
        return sum(storage.nbytes() for key, storage in self._storages.items() if key not in known)

    def _remember(self, tensor: Tensor) -> Tensor:
        self._storages[_storage_id(tensor)] = tensor.untyped_storage()
        return tensor


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
