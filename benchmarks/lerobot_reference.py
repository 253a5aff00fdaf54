"""LeRobot's own pi05 at the sizes of a variant: what our backbone is compared with, here and in the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi_gemma import PaliGemmaForConditionalGenerationWithPiGemma, PiGemmaForCausalLM
from torch import nn

from lerobot_policy_quantile.backbone import Backbone, Variant
from lerobot_policy_quantile.backbone.towers import expert_config, paligemma_config
from lerobot_policy_quantile.core.heads import Head

MODEL_DIM = 32
"""Width of pi05's action vectors."""


def randomise[M: nn.Module](module: M, seed: int = 0) -> M:
    """Weights at which every part matters: LeRobot starts with norms that ignore the noise time."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim < 2 or "dense" in name:
                weight.normal_(std=0.3, generator=generator)
            elif "lm_head" not in name:
                weight.normal_(std=weight[0].numel() ** -0.5, generator=generator)
    return module


def lerobot_model_of(backbone: Backbone, head: Head) -> modeling_pi05.PI05Pytorch:
    """LeRobot's model on the very memory of a backbone's weights: no second copy, its language-model heads left out."""
    with torch.device("meta"), shrunk(backbone.variant):
        reference = modeling_pi05.PI05Pytorch(pi05_config(backbone.variant, head.chunk_size))
    for tower in (reference.paligemma_with_expert.paligemma, reference.paligemma_with_expert.gemma_expert):
        tower.lm_head = None
    ours = {name: w for name, w in backbone.state_dict().items() if name in reference.state_dict()}
    ours |= {f"action_out_proj.{name}": w for name, w in head.projection.state_dict().items()}
    reference.load_state_dict(ours, assign=True)
    buffers = dict(backbone.named_buffers())
    for name, _ in list(reference.named_buffers()):
        module, _, field = name.rpartition(".")
        reference.get_submodule(module).register_buffer(field, buffers[name], persistent=False)
    return reference


@contextmanager
def shrunk(variant: Variant) -> Iterator[None]:
    """LeRobot builds pi05 at these sizes."""
    towers = type("Towers", (_SizedTowers,), {"variant": variant})
    sizes = {
        "gemma_2b": _gemma(variant, variant.vlm_width, variant.vlm_mlp),
        "gemma_300m": _gemma(variant, variant.expert_width, variant.expert_mlp),
    }
    with (
        mock.patch.object(modeling_pi05, "PaliGemmaWithExpertModel", towers),
        mock.patch.object(modeling_pi05, "get_gemma_config", sizes.__getitem__),
    ):
        yield


def pi05_config(variant: Variant, chunk_size: int) -> PI05Config:
    """LeRobot's settings: one camera, seven action dimensions."""
    size = variant.image_size
    return PI05Config(
        chunk_size=chunk_size,
        n_action_steps=chunk_size,
        max_action_dim=MODEL_DIM,
        image_resolution=(size, size),
        device="cpu",
        push_to_hub=False,
        input_features={"observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, size, size))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (7,))},
    )


class _SizedTowers(modeling_pi05.PaliGemmaWithExpertModel):  # type: ignore[misc]
    """LeRobot's two towers at the sizes of a variant; all methods are LeRobot's."""

    variant: Variant

    def __init__(self, *_: object, **__: object) -> None:
        nn.Module.__init__(self)
        self.freeze_vision_encoder = self.train_expert_only = False
        self.paligemma = PaliGemmaForConditionalGenerationWithPiGemma(config=paligemma_config(self.variant))
        self.gemma_expert = PiGemmaForCausalLM(config=expert_config(self.variant))
        self.gemma_expert.model.embed_tokens = None


def _gemma(variant: Variant, width: int, mlp: int) -> modeling_pi05.GemmaConfig:
    return modeling_pi05.GemmaConfig(width, variant.depth, mlp, variant.heads, variant.kv_heads, variant.head_dim)
