"""Rendering with only those triangles that affect the image; bit-identical to rendering all of them.

A software renderer spends most of its time on triangles that change nothing: robot and objects have a quarter of a
million of them, a picture of 96 x 96 pixels four samples a pixel. Before a picture is drawn, a triangle is left out if
it shows its back, lies outside the picture, or covers no sample position. All of that by a margin, because renderers
round corners to a fraction of a pixel. What is left is given to MuJoCo as smaller meshes, and MuJoCo draws it: shading,
textures, depth and everything that is no mesh stay MuJoCo's.

A mirror may show a second trace of a triangle: MuJoCo draws everything again, mirrored, where the one reflecting face
of a scene is. So a triangle is kept as well if its mirrored image covers a sample in that part of the picture.

Only for software rendering (a GPU draws faster than this sorts), and only where a triangle leaves no traces but these:
no shadows. Elsewhere everything is drawn.
"""

from typing import Any, NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.fast.triangles import ROUNDING, find_seen, keep_seen, put_back

_SOFTWARE = ("llvmpipe", "softpipe", "swrast")

_OPAQUE = 0.995
"""MuJoCo's bound on the fourth colour value."""

_EDGE = 1e-3
"""Half pictures by which a part is wider than what it is around: edges are rounded, to a fraction of a pixel."""

