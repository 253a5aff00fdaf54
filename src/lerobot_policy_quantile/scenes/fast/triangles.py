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

_BLUR = 2.5e-7
"""How far single precision may place a corner elsewhere, in metres and in pictures: 3.5 times what was measured."""

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
    view: Float[Array, "5"],
    window: Int[Array, "4"],
    mirror: Float[Array, "geom 4"],
    samples: Array,
    corners: Array,
    candidates: Array,
    seen: Array,
) -> None:
    """Mark in `seen` the faces of meshes, placed in the camera's axes, that may leave a trace in the window.

    `mirror` is empty for meshes as they are. For mirrored ones it is the mirror's plane in the axes of each mesh; what
    runs clockwise is their front, and what lies behind the plane is cut off.

    A renderer draws triangles in batches. Mesa judges by rounded corners which side one shows, and by exact ones as
    well if anything in its batch must be clipped. Where the two disagree about a face, what is seen depends on the
    faces around it, and its mesh is kept whole.

    `corners` and `candidates` are room to work in.
    """
    size, tangent, near, far, margin = view
    mirrored = len(mirror) > 0
    second, third = (2, 1) if mirrored else (1, 2)
    xs, ys, depths = corners[0], corners[1], corners[2]
    exact = np.zeros((3, 3))
    for geom in range(len(meshes)):
        first_vertex, vertex_count, first, count = meshes[geom]
        own = vertices[first_vertex : first_vertex + vertex_count]
        turn, place = rotations[geom], centres[geom]
        _project(own, turn.astype(np.float32), place.astype(np.float32), size, tangent, xs, ys, depths)
        its, may = faces[first : first + count], candidates[:count]
        sift(its, second, third, xs, ys, depths, window, near, margin, len(samples), may)
        clips = _reaches_out(xs[:vertex_count], ys[:vertex_count], depths[:vertex_count], size, near, far)
        if mirrored:
            already = seen[first : first + count]
            clips |= _sift_at_mirror(own, its, xs, ys, window, mirror[geom], margin, may, already)
        for face in range(count):
            if not may[face] or (seen[first + face] and not clips):
                continue
            a, b, c = its[face, 0], its[face, second], its[face, third]
            ax, ay, bx, by, cx, cy = xs[a], ys[a], xs[b], ys[b], xs[c], ys[c]
            if min(depths[a], min(depths[b], depths[c])) < 2 * near:
                seen[first + face] = True
            elif covers(ax, ay, bx, by, cx, cy, window, margin, samples):
                seen[first + face] = True
                if clips and _is_thin(ax, ay, bx, by, cx, cy, margin):
                    _project(own[its[face]], turn, place, size, tangent, exact[0], exact[1], exact[2])
                    blur = _BLUR * size * (1 + 1 / (tangent * exact[2].min()))
                    if _may_turn_over(exact, second, third, window, margin, blur, samples):
                        seen[first : first + count] = True
                        break


@_compiled
def _reaches_out(xs: Array, ys: Array, depths: Array, size: float, near: float, far: float) -> bool:
    """Whether any of the vertices may lie outside of what the camera sees, so that triangles are clipped."""
    half = np.float32(0.5) * size
    reach = np.float32(0.99) * half
    for number in range(len(xs)):
        if (
            depths[number] < 2 * near
            or depths[number] > np.float32(0.99) * far
            or abs(xs[number] - half) > reach
            or abs(ys[number] - half) > reach
        ):
            return True
    return False


@_compiled
def _is_thin(ax: float, ay: float, bx: float, by: float, cx: float, cy: float, margin: float) -> bool:
    """Whether moving its corners by the margin may turn a triangle over."""
    perimeter = abs(bx - ax) + abs(by - ay) + abs(cx - bx) + abs(cy - by) + abs(ax - cx) + abs(ay - cy)
    return bool(abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay)) <= margin * perimeter)


@_compiled
def _may_turn_over(
    corners: Float[Array, "3 corner"],
    second: int,
    third: int,
    window: Int[Array, "4"],
    grid: float,
    blur: float,
    samples: Float[Array, "sample 2"],
) -> bool:
    """Whether a triangle that shows its back shows its front, and covers a sample, once its corners are on the grid.

    Where the blur leaves open which point of the grid a coordinate is rounded to, both are tried.
    """
    order = (0, second, third)
    perimeter = area = 0.0
    points = np.zeros((3, 2, 2), np.int64)
    for number in range(3):
        one, next_one, last_one = order[number], order[(number + 1) % 3], order[(number + 2) % 3]
        perimeter += abs(corners[0, next_one] - corners[0, one]) + abs(corners[1, next_one] - corners[1, one])
        area += corners[0, one] * (corners[1, next_one] - corners[1, last_one])
        for axis in range(2):
            points[number, axis, 0] = np.floor((corners[axis, one] - blur) / grid + 0.5)
            points[number, axis, 1] = np.floor((corners[axis, one] + blur) / grid + 0.5)
    if area > blur * perimeter:
        return False
    if blur > grid:
        return True
    for choice in range(64):
        ax, ay = points[0, 0, choice & 1], points[0, 1, choice >> 1 & 1]
        bx, by = points[1, 0, choice >> 2 & 1], points[1, 1, choice >> 3 & 1]
        cx, cy = points[2, 0, choice >> 4 & 1], points[2, 1, choice >> 5 & 1]
        if (bx - ax) * (cy - ay) - (cx - ax) * (by - ay) > 0 and covers(
            ax * grid, ay * grid, bx * grid, by * grid, cx * grid, cy * grid, window, 0.0, samples
        ):
            return True
    return False


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
) -> bool:
    """Leave out what the mirror's plane cuts off, and keep all that it cuts through and that reaches into the window.

    Of what is left of a cut triangle neither the corners nor the side it shows are known well enough to tell more.
    Whether anything is cut.
    """
    cuts = False
    for face in range(len(faces)):
        a, b, c = faces[face, 0], faces[face, 1], faces[face, 2]
        low, high = np.inf, -np.inf
        for corner in (a, b, c):
            height = plane[3]
            for axis in range(3):
                height += plane[axis] * vertices[corner, axis]
            low, high = min(low, height), max(high, height)
        cuts |= low < ROUNDING
        if high < -ROUNDING:
            may[face] = False
        elif low < ROUNDING:
            right, left = max(xs[a], max(xs[b], xs[c])) + margin, min(xs[a], min(xs[b], xs[c])) - margin
            top, bottom = max(ys[a], max(ys[b], ys[c])) + margin, min(ys[a], min(ys[b], ys[c])) - margin
            if right > window[0] and left < window[2] and top > window[1] and bottom < window[3]:
                seen[face] = True
    return cuts


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
