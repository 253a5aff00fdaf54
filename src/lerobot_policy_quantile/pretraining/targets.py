"""From samples to what is learned: which thing is named, its labels, and where things are.

Axes: b batch, c camera, t thing or the basket (last).
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lerobot_policy_quantile.pretraining.projection import EXTERNAL_PLACE, EXTERNAL_TURN, FIELD_OF_VIEW, project
from lerobot_policy_quantile.pretraining.samples import STATIC, THINGS, Samples
from lerobot_policy_quantile.scenes.contract import Array

CAMERAS = ("external", "wrist")
PLACES = len(THINGS) + 1
RELATIVE_UNIT = 0.1
"""Metres per unit of the regressed positions."""

DRIVEN_SHARE = 0.75
"""How often a moment of play is shown with the instruction that was followed."""


@dataclass(frozen=True)
class Targets:
    """Privileged positions of a batch."""

    patch: Int[Tensor, "b c t"]  # which patch holds it; `patches` itself when it is out of the picture
    offset: Float[Tensor, "b c t 2"]  # column and row inside the patch, in patches, -0.5 to 0.5
    named: Int[Tensor, " b"]
    relative: Float[Tensor, "b 6"]  # named thing and basket from the hand, in `RELATIVE_UNIT`


def draw_named(samples: Samples, rows: Int[Array, " b"], rng: np.random.Generator) -> Int[Array, " b"]:
    """A thing for each row that has a label for it: mostly the driven one in play, any in static scenes."""
    known = np.asarray(samples.valid[rows].any(-1))
    named = np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in known])
    driven = samples.driven[rows]
    follow = (driven != STATIC) & (rng.random(len(rows)) < DRIVEN_SHARE) & known[np.arange(len(rows)), driven]
    return np.where(follow, driven, named)


def patch_targets(
    spot: Float[Array, "*n 2"], inside: Bool[Array, "*n"], side: int
) -> tuple[Int[Array, "*n"], Float[Array, "*n 2"]]:
    """Patch number (row by row; side * side when outside) and the place inside it."""
    cell = np.clip(np.floor(spot * side), 0, side - 1)
    patch = np.where(inside, cell[..., 1] * side + cell[..., 0], side * side)
    return patch.astype(np.int64), (spot * side - cell - 0.5) * inside[..., None]


def targets_of(samples: Samples, rows: Int[Array, " b"], named: Int[Array, " b"], side: int) -> Targets:
    """All auxiliary targets of a batch; `side` patches per picture side."""
    points = np.concatenate([samples.things[rows], samples.goal[rows][:, None]], axis=1).astype(np.float64)
    places = {"external": np.broadcast_to(EXTERNAL_PLACE, (len(rows), 3)), "wrist": samples.wrist_place[rows]}
    turns = {"external": np.broadcast_to(EXTERNAL_TURN, (len(rows), 3, 3)), "wrist": samples.wrist_turn[rows]}
    patches, offsets = [], []
    for camera in CAMERAS:
        place = np.broadcast_to(places[camera][:, None], points.shape)
        turn = np.broadcast_to(turns[camera][:, None], (*points.shape, 3))
        patch, offset = patch_targets(*project(points, place, turn, FIELD_OF_VIEW[camera]), side)
        patches.append(patch)
        offsets.append(offset)
    hand = samples.state[rows, :3]
    away = np.concatenate([samples.things[rows, named] - hand, samples.goal[rows] - hand], axis=1)
    return Targets(
        torch.from_numpy(np.stack(patches, 1)),
        torch.from_numpy(np.stack(offsets, 1)).float(),
        torch.from_numpy(named.astype(np.int64)),
        torch.from_numpy(away / RELATIVE_UNIT).float(),
    )
