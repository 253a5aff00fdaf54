"""A world's cameras under the names that a policy's dataset gave them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from lerobot_policy_quantile.adapters.policy_folder import CONFIG
from lerobot_policy_quantile.contract import CAMERA_KEYS

_EMPTY = "empty_camera_"
"""In the names of pictures that LeRobot's pi policies declare and never get."""


def parse_cameras(texts: Iterable[str]) -> dict[str, str]:
    """Texts such as `external=observation.images.front` -> camera -> feature; what is not said stays as in LIBERO."""
    found = dict(CAMERA_KEYS)
    for text in texts:
        camera, equals, feature = text.partition("=")
        if camera not in CAMERA_KEYS or not equals or not feature:
            example = "external=observation.images.front"
            raise ValueError(f"--camera must read like {example}, of {', '.join(CAMERA_KEYS)}; got {text!r}")
        found[camera] = feature
    if len(set(found.values())) < len(found):
        raise ValueError(f"--camera must name a feature once; got {spelled(found)}")
    return found


def spelled(cameras: Mapping[str, str]) -> str:
    """The mapping as the command line takes it."""
    return ", ".join(f"{camera}={feature}" for camera, feature in cameras.items())


def awaited(features: Iterable[str]) -> set[str]:
    """Pictures that a policy must be given."""
    return {feature for feature in features if _EMPTY not in feature}


def require_cameras(folder: Path, cameras: Mapping[str, str]) -> None:
    """Refuse a policy folder that reads pictures for which no camera was named."""
    inputs = json.loads((folder / CONFIG).read_bytes()).get("input_features") or {}
    pictures = [name for name, feature in inputs.items() if feature.get("type") == "VISUAL"]
    strangers = awaited(pictures) - set(cameras.values())
    if strangers:
        raise ValueError(
            f"policy {folder} reads the pictures {', '.join(sorted(strangers))}, which no camera is named for; say"
            f" which camera each is, --camera external={min(strangers)}; got {spelled(cameras)}"
        )
