"""Where a new policy's backbone starts: found and checked before a model is built, filled in after."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from lerobot_policy_quantile.backbone import Backbone, LoadReport, load_pi05_weights
from lerobot_policy_quantile.backbone.weight_files import StoredTensor, stored_tensors
from lerobot_policy_quantile.backbone.weights import INHERITED, checkpoint_folder, pi05_tensors
from lerobot_policy_quantile.backbone.weights import INPUT as PI05_INPUT
from lerobot_policy_quantile.configuration_quantile import NO_WEIGHTS, SHIPPED_BASES, QuantileConfig
from lerobot_policy_quantile.core.heads import Head
from lerobot_policy_quantile.policy.base_checkpoint import INPUT as BASE_INPUT
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint, load_base_weights

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InitialWeights:
    """A checkpoint that was found whole and whose action dimensions fit."""

    source: str
    folder: Path
    output_projection: str

    def fill(self, backbone: Backbone, head: Head) -> LoadReport:
        """Write the weights, and log what came, what is new and what was left."""
        load = load_base_weights if self.source in SHIPPED_BASES else _load_pi05
        report = load(backbone, head, self.folder, output_projection=self.output_projection)
        report = replace(report, source=self.source)
        _logger.info("backbone_weights %s", report)
        return report


def find_initial_weights(config: QuantileConfig) -> InitialWeights | None:
    """The checkpoint that a new policy starts from, noted in its configuration; None where that is to be random.

    Refuses, before the minutes that a full-size model takes to build: a frozen VLM of random weights that nobody
    asked for, a hub id that cannot be had, a broken file, and more action dimensions than the checkpoint has.
    """
    source = config.backbone_weights = config.weights_source
    if source == NO_WEIGHTS:
        _require_random_vlm_is_meant(config)
        _logger.warning("backbone_weights none: the backbone starts from random weights")
        return None
    shipped = source in SHIPPED_BASES
    folder = base_checkpoint(source) if shipped else checkpoint_folder(source)
    stored, key = (stored_tensors(folder), BASE_INPUT) if shipped else (pi05_tensors(folder), PI05_INPUT)
    if key in stored:
        _require_action_dims(source, stored[key], config)
    return InitialWeights(source, folder, config.output_projection)


def _require_random_vlm_is_meant(config: QuantileConfig) -> None:
    if config.freeze_vlm and not config.random_vlm:
        raise ValueError(
            "backbone_weights must be given with freeze_vlm: without them a VLM of random weights would be frozen;"
            f" got 'none' for backbone = {config.backbone!r}; set policy.backbone_weights to a pi05"
            " checkpoint, or policy.freeze_vlm=false, or policy.random_vlm=true if that is meant"
        )


def _require_action_dims(source: str, projection: StoredTensor, config: QuantileConfig) -> None:
    width, asked = projection.shape[-1], config.max_action_dim
    if asked < width:
        raise ValueError(
            f"max_action_dim must be {width} with backbone_weights = {source!r}, which pads smaller actions;"
            f" got {asked}; set policy.max_action_dim={width}"
        )
    if asked > width and config.output_projection == INHERITED:
        raise ValueError(
            f"max_action_dim must be at most {width} to inherit the output projection of {source!r}; got {asked}; set"
            f" policy.output_projection=fresh: it then starts anew, as do the input's dimensions beyond {width}"
        )


def _load_pi05(backbone: Backbone, head: Head, folder: Path, *, output_projection: str) -> LoadReport:
    return load_pi05_weights(backbone, head, str(folder), output_projection=output_projection)
