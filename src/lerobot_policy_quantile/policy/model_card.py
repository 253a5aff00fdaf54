"""What a model card says about this policy, added to LeRobot's own card."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from lerobot.policies.pretrained import PreTrainedPolicy

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.core.decoders import canonical_text
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.util.tables import markdown

METRICS = ("coverage_50", "coverage_80", "coverage_95", "width_80")
_PLACE = "## Inputs & Outputs"


def lerobots_card(
    policy: PreTrainedPolicy,
    dataset_repo_id: str,
    model_type: str,
    license: str | None,  # noqa: A002
    tags: list[str] | None,
    cfg: Any,
    dataset_meta: Any,
) -> ModelCard:
    """LeRobot's own card: a method of every policy up to 0.6.1, a function of the configuration after it."""
    inherited: Any = getattr(PreTrainedPolicy, "generate_model_card", None)
    if inherited is not None:
        written: ModelCard = inherited(policy, dataset_repo_id, model_type, license, tags, cfg, dataset_meta)
        return written
    from lerobot.common import train_utils

    config = replace(policy.config, license=license, tags=tags)
    written = train_utils.generate_model_card(config, cfg=cfg, dataset_meta=dataset_meta)
    data: Any = written.data
    data.datasets = dataset_repo_id
    return written


def make_model_card(card: ModelCard, config: QuantileConfig, log: Mapping[str, float]) -> ModelCard:
    """The same card with base model, head, levels and decoder; `card` is LeRobot's.

    `log` holds the values of the last training forward; empty for a policy that was not trained here.
    """
    data: Any = card.data
    if (base := hub_base_model(config)) is not None:
        data.base_model = base
    if config.head == "quantile":
        data.metrics = list(METRICS)
    section = describe(config, log)
    if _PLACE in card.text:
        card.text = card.text.replace(_PLACE, f"{section}\n{_PLACE}", 1)
    else:
        card.text = f"{card.text}\n{section}"
    return card


def hub_base_model(config: QuantileConfig) -> str | None:
    """The hub id of the backbone's weights; None for random weights or a local folder."""
    source = config.backbone_weights
    return source if source is not None and source.count("/") == 1 and not Path(source).exists() else None


def describe(config: QuantileConfig, log: Mapping[str, float]) -> str:
    """The method's section of the card."""
    rows = {
        "Backbone": config.backbone,
        "Base model": hub_base_model(config) or "none named",
        "VLM": "frozen" if config.freeze_vlm else "trained",
        "Prompts": str(config.n_prompts),
        "Query": config.query,
        "Head": config.head,
        "Chunk": f"{config.chunk_size} steps, {config.n_action_steps} executed before replanning",
        "Label drop ratio": f"{config.drop_ratio:g}",
    }
    if config.head == "quantile":
        levels = quantile_levels(config.n_quantiles)
        rows |= {
            "Levels": f"{config.n_quantiles}, from {float(levels[0]):.3f} to {float(levels[-1]):.3f}",
            "Supervision": f"{config.supervise}; gaps {config.gaps}; median anchor {config.anchor}",
            "Decoder": f"`{canonical_text(config.decoder)}`",
            "Grippers": ", ".join(map(str, config.gripper_dims)) or "none",
        }
    rows |= {f"{name}, last training batch": f"{value:.4g}" for name, value in log.items()}
    return f"## Method\n\n{markdown(('Setting', 'Value'), rows.items())}"
