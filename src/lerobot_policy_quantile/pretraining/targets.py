"""Training targets of samples: the named object, its labels, and positions.

Axes: b batch, c camera, t thing (in the order of `SPOTTED`), a aim: the named object, and in joint training also
where it goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lerobot_policy_quantile.pretraining.projection import FIELD_OF_VIEW, project
from lerobot_policy_quantile.pretraining.samples import STATIC, THINGS, Samples
from lerobot_policy_quantile.pretraining.suite_samples import SUITE_KINDS, SuiteSamples
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.embedded import NAMES

CAMERAS = ("external", "wrist")
SPOTTED = (*NAMES.values(), *SUITE_KINDS)
"""Everything that the vision tower learns to find; the basket is the last."""
PLACES = len(SPOTTED)
RELATIVE_UNIT = 0.1
"""Metres per unit of the regressed positions."""

ABSENT = -100
"""Patch of an object that is not in the scene; it has no loss."""

DRIVEN_SHARE = 0.75
"""Share of play samples with the instruction that the expert followed."""

NEAREST_SHARE = 0.5
"""How often a static scene is shown with the instruction to take what is nearest to the hand: the moments that decide
a grasp would otherwise be a quarter of those that were made for it.
"""


@dataclass(frozen=True)
class Targets:
    """Privileged positions of a batch."""

    patch: Int[Tensor, "b c t"]  # which patch holds it; `patches` itself out of the picture, ABSENT out of the scene
    offset: Float[Tensor, "b c t 2"]  # column and row inside the patch, in patches, -0.5 to 0.5
    aim_patch: Int[Tensor, "b c a"]  # the same for the aims
    aim_offset: Float[Tensor, "b c a 2"]
    relative: Float[Tensor, "b 6"]  # named thing and its destination from the hand, in `RELATIVE_UNIT`

    def __len__(self) -> int:
        return len(self.relative)

    @classmethod
    def join(cls, parts: Sequence["Targets"]) -> "Targets":
        """The targets of one batch from those of its parts."""
        return cls(**{f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)})


def draw_named(samples: Samples, rows: Int[Array, " b"], rng: np.random.Generator) -> Int[Array, " b"]:
    """A thing for each row that has a label for it: mostly the driven one in play, often the nearest otherwise."""
    known = np.asarray(samples.valid[rows].any(-1))
    named = np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in known])
    draw, driven = rng.random(len(rows)), samples.driven[rows]
    away = np.linalg.norm(samples.things[rows] - samples.state[rows, None, :3], axis=-1)
    nearest = np.where(known, away, np.inf).argmin(1)
    follow = (driven != STATIC) & (draw < DRIVEN_SHARE) & known[np.arange(len(rows)), driven]
    take = (driven == STATIC) & (draw < NEAREST_SHARE) & known.any(1)
    return np.select([follow, take], [driven, nearest], named)


def patch_targets(
    spot: Float[Array, "*n 2"], inside: Bool[Array, "*n"], side: int
) -> tuple[Int[Array, "*n"], Float[Array, "*n 2"]]:
    """Patch number (row by row; side * side when outside) and the place inside it."""
    cell = np.clip(np.floor(spot * side), 0, side - 1)
    patch = np.where(inside, cell[..., 1] * side + cell[..., 0], side * side)
    return patch.astype(np.int64), np.where(inside[..., None], spot * side - cell - 0.5, 0.0)


def targets_of(samples: Samples, rows: Int[Array, " b"], named: Int[Array, " b"], side: int, aims: int = 1) -> Targets:
    """All auxiliary targets of a batch; `side` patches per picture side. Of two aims the second is the basket."""
    points = np.full((len(rows), PLACES, 3), np.nan)
    points[:, : len(THINGS)], points[:, -1] = samples.things[rows], samples.goal[rows]
    patches, offsets = _in_cameras(samples, rows, points, side)
    hand = samples.state[rows, :3]
    away = np.concatenate([samples.things[rows, named] - hand, samples.goal[rows] - hand], axis=1)
    aimed = np.stack([named, np.full_like(named, PLACES - 1)], axis=1)[:, :aims]
    batch = np.arange(len(rows))[:, None]
    return Targets(
        torch.from_numpy(patches),
        torch.from_numpy(offsets).float(),
        torch.from_numpy(patches[batch, :, aimed].swapaxes(1, 2).copy()),
        torch.from_numpy(offsets[batch, :, aimed].swapaxes(1, 2).copy()).float(),
        torch.from_numpy(away / RELATIVE_UNIT).float(),
    )


def suite_targets_of(samples: SuiteSamples, rows: Int[Array, " b"], side: int) -> Targets:
    """The same in LIBERO's suites, with both aims; of the embedded scene's objects none is there."""
    things = np.full((len(rows), PLACES, 3), np.nan)
    things[:, -len(SUITE_KINDS) :] = samples.kinds[rows]
    aimed = np.stack([samples.target[rows], samples.destination[rows]], axis=1).astype(np.float64)
    patches, offsets = _in_cameras(samples, rows, np.concatenate([things, aimed], axis=1), side)
    away = (aimed - samples.state[rows, None, :3]).reshape(len(rows), 6)
    return Targets(
        torch.from_numpy(patches[..., :PLACES].copy()),
        torch.from_numpy(offsets[..., :PLACES, :].copy()).float(),
        torch.from_numpy(patches[..., PLACES:].copy()),
        torch.from_numpy(offsets[..., PLACES:, :].copy()).float(),
        torch.from_numpy(away / RELATIVE_UNIT).float(),
    )


def _in_cameras(
    samples: Samples | SuiteSamples, rows: Int[Array, " b"], points: Float[Array, "b t 3"], side: int
) -> tuple[Int[Array, "b c t"], Float[Array, "b c t 2"]]:
    """Patches and places in them; a point of NaN is absent."""
    absent = np.isnan(points).any(-1)
    patches, offsets = [], []
    for camera in CAMERAS:
        place = np.broadcast_to(getattr(samples, f"{camera}_place")[rows][:, None], points.shape)
        turn = np.broadcast_to(getattr(samples, f"{camera}_turn")[rows][:, None], (*points.shape, 3))
        patch, offset = patch_targets(*project(points, place, turn, FIELD_OF_VIEW[camera]), side)
        patches.append(np.where(absent, ABSENT, patch))
        offsets.append(offset)
    return np.stack(patches, 1), np.stack(offsets, 1)
