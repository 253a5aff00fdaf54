"""Auxiliary targets: positions the simulator knows, in the pictures and from the hand."""

import mujoco
import numpy as np
import pytest
import torch

from lerobot_policy_quantile.pretraining.auxiliary import Spotter
from lerobot_policy_quantile.pretraining.projection import FIELD_OF_VIEW, project
from lerobot_policy_quantile.pretraining.samples import EMBEDDED_THINGS, THINGS, SampleList, first_actions
from lerobot_policy_quantile.pretraining.targets import ABSENT, PLACES, draw_named, patch_targets, targets_of
from lerobot_policy_quantile.scenes.embedded import start_of
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA
from lerobot_policy_quantile.scenes.staging import EmbeddedStage

SIZE = 96


@pytest.fixture(scope="module")
def plain():
    """Samples of the plain layout, and the cameras' true poses."""
    stage = EmbeddedStage(SIZE)
    stage.arrange(start_of(0), "can")
    view, samples = stage.look(), SampleList()
    samples.add(view, *first_actions(view), -1)
    model, data = stage.world.sim.model._model, stage.world.sim.data._data
    cameras = {}
    for name in (EXTERNAL_CAMERA, WRIST_CAMERA):
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
        cameras[name] = (
            data.cam_xpos[number].copy(),
            data.cam_xmat[number].reshape(3, 3).copy(),
            model.cam_fovy[number],
        )
    stage.close()
    return samples.finish(), cameras


def test_a_point_straight_ahead_is_in_the_middle_and_columns_run_against_the_cameras_x():
    place, turn = np.zeros(3), np.eye(3)
    points = np.array([[0, 0, -1.0], [0.5, 0, -1], [0, 0.5, -1], [0, 0, 1.0], [5, 0, -1]])
    spots, inside = project(points, place, turn, 90.0)
    np.testing.assert_allclose(spots[:3], [[0.5, 0.5], [0.25, 0.5], [0.5, 0.25]])
    np.testing.assert_array_equal(inside, [True, True, True, False, False])


def test_the_noted_cameras_are_the_simulators(plain):
    samples, cameras = plain
    for name, camera in (("external", EXTERNAL_CAMERA), ("wrist", WRIST_CAMERA)):
        place, turn, angle = cameras[camera]
        np.testing.assert_allclose(getattr(samples, f"{name}_place")[0], place, atol=1e-6)
        np.testing.assert_allclose(getattr(samples, f"{name}_turn")[0], turn, atol=1e-6)
        assert angle == FIELD_OF_VIEW[name]


def is_red(pixel):
    red, green, blue = pixel.astype(int)
    return red > 2 * green and red > 2 * blue


def test_the_can_is_red_where_it_is_projected(plain):
    samples, _ = plain
    camera = samples.external_place[0], samples.external_turn[0]
    spot, inside = project(samples.things[0, 0].astype(float), *camera, FIELD_OF_VIEW["external"])
    assert inside
    column, row = (spot * SIZE).astype(int)
    assert is_red(samples.external[0, row, column])
    assert not is_red(samples.external[0, row, SIZE - 1 - column])  # not its mirror image


def test_patches_count_row_by_row_with_a_class_for_out_of_sight():
    spots = np.array([[0.0, 0.0], [0.99, 0.0], [0.5, 0.5], [2.0, 0.5]])
    patch, offset = patch_targets(spots, np.array([True, True, True, False]), 6)
    np.testing.assert_array_equal(patch, [0, 5, 21, 36])
    np.testing.assert_allclose(offset[2], [-0.5, -0.5])
    np.testing.assert_allclose(offset[3], 0)


def test_distances_are_from_the_hand_in_tenths_of_a_metre(plain):
    samples, _ = plain
    targets = targets_of(samples, np.array([0]), np.array([THINGS.index("milk carton")]), 6)
    expected = np.concatenate([samples.things[0, 1], samples.goal[0]]) - np.tile(samples.state[0, :3], 2)
    np.testing.assert_allclose(targets.relative[0], 10 * expected, rtol=1e-5)
    assert targets.patch.shape == (1, 2, PLACES)
    absent = targets.patch == ABSENT
    assert absent[..., EMBEDDED_THINGS:-1].all()  # LIBERO's things are not in this scene
    assert not absent[..., :EMBEDDED_THINGS].any()
    assert not absent[..., -1].any()
    assert torch.isfinite(targets.offset).all()


def test_only_things_with_a_label_are_named(plain):
    samples, _ = plain
    rows = np.zeros(200, dtype=int)
    assert set(draw_named(samples, rows, np.random.default_rng(0))) == {0, 1, 2, 3}
    samples.valid[0, :3] = False
    try:
        assert set(draw_named(samples, rows, np.random.default_rng(0))) == {3}
    finally:
        samples.valid[0, :3, 0] = True


def test_what_is_near_the_hand_is_named_more_often(plain):
    samples, _ = plain
    away = np.linalg.norm(samples.things[0, :EMBEDDED_THINGS] - samples.state[0, :3], axis=1)
    named = draw_named(samples, np.zeros(2000, dtype=int), np.random.default_rng(0))
    share = np.bincount(named, minlength=EMBEDDED_THINGS) / len(named)
    assert share[away.argmin()] == pytest.approx(0.5 + 0.5 / EMBEDDED_THINGS, abs=0.04)


def test_a_spotter_learns_nothing_about_absent_things():
    torch.manual_seed(0)
    spotter = Spotter(8, 2)
    tokens, offset = torch.randn(5, 4, 8), torch.zeros(5, 2, 2)
    there = torch.arange(5)[:, None]
    both = spotter(tokens, torch.cat([there, torch.full((5, 1), ABSENT)], dim=1), offset)
    both.backward()
    assert torch.isfinite(both)
    assert spotter.here.weight.grad[0].abs().max() > 0
    assert spotter.here.weight.grad[1].abs().max() == 0


def test_a_spotter_learns_where_a_mark_is():
    torch.manual_seed(0)
    spotter = Spotter(8, 1)
    tokens, patch = torch.zeros(5, 4, 8), torch.arange(5)[:, None]
    tokens[torch.arange(4), torch.arange(4), 0] = 1.0  # the fifth picture holds none
    optimizer = torch.optim.Adam(spotter.parameters(), 0.1)
    for _ in range(120):
        optimizer.zero_grad()
        loss = spotter(tokens, patch, torch.full((5, 1, 2), 0.25))
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
