"""Pictures from the triangles that leave a trace are the pictures from all of them, to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast import visible
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA
from lerobot_policy_quantile.scenes.fast.visible import Eye, Grid, VisibleOnly, is_even, visible_only
from tests.scenes.rollouts import marked, random_actions

CAMERAS = EXTERNAL_CAMERA, WRIST_CAMERA
KEY = (0, 0, 20260922)
STANDARD = np.array([[0.375, 0.125], [0.875, 0.375], [0.125, 0.625], [0.625, 0.875]], np.float32)
"""Where Direct3D, and Mesa with it, put four samples of a pixel."""
SIZE, MARGIN = 16, 2.0**-8


@pytest.fixture(
    scope="module", params=[marked("embedded", 96), marked("embedded", 256), marked("libero_object", 96)], ids=str
)
def drawn(request):
    """A scene, its simulator and what draws it in part; the arm in motion."""
    name, size = request.param
    scene = make_scene(name, obstacle=True, camera_size=size)
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
    assert 0 < drawing._seen.sum() < 0.2 * len(drawing._seen)


def test_the_simulators_own_meshes_stay_whole(drawn):
    scene, drawing = drawn
    model = scene.world.sim.model._model
    tables = model.mesh_face, model.mesh_facenormal, model.mesh_facetexcoord, model.mesh_facenum
    before, picture = [table.copy() for table in tables], whole(scene, EXTERNAL_CAMERA)
    drawing.draw(WRIST_CAMERA)
    assert all(map(np.array_equal, tables, before))
    assert np.array_equal(whole(scene, EXTERNAL_CAMERA), picture)


def test_samples_taken_for_elsewhere_cost_pixels(drawn):
    """The twin: with the samples mirrored, triangles are left out that a sample sees."""
    scene, drawing = drawn
    mirrored = drawing._grid.samples * [1, -1] + [0, 1]
    assert is_even(mirrored)
    wrong = VisibleOnly(scene.world.sim, Grid(mirrored.astype(np.float32), MARGIN), scene.camera_size)
    assert differing(scene, wrong, 3) > 0


@pytest.mark.parametrize("trace", ["shadow", "mirror", "backs"])
def test_where_hidden_triangles_leave_other_traces_everything_is_drawn(drawn, trace, monkeypatch):
    scene, drawing = drawn
    model, flags = scene.world.sim.model._model, scene.world.sim._render_context_offscreen.scn.flags
    before = flags.copy(), model.light_castshadow.copy(), model.mat_reflectance.copy()
    flags[[0, 2]] = 1  # shadows and reflections are drawn if there are any
    if trace == "shadow":
        model.light_castshadow[:] = 1
    elif trace == "mirror":
        model.mat_reflectance[:] = 0.5
    else:
        flags[9] = 0  # backs of triangles are drawn
    try:
        assert drawing.draw(EXTERNAL_CAMERA) is None
        frames = scene.world._render()
        assert np.array_equal(frames["external"], whole(scene, EXTERNAL_CAMERA)[::-1, ::-1])
    finally:
        flags[:], model.light_castshadow[:], model.mat_reflectance[:] = before


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


@settings(max_examples=300, deadline=None)
@given(corner=st.tuples(coordinates, coordinates), edges=st.tuples(*[st.floats(-2, 2, width=32)] * 4))
def test_a_triangle_that_contains_a_sample_is_never_left_out(corner, edges):
    """Against brute force over all samples of a small picture, for triangles that show their front."""
    (ax, ay), (ux, uy, vx, vy) = corner, edges
    points = np.array([[ax, ay], [ax + ux, ay + uy], [ax + vx, ay + vy]], np.float32)
    xs, ys = points.T.copy()
    area = (xs[1] - xs[0]) * (ys[2] - ys[0]) - (xs[2] - xs[0]) * (ys[1] - ys[0])
    if area <= 0:
        return
    rows, columns = np.mgrid[:SIZE, :SIZE]
    places = (np.stack([columns, rows], -1)[:, :, None] + STANDARD).reshape(-1, 2).astype(np.float64)
    first, second = points.astype(np.float64), np.roll(points, -1, axis=0).astype(np.float64)
    along, away = second - first, places[:, None] - first
    inside = (along[:, 0] * away[..., 1] - along[:, 1] * away[..., 0] > 0).all(axis=1).any()
    may = np.zeros(1, np.bool_)
    faces, depths = np.array([[0, 1, 2]], np.int32), np.ones(3, np.float32)
    size, near, margin = np.float32(SIZE), np.float32(0.01), np.float32(MARGIN)
    visible._sift(faces, xs, ys, depths, size, near, margin, len(STANDARD), may)
    covers = visible._covers(*points.ravel(), SIZE, margin, STANDARD)
    assert (may[0] and covers) or not inside


def test_spheres_in_view():
    eye = Eye(np.zeros(3), np.eye(3), 0.5, 0.01)
    centres = np.array([[0.0, 0, 2], [0, 0, -2], [1.2, 0, 2], [5, 0, 2], [0, 0, -0.5]])
    seen = eye.may_see(centres, np.array([0.1, 0.1, 0.3, 0.3, 1.0]))
    assert seen.tolist() == [True, False, True, False, True]
