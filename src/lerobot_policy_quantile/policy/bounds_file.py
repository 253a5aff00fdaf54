"""Conformal margins beside a checkpoint: `bounds.safetensors`, plain tensors with the digests of weights and data.

Axes: m mass, h chunk step, d action dim.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lerobot_policy_quantile.util.digests import digest_tree
from lerobot_policy_quantile.util.files import write_atomically

BOUNDS_FILE = "bounds.safetensors"
FORMAT = "qhead bounds 1"
REFIT = "fit them again: qhead calibrate --policy FOLDER --dataset DATASET --conformal MASS; or remove the file"


@dataclass(frozen=True)
class ConformalBounds:
    """Margins of central intervals, in normalised action units, and what they were fitted on."""

    masses: tuple[float, ...]
    margins: Float[Tensor, "m h d"]
    """Infinite where too few episodes reach a chunk step."""
    weights: str
    """Digest of the policy folder (`folder_digest`)."""
    data: str
    """Digest of the calibration episodes."""
    dataset: str
    """Its name on the hub, or the last part of its folder's path."""
    episodes: tuple[int, ...]

    def margin(self, mass: float) -> Float[Tensor, "h d"]:
        """Of one of the fitted masses."""
        for number, own in enumerate(self.masses):
            if abs(own - mass) < 1e-9:
                return self.margins[number]
        fitted = ", ".join(f"{own:g}" for own in self.masses)
        raise ValueError(f"mass must be one that bounds were fitted for, {fitted}; got {mass:g}")


def folder_digest(folder: Path) -> str:
    """Of every file of a policy folder but its bounds, names included."""
    return digest_tree(folder, without=(BOUNDS_FILE,))


def write_bounds(folder: Path, bounds: ConformalBounds) -> Path:
    """Write the file into the policy's folder."""
    facts = {
        "format": FORMAT,
        "weights": bounds.weights,
        "data": bounds.data,
        "dataset": bounds.dataset,
        "episodes": json.dumps(bounds.episodes),
    }
    tensors = {"masses": torch.tensor(bounds.masses, dtype=torch.float64), "margins": bounds.margins.contiguous()}
    write_atomically(folder / BOUNDS_FILE, save(tensors, metadata=facts))
    return folder / BOUNDS_FILE


def read_bounds(folder: Path) -> ConformalBounds | None:
    """The bounds of a policy folder, None without any; refuses those of other weights."""
    path = folder / BOUNDS_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            masses, margins = file.get_tensor("masses"), file.get_tensor("margins")
    except SafetensorError as error:
        raise ValueError(f"{path} is cut off or holds no bounds ({error}); {REFIT}") from None
    if facts.get("format") != FORMAT:
        raise ValueError(f"format in {path} must be {FORMAT!r}; got {facts.get('format')!r}; {REFIT}")
    if (weights := folder_digest(folder)) != facts["weights"]:
        raise ValueError(
            f"{path} was fitted for a policy folder with the digest {facts['weights']}; its files have {weights};"
            f" {REFIT}"
        )
    episodes: Sequence[int] = json.loads(facts["episodes"])
    known = tuple(float(mass) for mass in masses)
    return ConformalBounds(known, margins, facts["weights"], facts["data"], facts["dataset"], tuple(episodes))


def require_bounds(folder: Path) -> ConformalBounds:
    """The same, where there must be some."""
    bounds = read_bounds(folder)
    if bounds is None:
        raise ValueError(
            f"{folder / BOUNDS_FILE} does not exist; fit it: qhead calibrate --policy {folder} --dataset DATASET"
            " --conformal 0.9"
        )
    return bounds
