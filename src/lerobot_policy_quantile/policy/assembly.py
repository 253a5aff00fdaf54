"""The parts of a policy as its configuration asks for them."""

from dataclasses import replace
from typing import Any, cast

from lerobot_policy_quantile.backbone import VARIANTS, Backbone
from lerobot_policy_quantile.configuration_quantile import FLOW_HEADS, QuantileConfig
from lerobot_policy_quantile.core.heads import FlowHead, Head, OneStepFlowHead, PointHead, QuantileHead
from lerobot_policy_quantile.core.levels import quantile_levels


def build_backbone(config: QuantileConfig) -> Backbone:
    """The backbone a configuration asks for, its weights random."""
    variant = VARIANTS[config.backbone]
    if config.backbone_layers is not None:
        depth, vision_depth = config.backbone_layers
        variant = replace(variant, depth=depth, vision_depth=vision_depth)
    return Backbone(
        variant,
        model_dim=config.max_action_dim,
        n_prompts=config.n_prompts,
        query=config.query,
        freeze_vlm=config.freeze_vlm,
        gradient_checkpointing=config.gradient_checkpointing,
        fast_training=config.fast_training,
        precision=cast(Any, config.dtype),
    )


def build_head(config: QuantileConfig, width: int) -> Head:
    """The head a configuration asks for, on features of this width."""
    sizes = (width, config.chunk_size, config.action_dim, config.max_action_dim)
    if config.head in FLOW_HEADS:
        return (FlowHead if config.head == "flow" else OneStepFlowHead)(*sizes)
    if config.head in ("l1", "l2"):
        return PointHead(*sizes, norm=cast(Any, config.head))
    head = QuantileHead(
        *sizes,
        levels=quantile_levels(config.n_quantiles),
        delta0=config.delta0,
        supervise=cast(Any, config.supervise),
        gaps=cast(Any, config.gaps),
        anchor=cast(Any, config.anchor),
    )
    if config.supervise == "median":  # gaps get no gradient: processes must not wait for one
        head.gap_projection.requires_grad_(False)
    return head
