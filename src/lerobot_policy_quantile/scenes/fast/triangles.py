"""Which triangles cover a sample of a picture: the compiled part of `visible.py`.

Screen coordinates are in pixels from the lower left corner, depths in metres along the line of sight. A window is a
part of the picture: its first column and row, and the column and row behind its last.
"""

import numba
import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.scenes.contract import Array

ROUNDING = 1e-4
"""Metres by which MuJoCo's single precision may place a point elsewhere, many times over."""

_compiled = numba.njit(cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")
"""Rounding is covered by the margin, so sums may be taken in any order. What lies beside the eye is infinitely far off
on the screen: infinities are numbers here, and a division by zero is no error."""


@_compiled
def find_seen(
    vertices: Array,
    faces: Array,
    meshes: Array,
    centres: Array,
    rotations: Array,
    view: Float[Array, "4"],
    window: Int[Array, "4"],
    mirror: Float[Array, "geom 4"],
    samples: Array,
    corners: Array,
    candidates: Array,
    seen: Array,
) -> None:
    """Mark in `seen` the faces of meshes, placed in the camera's axes, that may leave a trace in the window.

    `mirror` is empty for meshes as they are. For mirrored ones it is the mirror's plane in the axes of each mesh; what
    runs clockwise is their front, and what lies behind the plane is cut off. `corners` and `candidates` are room to
    work in.
    """
    size, tangent, near, margin = view
    mirrored = len(mirror) > 0
    second, third = (2, 1) if mirrored else (1, 2)
    xs, ys, depths = corners[0], corners[1], corners[2]
    for geom in range(len(meshes)):
        first_vertex, vertex_count, first, count = meshes[geom]
        own = vertices[first_vertex : first_vertex + vertex_count]
        _project(own, rotations[geom], centres[geom], size, tangent, xs, ys, depths)
        its, may = faces[first : first + count], candidates[:count]
        sift(its, second, third, xs, ys, depths, window, near, margin, len(samples), may)
        if mirrored:
            _sift_at_mirror(own, its, xs, ys, window, mirror[geom], margin, may, seen[first : first + count])
        for face in range(count):
            if may[face] and not seen[first + face]:
                a, b, c = its[face, 0], its[face, second], its[face, third]
                cut = min(depths[a], min(depths[b], depths[c])) < 2 * near
                seen[first + face] = cut or covers(xs[a], ys[a], xs[b], ys[b], xs[c], ys[c], window, margin, samples)


@_compiled
def _project(
    vertices: Array, rotation: Array, centre: Array, size: float, tangent: float, xs: Array, ys: Array, depths: Array
) -> None:
    """Screen coordinates and depths of a mesh's vertices."""
    half = np.float32(0.5) * size
    scale = half / tangent
    for number in range(len(vertices)):
        x, y, z = vertices[number, 0], vertices[number, 1], vertices[number, 2]
        depth = rotation[2, 0] * x + rotation[2, 1] * y + rotation[2, 2] * z + centre[2]
        nearer = scale / depth
        xs[number] = half + nearer * (rotation[0, 0] * x + rotation[0, 1] * y + rotation[0, 2] * z + centre[0])
        ys[number] = half + nearer * (rotation[1, 0] * x + rotation[1, 1] * y + rotation[1, 2] * z + centre[1])
        depths[number] = depth


@_compiled
def sift(
    faces: Array,
    second: int,
    third: int,
    xs: Array,
    ys: Array,
    depths: Array,
    window: Int[Array, "4"],
    near: float,
    margin: float,
    rows: int,
    may: Array,
) -> None:
    """Which faces may leave a trace as far as simple tests tell; without a branch, so that many are done together.

    They show their front, reach into the window, and reach over a row and a column of samples; or the near plane cuts
    them, and then their corners on the screen say nothing.
    """
    half, lines = np.float32(0.5), np.float32(rows)
    first_x, first_y = np.float32(window[0]), np.float32(window[1])
    last_x, last_y = np.float32(window[2]), np.float32(window[3])
    for face in range(len(faces)):
        a, b, c = faces[face, 0], faces[face, second], faces[face, third]
        ax, bx, cx, ay, by, cy = xs[a], xs[b], xs[c], ys[a], ys[b], ys[c]
        nearest = min(depths[a], min(depths[b], depths[c]))
        farthest = max(depths[a], max(depths[b], depths[c]))
        left, right = min(ax, min(bx, cx)) - margin, max(ax, max(bx, cx)) + margin
        low, high = min(ay, min(by, cy)) - margin, max(ay, max(by, cy)) + margin
        # Twice the area, negative if the back is seen; moving corners changes it by less than margin times perimeter.
        front = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay) >= -2 * margin * (right - left + high - low)
        inside = (right > first_x) & (left < last_x) & (high > first_y) & (low < last_y)
        across = np.floor(right * lines - half) > np.floor(left * lines - half)
        upwards = np.floor(high * lines - half) > np.floor(low * lines - half)
        cut = nearest < 2 * near
        may[face] = (cut & (farthest > half * near)) | (~cut & front & inside & across & upwards)


