"""LeRobot's SigLIP, Gemma and action expert at the sizes of a variant, every weight drawn once.

LeRobot's constructor draws the language model three times, builds two language-model heads that
pi0.5 never uses (0.79 B parameters at full size) and fixes vocabulary and vision sizes. Here the
same modules are built without memory for their parameters, and then given it once.
"""

from typing import Any, Literal

import torch
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from lerobot.policies.pi05.modeling_pi05 import PaliGemmaWithExpertModel
from lerobot.policies.pi_gemma import PaliGemmaModelWithPiGemma, PiGemmaModel, PiGemmaRMSNorm
from torch import Tensor, nn
from transformers import GemmaConfig, PaliGemmaConfig

from lerobot_policy_quantile.backbone.variants import Variant
from lerobot_policy_quantile.core._checks import require_choice

Precision = Literal["float32", "bfloat16"]
PRECISIONS = ("float32", "bfloat16")
EMBEDDING_STD = 0.02

VLM_LAYER, EXPERT_LAYER, VISION_LAYER = "PiGemmaVlmLayer", "PiGemmaExpertLayer", "SiglipEncoderLayer"
WRAP_CLASSES = (VLM_LAYER, EXPERT_LAYER, VISION_LAYER)
"""Class names of the repeated layers: the units in which FSDP shards the model."""


class Towers(PaliGemmaWithExpertModel):  # type: ignore[misc]
    """PaliGemma and the action expert under LeRobot's parameter names, without language-model heads."""

    def __init__(self, variant: Variant, precision: Precision = "float32") -> None:
        require_choice("precision", precision, PRECISIONS)
        nn.Module.__init__(self)  # LeRobot's own constructor would build the full size
        self.freeze_vision_encoder = self.train_expert_only = False  # the Backbone freezes
        with init_empty_weights(include_buffers=False):
            self.paligemma = _Headless(PaliGemmaModelWithPiGemma(paligemma_config(variant)))
            self.gemma_expert = _Headless(PiGemmaModel(expert_config(variant)))
        self.gemma_expert.model.embed_tokens = None  # the expert reads no text
        for tower, layer_name in ((self.language_model, VLM_LAYER), (self.expert, EXPERT_LAYER)):
            tower.config._attn_implementation = "eager"  # as LeRobot's pi05 computes it
            _name_layers(tower, layer_name)
        self.to_bfloat16_for_selected_params(precision)  # before there is memory: half as much is taken at once
        materialise(self)

    def train(self, mode: bool = True) -> "Towers":
        """Set the mode and, unlike LeRobot's, return the module."""
        nn.Module.train(self, mode)
        return self

    @property
    def language_model(self) -> Any:
        """The VLM's Gemma."""
        return self.paligemma.model.language_model

    @property
    def expert(self) -> Any:
        """The action expert's Gemma, with adaptive norms."""
        return self.gemma_expert.model


class _Headless(nn.Module):
    """Keeps LeRobot's parameter names: the model of a language-model class that has no head."""

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def paligemma_config(variant: Variant) -> PaliGemmaConfig:
    """The VLM's sizes in the words of transformers; everything else as in LeRobot's pi05."""
    vision = {
        "image_size": variant.image_size,
        "patch_size": variant.patch_size,
        "hidden_size": variant.vision_width,
        "intermediate_size": variant.vision_mlp,
        "num_hidden_layers": variant.vision_depth,
        "num_attention_heads": variant.vision_heads,
        "projector_hidden_act": "gelu_fast",
        "vision_use_head": False,
    }
    sizes = {
        "vision_config": vision,
        "text_config": _gemma_sizes(variant, variant.vlm_width, variant.vlm_mlp),
        "projection_dim": variant.vlm_width,
        "hidden_size": variant.vlm_width,
        "vocab_size": variant.vocab_size,
        "image_token_index": variant.vocab_size,  # images enter as embeddings, never as a token
    }
    return PaliGemmaConfig.from_dict(sizes)


def expert_config(variant: Variant) -> GemmaConfig:
    """The expert's sizes in the words of transformers, with the adaptive norm switched on."""
    adaptive = {"use_adarms": True, "adarms_cond_dim": variant.expert_width}
    return GemmaConfig.from_dict(_gemma_sizes(variant, variant.expert_width, variant.expert_mlp) | adaptive)


def _gemma_sizes(variant: Variant, width: int, mlp: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": variant.depth,
        "num_attention_heads": variant.heads,
        "num_key_value_heads": variant.kv_heads,
        "head_dim": variant.head_dim,
        "vocab_size": variant.vocab_size,
        "hidden_activation": "gelu_pytorch_tanh",
        "use_adarms": False,
        "adarms_cond_dim": None,
    }


def _name_layers(tower: nn.Module, name: str) -> None:
    """Give the tower's layer class a name of its own.

    LeRobot makes a new layer class for each tower, all under one name; wrap policies look
    classes up by name and would find one tower only.
    """
    layer_class: Any = type(tower.layers[0])  # type: ignore[index]
    layer_class.__name__ = layer_class.__qualname__ = name


def materialise(module: nn.Module) -> None:
    """Give every empty parameter memory on torch's default device and its initial law, from the global generator.

    Linear, convolution and layer norm: torch's own. Embeddings: normal, std 0.02. Norms of Gemma:
    the identity; their adaptive form ignores the noise time at first. Drawn in float32 whatever the
    precision, one module after the other: a seed gives the same model, and only one module is held twice.
    """
    for part in module.modules():
        own = dict(part.named_parameters(recurse=False))
        for name, parameter in own.items():
            if parameter.is_meta:
                place = torch.empty_like(parameter, device=torch.get_default_device(), dtype=torch.float32)
                setattr(part, name, nn.Parameter(place))
        if own:
            _initialise(part)
        for name, parameter in own.items():
            getattr(part, name).data = getattr(part, name).data.to(parameter.dtype)
    for part in module.modules():
        if isinstance(part, PiGemmaRMSNorm) and part.dense is not None:
            nn.init.zeros_(part.dense.weight)


def _initialise(part: nn.Module) -> None:
    if isinstance(part, nn.Embedding):
        nn.init.normal_(part.weight, std=EMBEDDING_STD)
    elif isinstance(part, PiGemmaRMSNorm):
        weight: Tensor = part.weight
        nn.init.zeros_(weight)
    elif isinstance(part, nn.Linear | nn.Conv2d | nn.LayerNorm):
        part.reset_parameters()
    else:
        raise TypeError(f"no initial law for the parameters of {type(part).__name__}")
