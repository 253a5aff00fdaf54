"""Pictures from the triangles that leave a trace are the pictures from all of them, to the last bit."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast import triangles, visible
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA
from lerobot_policy_quantile.scenes.fast.visible import Eye, Grid, VisibleOnly, is_even, visible_only
from tests.scenes.rollouts import marked, random_actions

CAMERAS = EXTERNAL_CAMERA, WRIST_CAMERA
KEY = (0, 0, 20260922)
STANDARD = np.array([[0.375, 0.125], [0.875, 0.375], [0.125, 0.625], [0.625, 0.875]], np.float32)
"""Where Direct3D, and Mesa with it, put four samples of a pixel."""
SIZE, MARGIN = 16, 2.0**-8


DRAWN = [marked("embedded", 96), marked("embedded", 256), marked("libero_object", 96), marked("libero_goal", 96)]
"""The stove of the last one is a mirror."""


@pytest.fixture(scope="module", params=DRAWN, ids=str)
def drawn(request):
    """A scene, its simulator and what draws it in part; the arm in motion."""
    name, size = request.param
    scene = make_scene(name, obstacle=name != "libero_goal", camera_size=size)
    scene.reset(*KEY)
    scene.step(np.zeros(7), observe=True)
    drawing = scene.world._drawing
    if drawing is None:
        scene.close()
        pytest.skip("no software renderer here: everything is drawn")
    yield scene, drawing
    scene.close()


def whole(scene, camera: str) -> np.ndarray:
    return scene.world.sim.render(scene.camera_size, scene.camera_size, camera_name=camera)


def differing(scene, drawing, steps: int) -> int:
    """Pictures that are not the same, both cameras, over a motion that moves every joint."""
    found = 0
    for action in random_actions(steps, seed=11):
        scene.step(action)
        found += sum(not np.array_equal(drawing.draw(camera), whole(scene, camera)) for camera in CAMERAS)
    return found


def test_pictures_are_the_same_to_the_last_bit(drawn):
    scene, drawing = drawn
    assert differing(scene, drawing, 12) == 0
    assert all(0 < drawing.seen(camera).mean() < 0.2 for camera in CAMERAS)


def test_the_simulators_own_meshes_stay_whole(drawn):
    scene, drawing = drawn
    model = scene.world.sim.model._model
    tables = model.mesh_face, model.mesh_facenormal, model.mesh_facetexcoord, model.mesh_facenum
    before, picture = [table.copy() for table in tables], whole(scene, EXTERNAL_CAMERA)
    drawing.draw(WRIST_CAMERA)
    assert all(map(np.array_equal, tables, before))
    assert np.array_equal(whole(scene, EXTERNAL_CAMERA), picture)


def test_only_lists_of_what_is_seen_otherwise_are_made_again(drawn, monkeypatch):
    scene, drawing = drawn
    made = []
    upload = visible.mujoco.mjr_uploadMesh
    monkeypatch.setattr(
        visible.mujoco, "mjr_uploadMesh", lambda *arguments: made.append(arguments[2]) or upload(*arguments)
    )
    drawing.draw(EXTERNAL_CAMERA)
    drawing.draw(WRIST_CAMERA)
    made.clear()
    drawing.draw(EXTERNAL_CAMERA)
    drawing.draw(WRIST_CAMERA)
    assert not made, "nothing has moved"
    for action in random_actions(5, seed=12):
        scene.step(action)
    drawing.draw(EXTERNAL_CAMERA)
    names = {scene.world.sim.model._model.mesh(number).name for number in made}
    assert any("link" in name for name in names)
    assert not any("mount" in name for name in names), "what the arm stands on"


def test_moved_things_taken_for_still_ones_cost_pixels(drawn, monkeypatch):
    """The twin: lists of a camera that stands still are never made again."""
    scene, drawing = drawn
    drawing.draw(EXTERNAL_CAMERA)
    monkeypatch.setattr(visible.Placed, "moved_from", lambda self, before: np.zeros(len(self.meshes), np.bool_))
    assert differing(scene, drawing, 3) > 0
    monkeypatch.undo()
    drawing._cameras.clear()


def test_samples_taken_for_elsewhere_cost_pixels(drawn):
    """The twin: with the samples mirrored, triangles are left out that a sample sees."""
    scene, drawing = drawn
    mirrored = drawing._grid.samples * [1, -1] + [0, 1]
    assert is_even(mirrored)
    wrong = VisibleOnly(scene.world.sim, Grid(mirrored.astype(np.float32), MARGIN), scene.camera_size)
    assert differing(scene, wrong, 3) > 0


@pytest.mark.parametrize("trace", ["shadow", "backs"])
def test_where_hidden_triangles_leave_other_traces_everything_is_drawn(drawn, trace):
    scene, drawing = drawn
    model, flags = scene.world.sim.model._model, scene.world.sim._render_context_offscreen.scn.flags
    before = flags.copy(), model.light_castshadow.copy()
    if trace == "shadow":
        flags[0] = 1  # shadows are drawn if there are any
        model.light_castshadow[:] = 1
    else:
        flags[9] = 0  # backs of triangles are drawn
    try:
        assert drawing.draw(EXTERNAL_CAMERA) is None
        frames = scene.world._render()
        assert np.array_equal(frames["external"], whole(scene, EXTERNAL_CAMERA)[::-1, ::-1])
    finally:
        flags[:], model.light_castshadow[:] = before


@pytest.fixture
def mirrors(drawn):
    """Everything reflects; MuJoCo shows one mirror, here the floor, a wall, the table or the stove."""
    scene, drawing = drawn
    model, flags = scene.world.sim.model._model, scene.world.sim._render_context_offscreen.scn.flags
    before = flags.copy(), model.mat_reflectance.copy()
    flags[2] = 1  # reflections are drawn if there are any
    model.mat_reflectance[:] = 0.5
    yield scene, drawing, model
    flags[:], model.mat_reflectance[:] = before


def test_pictures_with_a_mirror_are_the_same_to_the_last_bit(mirrors):
    scene, drawing, model = mirrors
    reflecting = [
        geom for geom in range(model.ngeom) if model.geom_matid[geom] >= 0 and model.geom_type[geom] in (0, 6)
    ]
    for geom in reflecting:  # each of them as the one mirror
        model.mat_reflectance[:] = 0
        model.mat_reflectance[model.geom_matid[geom]] = 0.5
        assert differing(scene, drawing, 2) == 0
    assert all(0 < drawing.seen(camera).mean() < 0.4 for camera in CAMERAS)


def test_without_mirrored_images_a_mirror_costs_pixels(mirrors, monkeypatch):
    """The twin: what only a mirror shows is left out."""
    scene, drawing, model = mirrors
    monkeypatch.setattr(drawing, "_find_seen", _but_mirrored(drawing._find_seen))
    found = 0
    for geom in range(model.ngeom):
        model.mat_reflectance[:] = 0
        if model.geom_matid[geom] >= 0 and model.geom_type[geom] in (0, 6):
            model.mat_reflectance[model.geom_matid[geom]] = 0.5
            found += differing(scene, drawing, 2)
    assert found > 0


def _but_mirrored(find):
    return lambda *arguments: None if len(arguments[-1]) else find(*arguments)


def test_the_part_of_a_picture_around_a_mirror():
    eye = Eye(np.zeros(3), np.eye(3), 0.5, 0.01, 50.0)
    corners = np.array([[-1.0, -1, 1], [1, -1, 1], [-1, 1, 1], [1, 1, 1]])
    assert eye.part_around(0.1 * corners + [0, 0, 1]).tolist() == pytest.approx(
        [-0.183, -0.183, 0.183, 0.183], abs=1e-3
    )
    assert eye.part_around(corners * [0.1, 0.1, 1] + [2, 0, 0])[[0, 2]].tolist() == [1, 1]
    assert eye.part_around(corners - [0, 0, 1]).tolist() == [-1, -1, 1, 1]  # not in front: anywhere


def test_a_gpu_draws_everything(drawn, monkeypatch):
    scene, _ = drawn
    monkeypatch.setattr(visible, "_SOFTWARE", ("another renderer",))
    assert visible_only(scene.world.sim, 96) is None


def test_a_new_simulator_gets_a_new_drawing():
    """A start with other places of things is another model."""
    scene = make_scene("embedded", camera_size=64)
    scene.reset(0, 0, 1)
    sim, drawing = scene.world.sim, scene.world._drawing
    scene.reset(0, 1, 1)
    if drawing is None:
        pytest.skip("no software renderer here: everything is drawn")
    assert scene.world.sim is not sim
    assert scene.world._drawing is not drawing
    assert differing(scene, scene.world._drawing, 1) == 0
    scene.close()


def test_even_samples():
    assert is_even(STANDARD)
    assert is_even(np.array([[0.5, 0.5]]))
    assert not is_even(np.array([[0.5, 0.5], [0.5, 0.25]]))


coordinates = st.floats(-4, SIZE + 4, width=32)
corners = st.tuples(coordinates, coordinates)
edges = st.tuples(*[st.floats(-2, 2, width=32)] * 4)
WINDOW = (5, 3, 12, 9)


def covers_a_sample(points: np.ndarray, window: tuple[int, int, int, int]) -> bool:
    """By brute force over all samples of a part of the picture, for a triangle that shows its front."""
    rows, columns = np.mgrid[window[1] : window[3], window[0] : window[2]]
    places = (np.stack([columns, rows], -1)[:, :, None] + STANDARD).reshape(-1, 2).astype(np.float64)
    first, second = points.astype(np.float64), np.roll(points, -1, axis=0).astype(np.float64)
    along, away = second - first, places[:, None] - first
    return bool((along[:, 0] * away[..., 1] - along[:, 1] * away[..., 0] > 0).all(axis=1).any())


def is_kept(points: np.ndarray, window: tuple[int, int, int, int], order: tuple[int, int] = (1, 2)) -> bool:
    """Whether a triangle is handed to the renderer for what it shows in a part of the picture."""
    may, (xs, ys) = np.zeros(1, np.bool_), points.T.astype(np.float32).copy()
    faces, depths, margin = np.array([[0, 1, 2]], np.int32), np.ones(3, np.float32), np.float32(MARGIN)
    limits = np.array(window)
    triangles.sift(faces, *order, xs, ys, depths, limits, np.float32(0.01), margin, len(STANDARD), may)
    first, second, third = points.astype(np.float32)[[0, *order]]
    return bool(may[0]) and triangles.covers(*first, *second, *third, limits, margin, STANDARD)


@settings(max_examples=300, deadline=None)
@given(corner=corners, edges=edges, window=st.sampled_from([(0, 0, SIZE, SIZE), WINDOW]))
def test_a_triangle_that_contains_a_sample_is_never_left_out(corner, edges, window):
    """Its mirror image, which runs the other way round, neither."""
    (x, y), (ux, uy, vx, vy) = corner, edges
    points = np.array([[x, y], [x + ux, y + uy], [x + vx, y + vy]], np.float32)
    turned = points[[0, 2, 1]]
    if covers_a_sample(points, window):
        assert is_kept(points, window)
        assert is_kept(turned, window, order=(2, 1))


@settings(max_examples=300, deadline=None)
@given(
    corner=corners,
    along=st.floats(-12, 12),
    up=st.floats(-2, 2),
    beyond=st.floats(0, 0.1),
    aside=st.floats(-0.01, 0.01),
)
@example(corner=(3.7355918750685, 7.7931972214592), along=10.71610549, up=0.53667015, beyond=0.0321, aside=-0.00124)
def test_nor_is_a_splinter_that_a_renderer_rounds_onto_a_sample(corner, along, up, beyond, aside):
    """Corners at multiples of 1/256 of a pixel; the example is of LIBERO-Goal's first task, part of the hand."""
    start, way = np.array(corner, np.float64), np.array([along, up])
    across = np.array([-up, along]) / max(np.hypot(along, up), 1e-9)
    points = np.array([start, start + way, start + (1 + beyond) * way + aside * across])
    window = (0, 0, SIZE, SIZE)
    if covers_a_sample(np.round(points * 256) / 256, window):
        assert is_kept(points, window)