@_compiled
def _sift_at_mirror(
    vertices: Array,
    faces: Array,
    xs: Array,
    ys: Array,
    window: Int[Array, "4"],
    plane: Float[Array, "4"],
    margin: float,
    may: Array,
    seen: Array,
) -> None:
    """Leave out what the mirror's plane cuts off, and keep all that it cuts through and that reaches into the window.

    Of what is left of a cut triangle neither the corners nor the side it shows are known well enough to tell more.
    """
    for face in range(len(faces)):
        a, b, c = faces[face, 0], faces[face, 1], faces[face, 2]
        low, high = np.inf, -np.inf
        for corner in (a, b, c):
            height = plane[3]
            for axis in range(3):
                height += plane[axis] * vertices[corner, axis]
            low, high = min(low, height), max(high, height)
        if high < -ROUNDING:
            may[face] = False
        elif low < ROUNDING:
            right, left = max(xs[a], max(xs[b], xs[c])) + margin, min(xs[a], min(xs[b], xs[c])) - margin
            top, bottom = max(ys[a], max(ys[b], ys[c])) + margin, min(ys[a], min(ys[b], ys[c])) - margin
            if right > window[0] and left < window[2] and top > window[1] and bottom < window[3]:
                seen[face] = True


@_compiled
def covers(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    cx: float,
    cy: float,
    window: Int[Array, "4"],
    margin: float,
    samples: Float[Array, "sample 2"],
) -> bool:
    """Whether a triangle that shows its front covers a sample of the window, or passes one within the margin."""
    left, right = min(ax, min(bx, cx)) - margin, max(ax, max(bx, cx)) + margin
    low, high = min(ay, min(by, cy)) - margin, max(ay, max(by, cy)) + margin
    for row in range(max(window[1], int(low)), min(window[3] - 1, int(high)) + 1):
        for column in range(max(window[0], int(left)), min(window[2] - 1, int(right)) + 1):
            for sample in range(len(samples)):
                x, y = column + samples[sample, 0], row + samples[sample, 1]
                if (
                    left <= x <= right
                    and low <= y <= high
                    and _on_left(ax, ay, bx, by, x, y, margin)
                    and _on_left(bx, by, cx, cy, x, y, margin)
                    and _on_left(cx, cy, ax, ay, x, y, margin)
                ):
                    return True
    return False


@_compiled
def _on_left(ax: float, ay: float, bx: float, by: float, x: float, y: float, margin: float) -> bool:
    """Whether a point may lie on the left of the line from a to b, or on it.

    Far from a short edge a small move of its ends turns the line by much: the reach grows with the distance to them.
    """
    reach = margin * (abs(x - ax) + abs(y - ay) + abs(x - bx) + abs(y - by))
    return bool((bx - ax) * (y - ay) - (by - ay) * (x - ax) >= -reach)


@_compiled
def keep_seen(
    drawn: Array,
    meshes: Array,
    seen: Array,
    whole: tuple[Array, Array, Array],
    tables: tuple[Array, Array, Array],
    counts: Array,
) -> None:
    """Move the seen faces of the drawn meshes, in their order, to the beginning of their mesh."""
    for mesh in drawn:
        first = meshes[mesh, 2]
        kept = first
        for face in range(first, first + meshes[mesh, 3]):
            if seen[face]:
                for table in range(3):
                    for corner in range(3):
                        tables[table][kept, corner] = whole[table][face, corner]
                kept += 1
        counts[mesh] = kept - first


@_compiled
def put_back(
    drawn: Array,
    meshes: Array,
    whole: tuple[Array, Array, Array],
    tables: tuple[Array, Array, Array],
    counts: Array,
) -> None:
    """Undo `keep_seen`."""
    for mesh in drawn:
        first = meshes[mesh, 2]
        for face in range(first, first + counts[mesh]):
            for table in range(3):
                for corner in range(3):
                    tables[table][face, corner] = whole[table][face, corner]
        counts[mesh] = meshes[mesh, 3]
