"""What a reader calls heads, decoders and action dimensions."""

import re

from lerobot_policy_quantile.contract import OWN_DECODER
from lerobot_policy_quantile.core.decoders import PRESETS

HEADS = {"quantile": "Quantile head", "l1": "L1", "l2": "L2", "flow": "Flow matching"}

_DECODERS = {
    "median": "median",
    "native": "native ranks",
    "independent": "independent ranks",
    "shared": "shared rank",
    "density": "density-weighted",
    "density_all": "density, all seven",
    "densest": "densest interval",
    "choice": "choice (ours)",
    "tracking": "tracking (ours)",
    "copula": "copula (ours)",
}
"""Presets of the studies; their default parameters go without saying."""


def decoder_name(head: str, decoder: str) -> str:
    """What a reader calls a decoder: `shared rank in [0.2, 0.8]`, or the head's name where it has none."""
    if decoder == OWN_DECODER:
        return HEADS.get(head, head)
    preset = decoder.partition("(")[0]
    name = _DECODERS.get(preset, preset.replace("_", " "))
    usual = PRESETS[preset].defaults if preset in _DECODERS else {}
    values = {key: float(value) for key, value in re.findall(r"(\w+)=([-+\d.e]+)", decoder)}
    unusual = {key: value for key, value in values.items() if usual.get(key) != value}
    if preset == "shared" and "l" in unusual:
        low = unusual.pop("l")
        name = f"{name} in [{low:g}, {1 - low:g}]"
    return ", ".join([name, *(f"{key}={value:g}" for key, value in unusual.items())])
