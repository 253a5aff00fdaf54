"""What a checkpoint's configuration promises, the settings its weights need and no path of a machine; and what may
lie beside it.
"""

import copy
from pathlib import Path
from typing import Any

from jaxtyping import Float
from lerobot.configs import PreTrainedConfig
from lerobot.utils.constants import ACTION, OBS_STATE
from safetensors.torch import load_file
from torch import Tensor

from lerobot_policy_quantile.configuration_quantile import WEIGHT_FIELDS, QuantileConfig

COPULA_FILE = "copula.safetensors"
"""Beside a checkpoint: `correlation`, what `core.decoders.fit_copula` found in its training data."""

_SOURCE_ARGUMENTS = (
    *("force_download", "resume_download", "proxies", "token"),
    *("cache_dir", "local_files_only", "revision"),
)


def saved_config(source: str | Path, arguments: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of a checkpoint; of `from_pretrained`'s arguments, those that say where it comes from."""
    return PreTrainedConfig.from_pretrained(source, **{n: arguments[n] for n in _SOURCE_ARGUMENTS if n in arguments})


def stored_copula(source: str | Path) -> Float[Tensor, "c c"] | None:
    """The ranks' correlation beside a checkpoint on this machine, if there is one."""
    fitted = Path(source) / COPULA_FILE
    return load_file(fitted)["correlation"] if fitted.is_file() else None


def require_same_meaning(saved: PreTrainedConfig, asked: PreTrainedConfig) -> None:
    """Refuse to read a checkpoint's weights under settings they were not trained with."""
    problems = []
    for name in WEIGHT_FIELDS:
        trained, wanted = getattr(saved, name), getattr(asked, name)
        if trained != wanted:
            problems.append(f"- {name}: trained with {trained!r}, asked for {wanted!r}; set policy.{name}={trained}")
    for key, feature in (("input_features", OBS_STATE), ("output_features", ACTION)):
        shapes = [tuple(f.shape) for c in (saved, asked) if (f := (getattr(c, key) or {}).get(feature)) is not None]
        if len(set(shapes)) > 1:
            problems.append(f"- {feature}: trained with shape {shapes[0]}, asked for {shapes[1]}; use the trained one")
    if problems:
        raise ValueError("the checkpoint does not fit these settings:\n" + "\n".join(problems))


def portable(config: QuantileConfig) -> QuantileConfig:
    """A copy that names no path of this machine: weights and tokenizer are saved, not pointed at."""
    clean = copy.copy(config)
    clean.pretrained_path = None
    clean.prefix_cache = None
    for name in ("backbone_weights", "tokenizer"):
        source = getattr(config, name)
        if source is not None and (Path(source).exists() or Path(source).is_absolute()):
            setattr(clean, name, None)
    return clean
