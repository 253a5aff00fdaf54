"""A training and the names it goes by: those of its study or, in a size whose studies share trainings, its own.

A shared training is known by everything that decides its weights: the policy's settings that differ from the defaults,
updates, batch, warm-up, dataset, starting weights and seed. The full model of five studies is trained once.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from lerobot_policy_quantile.util.digests import digest, digest_files

TRAININGS = "trainings"
"""Folder of shared trainings in OUT."""
DATA_FILES = ("info.json", "stats.json", "demonstrations.json")
"""In a dataset's `meta/`: what tells two datasets apart. Statistics change with every sample."""
_DIGITS = 8
_PLACE = ("prefix_cache", "device")
"""Policy settings that say where to compute, not what."""


@dataclass(frozen=True)
class Training:
    """One set of weights."""

    label: str
    """Name in its study: variant and seed, such as `l1-0`."""
    name: str
    """Name of its folder and log."""
    policy: str
    """Name in journals."""
    folder: str

    @property
    def checkpoint(self) -> str:
        """The trained policy's folder."""
        return f"{self.folder}/checkpoints/last/pretrained_model"

    @property
    def row_label(self) -> str:
        """Name of its rows in the study: method and seed, such as `l1#0`."""
        variant, _, seed = self.label.rpartition("-")
        return row_label(variant, seed)


def row_label(variant: str, seed: int | str) -> str:
    """How tables and files name a variant's policy."""
    return f"{variant}#{seed}"


def own_training(home: str, variant: str, seed: int) -> Training:
    """A training that belongs to one study."""
    label = f"{variant}-{seed}"
    return Training(label, label, row_label(variant, seed), f"{home}/train/{label}")


def shared_training(
    out: str, variant: str, own: Mapping[str, Any], policy: Mapping[str, Any], schedule: Mapping[str, Any], seed: int
) -> Training:
    """A training that any study may refer to; `own` are the variant's settings, `policy` all of them."""
    decides = {"policy": changed(policy), **schedule}
    short = digest(json.dumps(decides, sort_keys=True))[:_DIGITS]
    name = f"{readable(own)}-{short}"
    return Training(f"{variant}-{seed}", f"{name}-{seed}", f"{name}#{seed}", f"{out}/{TRAININGS}/{name}-{seed}")


def changed(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that differ from the policy's defaults and decide its weights."""
    from lerobot_policy_quantile.configuration_quantile import QuantileConfig

    defaults = {each.name: each.default for each in fields(QuantileConfig) if each.default is not MISSING}
    return {
        name: value
        for name, value in policy.items()
        if name not in _PLACE and (name not in defaults or value != defaults[name])
    }


def readable(own: Mapping[str, Any]) -> str:
    """Such as `l1` or `quantile-drop_ratio_0.0`: head, then what else differs from the defaults."""
    differs = changed(own)
    head = str(differs.pop("head", "quantile"))
    return "-".join([head, *(f"{name}_{value}" for name, value in sorted(differs.items()))])


def content_digest(root: Path, weights: str) -> str:
    """Of a dataset's folder and of the weights to start from, wherever they lie."""
    from lerobot_policy_quantile.configuration_quantile import SHIPPED_BASES
    from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint

    data = digest_files(path for name in DATA_FILES if (path := root / "meta" / name).is_file())
    folder = base_checkpoint(weights) if weights in SHIPPED_BASES else Path(weights)
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    return digest(data, digest_files(files) if files else weights)
