"""Rendering with only those triangles that affect the image; bit-identical to rendering all of them.

A software renderer spends most of its time on triangles that change nothing: robot and objects have a quarter of a
million of them, a picture of 96 x 96 pixels four samples a pixel. Before a picture is drawn, a triangle is left out if
it shows its back, lies outside the picture, or covers no sample position. All of that by a margin, because renderers
round corners to a fraction of a pixel. What is left is given to MuJoCo as smaller meshes, and MuJoCo draws it: shading,
textures, depth and everything that is no mesh stay MuJoCo's.

Only for software rendering (a GPU draws faster than this sorts), and only where a triangle leaves no trace but its own
pixels: no shadows, no mirrors. Elsewhere everything is drawn.

Units: screen coordinates in pixels from the lower left corner, depths in metres along the line of sight.
"""

from typing import Any, NamedTuple

import mujoco
import numba
import numpy as np
from jaxtyping import Bool, Float, UInt8

from lerobot_policy_quantile.scenes.contract import Array

_SOFTWARE = ("llvmpipe", "softpipe", "swrast")
_compiled = numba.njit(cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")
"""Rounding is covered by the margin, so sums may be taken in any order. What lies beside the eye is infinitely far off
on the screen: infinities are numbers here, and a division by zero is no error."""


class Grid(NamedTuple):
    """Sample positions of a renderer: the same in every pixel, each alone in its row and in its column."""

    samples: Float[Array, "sample 2"]
    margin: float
    """By how many pixels a corner may lie elsewhere than we think: twice what rounding moves it."""


class Eye(NamedTuple):
    """A camera as a pinhole: where it is, its axes, and how wide it sees."""

    place: Float[Array, "3"]
    axes: Float[Array, "3 3"]
    """Rows: to the right, up, ahead."""
    tangent: float
    """Of half the opening angle."""
    near: float

    def may_see(self, centres: Float[Array, "n 3"], radii: Float[Array, "n"]) -> Bool[Array, "n"]:
        """Whether spheres, in the camera's axes, reach into what it sees."""
        slant = np.hypot(1, self.tangent)
        sideways = np.abs(centres[:, :2]).max(axis=1) - self.tangent * centres[:, 2]
        seen: Array = (sideways <= slant * radii) & (centres[:, 2] + radii >= 0)
        return seen


class VisibleOnly:
    """Draws a robosuite simulator's cameras from what can be seen of its meshes, in robosuite's own rendering context.

    That context holds cut-down meshes between pictures; `sim.render` puts whole ones back before it draws.
    """

    def __init__(self, sim: Any, grid: Grid, size: int) -> None:
        self._sim, self._grid, self._size = sim, grid, size
        model = self._model = sim.model._model
        self._meshes = np.stack(
            [model.mesh_vertadr, model.mesh_vertnum, model.mesh_faceadr, model.mesh_facenum], axis=1
        ).astype(np.int64)
        corners, normals, texture = _faces_of(model)
        self._faces = corners.copy(), normals.copy(), texture.copy()
        self._corners = np.zeros((3, int(model.mesh_vertnum.max())), np.float32)
        self._candidates = np.zeros(int(model.mesh_facenum.max()), np.bool_)
        self._seen = np.zeros(model.nmeshface, np.bool_)
        self._cut: set[int] = set()
        self._render_whole, sim.render = sim.render, self._render

    def draw(self, camera: str) -> UInt8[Array, "y x 3"] | None:
        """What robosuite's `sim.render` gives; None if this scene must be drawn whole."""
        scene = _scene_of(self._sim, self._sim.model.camera_name2id(camera))
        geoms, eye = _mesh_geoms(scene), _eye_of(scene)
        if geoms is None or eye is None:
            return None
        self._cut_down(geoms, eye)
        whole = mujoco.MjrRect(0, 0, self._size, self._size)
        picture = np.empty((self._size, self._size, 3), np.uint8)
        context = self._sim._render_context_offscreen.con
        mujoco.mjr_render(whole, scene, context)
        mujoco.mjr_readPixels(picture, None, whole, context)
        return picture

    def _render(self, *arguments: Any, **options: Any) -> Any:
        """In place of robosuite's `sim.render`: the same, with whole meshes."""
        for number in self._cut:
            mujoco.mjr_uploadMesh(self._model, self._sim._render_context_offscreen.con, number)
        self._cut.clear()
        return self._render_whole(*arguments, **options)

    def _cut_down(self, geoms: list[Any], eye: Eye) -> None:
        """Hand the context what can be seen of the meshes; the model has them cut down only while that lasts."""
        numbers = np.array([geom.dataid // 2 for geom in geoms])
        centres = (np.array([geom.pos for geom in geoms], np.float64) - eye.place) @ eye.axes.T
        rotations = eye.axes @ np.array([geom.mat for geom in geoms], np.float64).reshape(-1, 3, 3)
        near = eye.may_see(centres, self._model.geom_rbound[[geom.objid for geom in geoms]])
        self._seen[:] = False
        _find_seen(
            self._model.mesh_vert,
            self._faces[0],
            self._meshes[numbers[near]],
            centres[near].astype(np.float32),
            rotations[near].astype(np.float32),
            np.array([self._size, eye.tangent, eye.near, self._grid.margin], np.float32),
            self._grid.samples,
            self._corners,
            self._candidates,
            self._seen,
        )
        drawn = np.unique(numbers)
        tables, counts = _faces_of(self._model), self._model.mesh_facenum
        _keep_seen(drawn, self._meshes, self._seen, self._faces, tables, counts)
        for number in drawn:
            mujoco.mjr_uploadMesh(self._model, self._sim._render_context_offscreen.con, number)
        _put_back(drawn, self._meshes, self._faces, tables, counts)
        self._cut.update(drawn)


def visible_only(sim: Any, size: int) -> VisibleOnly | None:
    """For a simulator whose GL context is the current one; None where everything must be drawn, or had better be."""
    from OpenGL import GL  # only now: it asks which platform robosuite has chosen

    renderer = GL.glGetString(GL.GL_RENDERER).decode()
    if not any(name in renderer for name in _SOFTWARE) or _mesh_geoms(_scene_of(sim, 0)) is None:
        return None
    count = int(GL.glGetIntegerv(GL.GL_SAMPLES))
    places = [GL.glGetMultisamplefv(GL.GL_SAMPLE_POSITION, number) for number in range(count)] or [[0.5, 0.5]]
    grid = Grid(np.array(places, np.float32), 2.0 ** -int(GL.glGetIntegerv(GL.GL_SUBPIXEL_BITS)))
    return VisibleOnly(sim, grid, size) if is_even(grid.samples) else None


def is_even(samples: Float[Array, "sample 2"]) -> bool:
    """Whether a pixel's samples lie in the middle of as many equal rows and columns: `_sift` relies on it."""
    middles = (np.arange(len(samples)) + 0.5) / len(samples)
    return bool(np.allclose(np.sort(samples, axis=0), middles[:, None]))


def _scene_of(sim: Any, camera: int) -> Any:
    """robosuite's scene as a camera sees it now."""
    robosuite = sim._render_context_offscreen
    robosuite.cam.type, robosuite.cam.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
    shown = robosuite.vopt, robosuite.pert, robosuite.cam, mujoco.mjtCatBit.mjCAT_ALL
    mujoco.mjv_updateScene(sim.model._model, sim.data._data, *shown, robosuite.scn)
    return robosuite.scn


def _faces_of(model: Any) -> tuple[Array, Array, Array]:
    """Corners, normals and texture coordinates of all faces, as numbers into the model's tables."""
    return model.mesh_face, model.mesh_facenormal, model.mesh_facetexcoord


def _mesh_geoms(scene: Any) -> list[Any] | None:
    """The meshes among a scene's geoms; None if triangles may leave other traces (shadows, mirrors, backs, hulls)."""
    geoms = scene.geoms[: scene.ngeom]
    meshes = [geom for geom in geoms if geom.type == mujoco.mjtGeom.mjGEOM_MESH]
    flags = scene.flags
    shadows = flags[mujoco.mjtRndFlag.mjRND_SHADOW] and any(light.castshadow for light in scene.lights[: scene.nlight])
    mirrors = flags[mujoco.mjtRndFlag.mjRND_REFLECTION] and any(
        geom.reflectance > 0 and geom.type in (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX) for geom in geoms
    )
    backs = not flags[mujoco.mjtRndFlag.mjRND_CULL_FACE] or flags[mujoco.mjtRndFlag.mjRND_WIREFRAME]
    hulls = any(geom.dataid % 2 for geom in meshes)
    return None if not meshes or shadows or mirrors or backs or hulls or scene.enabletransform else meshes


def _eye_of(scene: Any) -> Eye | None:
    """The camera of a scene; None if it does not see equally far to all sides."""
    camera = mujoco.mjv_averageCamera(scene.camera[0], scene.camera[1])
    near, top = float(camera.frustum_near), float(camera.frustum_top)
    if camera.orthographic or camera.frustum_center or camera.frustum_width or top != -camera.frustum_bottom:
        return None
    ahead, up = (np.array(axis, np.float64) / np.linalg.norm(axis) for axis in (camera.forward, camera.up))
    return Eye(np.array(camera.pos, np.float64), np.stack([np.cross(ahead, up), up, ahead]), top / near, near)


@_compiled
def _find_seen(
    vertices: Array,
    faces: Array,
    meshes: Array,
    centres: Array,
    rotations: Array,
    view: Float[Array, "4"],
    samples: Array,
    corners: Array,
    candidates: Array,
    seen: Array,
) -> None:
    """Mark in `seen` the faces of meshes, placed in the camera's axes, that may leave a trace.

    `corners` and `candidates` are work arrays.
    """
    size, tangent, near, margin = view
    xs, ys, depths = corners[0], corners[1], corners[2]
    for geom in range(len(meshes)):
        first_vertex, vertex_count, first, count = meshes[geom]
        own = vertices[first_vertex : first_vertex + vertex_count]
        _project(own, rotations[geom], centres[geom], size, tangent, xs, ys, depths)
        its, may = faces[first : first + count], candidates[:count]
        _sift(its, xs, ys, depths, size, near, margin, len(samples), may)
        for face in range(count):
            if may[face] and not seen[first + face]:
                a, b, c = its[face, 0], its[face, 1], its[face, 2]
                cut = min(depths[a], min(depths[b], depths[c])) < 2 * near
                seen[first + face] = cut or _covers(
                    xs[a], ys[a], xs[b], ys[b], xs[c], ys[c], int(size), margin, samples
                )


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
def _sift(
    faces: Array,
    xs: Array,
    ys: Array,
    depths: Array,
    size: float,
    near: float,
    margin: float,
    rows: int,
    may: Array,
) -> None:
    """Which faces may affect the image, by simple tests; without branches, so that it is vectorised.

    They show their front, reach into the picture, and reach over a row and a column of samples; or the near plane cuts
    them, in which case their screen coordinates are meaningless.
    """
    half, lines = np.float32(0.5), np.float32(rows)
    for face in range(len(faces)):
        a, b, c = faces[face, 0], faces[face, 1], faces[face, 2]
        ax, bx, cx, ay, by, cy = xs[a], xs[b], xs[c], ys[a], ys[b], ys[c]
        nearest = min(depths[a], min(depths[b], depths[c]))
        farthest = max(depths[a], max(depths[b], depths[c]))
        left, right = min(ax, min(bx, cx)) - margin, max(ax, max(bx, cx)) + margin
        low, high = min(ay, min(by, cy)) - margin, max(ay, max(by, cy)) + margin
        # Twice the area, negative if the back is seen; moving corners changes it by less than margin times perimeter.
        front = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay) >= -2 * margin * (right - left + high - low)
        inside = (right > 0) & (left < size) & (high > 0) & (low < size)
        across = np.floor(right * lines - half) > np.floor(left * lines - half)
        upwards = np.floor(high * lines - half) > np.floor(low * lines - half)
        cut = nearest < 2 * near
        may[face] = (cut & (farthest > half * near)) | (~cut & front & inside & across & upwards)


@_compiled
def _covers(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    cx: float,
    cy: float,
    size: int,
    margin: float,
    samples: Float[Array, "sample 2"],
) -> bool:
    """Whether a triangle that shows its front covers a sample, or passes one within the margin."""
    left, right = min(ax, min(bx, cx)) - margin, max(ax, max(bx, cx)) + margin
    low, high = min(ay, min(by, cy)) - margin, max(ay, max(by, cy)) + margin
    for row in range(max(0, int(low)), min(size - 1, int(high)) + 1):
        for column in range(max(0, int(left)), min(size - 1, int(right)) + 1):
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
    """Whether a point may lie on the left of the line from a to b, or on it."""
    reach = margin * (abs(bx - ax) + abs(by - ay))
    return bool((bx - ax) * (y - ay) - (by - ay) * (x - ax) >= -reach)


@_compiled
def _keep_seen(
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
def _put_back(
    drawn: Array,
    meshes: Array,
    whole: tuple[Array, Array, Array],
    tables: tuple[Array, Array, Array],
    counts: Array,
) -> None:
    """Undo `_keep_seen`."""
    for mesh in drawn:
        first = meshes[mesh, 2]
        for face in range(first, first + counts[mesh]):
            for table in range(3):
                for corner in range(3):
                    tables[table][face, corner] = whole[table][face, corner]
        counts[mesh] = meshes[mesh, 3]
