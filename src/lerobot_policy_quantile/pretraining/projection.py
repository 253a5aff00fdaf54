"""Projection of world points into camera images.

Images are rotated by 180 degrees relative to the renderer's output (rows from the bottom), so columns run against the
camera's x axis.
"""

import numpy as np
from jaxtyping import Bool, Float

from lerobot_policy_quantile.scenes.contract import Array

FIELD_OF_VIEW = {"external": 45.0, "wrist": 75.0}
"""Vertical, degrees."""


def project(
    points: Float[Array, "*n 3"], place: Float[Array, "*n 3"], turn: Float[Array, "*n 3 3"], field_of_view: float
) -> tuple[Float[Array, "*n 2"], Bool[Array, "*n"]]:
    """Column and row as fractions of the image size, and whether the point is inside the image."""
    local = np.einsum("...ji,...j->...i", turn, points - place)
    depth = np.maximum(-local[..., 2], 1e-6)
    reach = depth * np.tan(np.radians(field_of_view) / 2)
    spot = np.stack([0.5 - local[..., 0] / reach / 2, 0.5 - local[..., 1] / reach / 2], axis=-1)
    inside = (local[..., 2] < -1e-3) & ((spot >= 0) & (spot < 1)).all(-1)
    return spot, inside