_WHOLE = np.array([-1.0, -1.0, 1.0, 1.0])
"""A part of a picture: its left, lower, right and upper edge, from -1 to 1."""


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
    far: float

    def may_see(
        self, centres: Float[Array, "n 3"], radii: Float[Array, "n"], part: Float[Array, "4"] = _WHOLE
    ) -> Bool[Array, "n"]:
        """Whether spheres, in the camera's axes, reach into a part of what it sees."""
        edges = self.tangent * part
        sideways, ahead = centres[:, :2], centres[:, 2:]
        beyond = np.concatenate([edges[:2] * ahead - sideways, sideways - edges[2:] * ahead], axis=1)
        seen: Array = (beyond <= np.hypot(1, edges) * radii[:, None]).all(axis=1) & (centres[:, 2] + radii >= 0)
        return seen

    def of(self, points: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """Places of the world in the camera's axes."""
        return (points - self.place) @ self.axes.T

    def part_around(self, points: Float[Array, "n 3"]) -> Float[Array, "4"]:
        """A part of the picture with all these places of the world well inside; the whole if one is not in front."""
        inside = self.of(points)
        if inside[:, 2].min() < 2 * self.near:
            return _WHOLE
        screen = inside[:, :2] / (self.tangent * inside[:, 2:])
        around: Array = np.clip([*screen.min(axis=0) - _EDGE, *screen.max(axis=0) + _EDGE], -1, 1)
        return around


class Mirror(NamedTuple):
    """A reflecting face: a place on it, its normal, and in which part of the picture it lies."""

    place: Float[Array, "3"]
    normal: Float[Array, "3"]
    part: Float[Array, "4"]

    def above(self, points: Float[Array, "n 3"]) -> Float[Array, "n"]:
        """How far places lie in front of it."""
        height: Array = (points - self.place) @ self.normal
        return height


class Placed(NamedTuple):
    """Meshes as a scene has them; a mesh may be there several times."""

    meshes: Int[Array, "geom"]
    radii: Float[Array, "geom"]
    places: Float[Array, "geom 3"]
    turns: Float[Array, "geom 3 3"]

    def of(self, chosen: Bool[Array, "geom"] | Int[Array, "n"]) -> "Placed":
        """Some of them."""
        return Placed(*(column[chosen] for column in self))

    def moved_from(self, before: "Placed") -> Bool[Array, "geom"]:
        """Which are elsewhere than before; all of them where they are others."""
        if not np.array_equal(self.meshes, before.meshes):
            return np.ones(len(self.meshes), np.bool_)
        moved: Array = (self.places != before.places).any(1) | (self.turns != before.turns).any((1, 2))
        return moved


class CutMeshes:
    """What one camera sees of the meshes, and lists of its own in the rendering context that hold just that."""

    def __init__(self, lists: int, meshes: int, faces: int) -> None:
        self.lists = lists
        self.seen = np.zeros(faces, np.bool_)
        self._listed = np.zeros(meshes, np.bool_)
        self._view: tuple[Array, ...] = ()
        self._placed: Placed | None = None

    def outdated(self, eye: Eye, mirrors: list[Mirror], placed: Placed) -> Int[Array, "n"]:
        """Meshes of which another part may be seen than in the last picture: they, a mirror or the eye have moved."""
        view = tuple(np.asarray(value) for part in (eye, *mirrors) for value in part)
        last_view, last = self._view, self._placed
        self._view, self._placed = view, placed
        if last is None or len(view) != len(last_view) or not all(map(np.array_equal, view, last_view)):
            return np.unique(placed.meshes)
        return np.unique(placed.meshes[placed.moved_from(last)])

    def unlisted(self, meshes: Int[Array, "n"], table: Int[Array, "mesh 4"], before: Bool[Array, "face"]) -> list[int]:
        """Those of which the lists hold something else than what is seen; taken as listed from now on."""
        found = []
        for mesh in meshes:
            faces = slice(first := table[mesh, 2], first + table[mesh, 3])
            if not self._listed[mesh] or not np.array_equal(before[faces], self.seen[faces]):
                found.append(int(mesh))
        self._listed[found] = True
        return found


class VisibleOnly:
    """Draws a robosuite simulator's cameras from what can be seen of its meshes, in robosuite's own rendering context.

    Every camera has lists of cut-down meshes of its own beside that context's whole ones, and of these only those are
    made again of which it sees another part than before: of what stands still, a camera that does so keeps them.
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
        self._cameras: dict[str, CutMeshes] = {}

    def draw(self, camera: str) -> UInt8[Array, "y x 3"] | None:
        """What robosuite's `sim.render` gives; None if this scene must be drawn whole."""
        scene = _scene_of(self._sim, self._sim.model.camera_name2id(camera))
        geoms, eye = _mesh_geoms(scene), _eye_of(scene)
        if geoms is None or eye is None:
            return None
        mirrors, context = _mirrors(scene, eye), self._sim._render_context_offscreen.con
        if camera not in self._cameras:
            self._cameras[camera] = CutMeshes(_new_lists(self._model.nmesh), self._model.nmesh, self._model.nmeshface)
        cut = self._cameras[camera]
        whole = mujoco.MjrRect(0, 0, self._size, self._size)
        picture = np.empty((self._size, self._size, 3), np.uint8)
        reflects = scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION]
        scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = bool(mirrors)
        its_own, context.baseMesh = context.baseMesh, cut.lists
        try:
            self._cut_down(cut, self._placed(geoms), eye, mirrors)
            mujoco.mjr_render(whole, scene, context)
        finally:
            context.baseMesh = its_own
            scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = reflects
        mujoco.mjr_readPixels(picture, None, whole, context)
        return picture

    def seen(self, camera: str) -> Bool[Array, "face"]:
        """The faces that were drawn in its last picture."""
        return self._cameras[camera].seen

    def _placed(self, geoms: list[Any]) -> Placed:
        meshes = np.array([geom.dataid // 2 for geom in geoms])
        radii = self._model.geom_rbound[[geom.objid for geom in geoms]]
        places = np.array([geom.pos for geom in geoms], np.float64)
        turns = np.array([geom.mat for geom in geoms], np.float64).reshape(-1, 3, 3)
        return Placed(meshes, radii, places, turns)

    def _cut_down(self, cut: CutMeshes, placed: Placed, eye: Eye, mirrors: list[Mirror]) -> None:
        """Put what can be seen of the meshes into a camera's lists; the model has them cut down only meanwhile."""
        meshes = cut.outdated(eye, mirrors, placed)
        if not len(meshes):
            return
        before = cut.seen.copy()
        for first, count in self._meshes[meshes, 2:]:
            cut.seen[first : first + count] = False
        placed = placed.of(np.isin(placed.meshes, meshes))
        self._find_seen(cut.seen, eye, _WHOLE, placed, np.zeros((0, 4)))
        for mirror in mirrors:
            # MuJoCo cuts off what lies behind it.
            shown = placed.of(mirror.above(placed.places) >= -placed.radii - ROUNDING)
            heights = mirror.above(shown.places)[:, None]
            flip = np.eye(3) - 2 * np.outer(mirror.normal, mirror.normal)
            planes = np.concatenate([mirror.normal @ shown.turns, heights], axis=1)
            mirrored = shown._replace(places=shown.places - 2 * heights * mirror.normal, turns=flip @ shown.turns)
            self._find_seen(cut.seen, eye, mirror.part, mirrored, planes)
        drawn = np.array(cut.unlisted(meshes, self._meshes, before), np.int64)
        tables, counts = _faces_of(self._model), self._model.mesh_facenum
        keep_seen(drawn, self._meshes, cut.seen, self._faces, tables, counts)
        for number in drawn:
            mujoco.mjr_uploadMesh(self._model, self._sim._render_context_offscreen.con, number)
        put_back(drawn, self._meshes, self._faces, tables, counts)

    def _find_seen(
        self,
        seen: Bool[Array, "face"],
        eye: Eye,
        part: Float[Array, "4"],
        placed: Placed,
        mirror: Float[Array, "geom 4"],
    ) -> None:
        """Mark what leaves a trace in a part of the picture."""
        centres = eye.of(placed.places)
        near = eye.may_see(centres, placed.radii, part)
        pixels = 0.5 * self._size * (1 + part)
        window = np.array([*np.floor(pixels[:2]), *np.ceil(pixels[2:])], np.int64)
        find_seen(
            self._model.mesh_vert,
            self._faces[0],
            self._meshes[placed.meshes[near]],
            centres[near],
            eye.axes @ placed.turns[near],
            np.array([self._size, eye.tangent, eye.near, eye.far, self._grid.margin], np.float32),
            window,
            mirror[near[: len(mirror)]].astype(np.float32),
            self._grid.samples,
            self._corners,
            self._candidates,
            seen,
        )


def _new_lists(meshes: int) -> int:
    """First of the numbers of new lists in the current context: MuJoCo has two for every mesh."""
    from OpenGL import GL  # see `visible_only`

    return int(GL.glGenLists(2 * meshes))


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
    """The meshes among a scene's geoms; None if triangles may leave other traces (shadows, backs, hulls)."""
    geoms = scene.geoms[: scene.ngeom]
    meshes = [geom for geom in geoms if geom.type == mujoco.mjtGeom.mjGEOM_MESH]
    flags = scene.flags
    shadows = flags[mujoco.mjtRndFlag.mjRND_SHADOW] and any(light.castshadow for light in scene.lights[: scene.nlight])
    backs = not flags[mujoco.mjtRndFlag.mjRND_CULL_FACE] or flags[mujoco.mjtRndFlag.mjRND_WIREFRAME]
    hulls = any(geom.dataid % 2 for geom in meshes)
    return None if not meshes or shadows or backs or hulls or scene.enabletransform else meshes


def _mirrors(scene: Any, eye: Eye) -> list[Mirror]:
    """The faces in which MuJoCo may show a reflection in this picture.

    It takes the first opaque plane or box that reflects, a box by its upper side, and shows nothing to an eye behind
    it. A plane seen from behind is not opaque. Where rounding could tell either way, a face counts as a mirror.
    """
    mirrors: list[Mirror] = []
    if not scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION]:
        return mirrors
    for geom in scene.geoms[: scene.ngeom]:
        box = geom.type == mujoco.mjtGeom.mjGEOM_BOX
        if geom.reflectance <= 0 or geom.rgba[3] < _OPAQUE or not (box or geom.type == mujoco.mjtGeom.mjGEOM_PLANE):
            continue
        right, up, normal = np.array(geom.mat, np.float64).reshape(3, 3).T
        place = np.array(geom.pos, np.float64) + (float(geom.size[2]) * normal if box else 0)
        finite = geom.dataid < 0 and geom.size[0] > 0 and geom.size[1] > 0
        ways = [x * geom.size[0] * right + y * geom.size[1] * up for x in (-1, 1) for y in (-1, 1)]
        mirror = Mirror(place, normal, eye.part_around(place + ways) if finite else _WHOLE)
        height = float(mirror.above(eye.place))
        if height >= -ROUNDING and (np.abs(mirror.part[:2] + mirror.part[2:]) < 2).all():  # not beside the picture
            mirrors.append(mirror)
        if box or height > ROUNDING:
            break
    return mirrors


def _eye_of(scene: Any) -> Eye | None:
    """The camera of a scene; None if it does not see equally far to all sides."""
    camera = mujoco.mjv_averageCamera(scene.camera[0], scene.camera[1])
    near, top = float(camera.frustum_near), float(camera.frustum_top)
    if camera.orthographic or camera.frustum_center or camera.frustum_width or top != -camera.frustum_bottom:
        return None
    ahead, up = (np.array(axis, np.float64) / np.linalg.norm(axis) for axis in (camera.forward, camera.up))
    axes = np.stack([np.cross(ahead, up), up, ahead])
    return Eye(np.array(camera.pos, np.float64), axes, top / near, near, float(camera.frustum_far))