def twice_the_area(points: np.ndarray) -> np.ndarray:
    (ax, ay), (bx, by), (cx, cy) = np.moveaxis(points, (-2, -1), (0, 1))
    return (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)


def test_a_triangle_that_rounding_turns_over_onto_a_sample_is_found():
    """It shows its back, by a hair; its rounded corners show a front with a sample in it."""
    rng = np.random.default_rng(4)
    ends = rng.uniform(1, SIZE - 1, (60_000, 2, 2))
    middle = ends[:, 0] + rng.uniform(0, 1, (len(ends), 1)) * (ends[:, 1] - ends[:, 0])
    points = np.concatenate([ends, (middle + rng.normal(0, 0.001, middle.shape))[:, None]], axis=1)
    rounded = np.round(points / MARGIN) * MARGIN
    turned = (twice_the_area(points) < 0) & (twice_the_area(rounded) > 0)
    picture = (0, 0, SIZE, SIZE)
    found = [
        triangles._may_turn_over(
            np.concatenate([own.T, np.ones((1, 3))]), 1, 2, np.array(picture), MARGIN, 1e-4, STANDARD
        )
        for own, its in zip(points[turned], rounded[turned], strict=True)
        if covers_a_sample(its, picture)
    ]
    assert len(found) > 10
    assert all(found)


def test_a_front_is_not_taken_for_a_back():
    front = np.array([[2.1, 9.3, 4.2], [3.3, 4.4, 8.1], [1, 1, 1]])
    known = np.array([0, 0, SIZE, SIZE]), MARGIN, 1e-4, STANDARD
    assert not triangles._may_turn_over(front, 1, 2, *known)
    assert not triangles._may_turn_over(front, 2, 1, *known)  # nor does rounding turn a broad back over


def test_spheres_in_view():
    eye = Eye(np.zeros(3), np.eye(3), 0.5, 0.01, 50.0)
    centres = np.array([[0.0, 0, 2], [0, 0, -2], [1.2, 0, 2], [5, 0, 2], [0, 0, -0.5]])
    radii = np.array([0.1, 0.1, 0.3, 0.3, 1.0])
    assert eye.may_see(centres, radii).tolist() == [True, False, True, False, True]
    right_half = np.array([0.5, -1, 1, 1])
    assert eye.may_see(centres, radii, right_half).tolist() == [False, False, True, False, True]
