"""Which weights train at which rate (App. B)."""

from typing import Any

from torch import nn

from lerobot_policy_quantile.backbone import Backbone
from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.heads import Head


def parameter_groups(policy: nn.Module, backbone: Backbone, head: Head, config: QuantileConfig) -> list[dict[str, Any]]:
    """Prompts with their own rate and no decay; everything else that is trained. The head may have a rate of its own,
    too: it starts from nothing where the expert starts from a pretrained one.
    """
    prompts = list(backbone.prompt_parameters())
    own = [] if config.optimizer_head_lr is None else list(head.parameters())
    known = {id(p) for p in (*prompts, *own)}
    rest = [p for p in policy.parameters() if id(p) not in known]
    decay = config.optimizer_weight_decay
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": config.optimizer_lr, "weight_decay": decay},
        {"params": own, "lr": config.optimizer_head_lr, "weight_decay": decay},
        {"params": prompts, "lr": config.optimizer_prompt_lr, "weight_decay": 0.0},
    ]
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad and p.numel()]
    return [group for group in groups if group["params"]]
