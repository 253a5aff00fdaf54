"""Sizes of the variants: the real ones are LeRobot's, the small ones small, the structure one."""

from dataclasses import replace

import pytest
import torch
from lerobot.policies.pi05.modeling_pi05 import PaliGemmaWithExpertModel, get_gemma_config

from lerobot_policy_quantile.backbone import VARIANTS, Backbone
from lerobot_policy_quantile.backbone.towers import Towers


def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def test_pi05_has_every_parameter_of_lerobots_full_size_but_the_language_model_heads():
    """Built without memory on both sides, so that it costs none."""
    with torch.device("meta"):
        sizes = get_gemma_config("gemma_2b"), get_gemma_config("gemma_300m")
        theirs = shapes(PaliGemmaWithExpertModel(*sizes, use_adarms=[False, True], precision="float32"))
        ours = shapes(Towers(VARIANTS["pi05"]))
    heads = {name for name in theirs if "lm_head" in name}
    assert heads == {"paligemma.lm_head.weight", "gemma_expert.lm_head.weight"}
    assert ours == {name: shape for name, shape in theirs.items() if name not in heads}


@pytest.mark.parametrize(("name", "low", "high"), [("tiny", 2e6, 8e6), ("small", 20e6, 100e6)])
def test_smaller_variants_have_the_promised_size_and_the_same_structure(name: str, low: float, high: float):
    backbone = Backbone(VARIANTS[name])
    assert low <= sum(p.numel() for p in backbone.parameters()) <= high
    first = {k for k in backbone.state_dict() if ".layers." not in k or ".layers.0." in k}
    assert not any(k.endswith("lm_head.weight") for k in first)
    assert any("vision_tower" in k for k in first)
    assert any(k.endswith("gemma_expert.model.layers.0.input_layernorm.dense.weight") for k in first)


def test_weights_are_drawn_from_the_global_generator_and_none_is_left_empty():
    built = []
    for _ in range(2):
        torch.manual_seed(11)
        built.append(Backbone(VARIANTS["tiny"], query="vlm").state_dict())
    assert all(torch.equal(built[0][name], built[1][name]) for name in built[0])
    assert all(tensor.isfinite().all() and not tensor.is_meta for tensor in built[0].values())
    matrices = [t for n, t in built[0].items() if t.ndim > 1 and not n.endswith("dense.weight")]
    assert all(0.005 < t.std() < 1 for t in matrices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_size": 65}, "image_size must be a positive multiple of patch_size = 16; got 65"),
        ({"vision_heads": 3}, "vision_width must be a positive multiple of vision_heads = 3; got 128"),
        ({"kv_heads": 3}, "heads must be a positive multiple of kv_heads = 3; got 8"),
        ({"head_dim": 15}, "head_dim must be even; got 15"),
        ({"expert_width": 127}, "expert_width must be even; got 127"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        replace(VARIANTS["tiny"], **change)
