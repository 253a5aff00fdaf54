"""LIBERO-Plus's camera poses against rotations written out by hand."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.libero.dressing import PIVOT, CameraPose, Dressing

PLACE = np.array([0.6586131746834771, 0.0, 1.6103500240372423])
FACING = np.array([0.6380177736282349, 0.3048497438430786, 0.30484986305236816, 0.6380177736282349])


def product(a, b):
    """Quaternions (w, x, y, z)."""
    w, v, x, u = a[0], a[1:], b[0], b[1:]
    return np.array([w * x - v @ u, *(w * u + x * v + np.cross(v, u))])


def about(axis, degrees):
    half = np.radians(degrees) / 2
    return np.array([np.cos(half), *(np.sin(half) * np.eye(3)["xyz".index(axis)])])


def same(found, expected):
    """As rotations: q and -q are one."""
    np.testing.assert_allclose(found * np.sign(found @ expected), expected, atol=2e-4)


def test_no_change_rounds_to_four_decimals():
    place, facing = CameraPose().pose(PLACE, FACING)
    np.testing.assert_allclose(place, [0.6586, 0, 1.6104], atol=1e-12)
    np.testing.assert_array_equal(place, place.round(4))
    same(facing, FACING)


def test_horizontal_walks_around_the_z_axis():
    place, facing = CameraPose(horizontal=90).pose(PLACE, FACING)
    np.testing.assert_allclose(place, [0, 0.6586, 1.6104], atol=1e-4)
    same(facing, product(about("z", 90), FACING))


def test_vertical_climbs_about_the_pivot():
    place, facing = CameraPose(vertical=30).pose(PLACE, FACING)
    x, z = PLACE[0], PLACE[2] - PIVOT[2]
    c, s = np.cos(np.radians(30)), np.sin(np.radians(30))
    np.testing.assert_allclose(place, [c * x - s * z, 0, PIVOT[2] + s * x + c * z], atol=1e-4)
    same(facing, product(about("y", -30), FACING))


def test_distance_scales_from_the_pivot_and_keeps_the_facing():
    place, facing = CameraPose(distance=150).pose(PLACE, FACING)
    np.testing.assert_allclose(place - PIVOT, 1.5 * (PLACE - PIVOT), atol=2e-4)
    same(facing, FACING)


def test_turn_and_tilt_leave_the_place():
    place, facing = CameraPose(turn=2, tilt=352).pose(PLACE, FACING)
    np.testing.assert_allclose(place, PLACE, atol=1e-4)
    same(facing, product(about("y", -352), product(about("z", 2), FACING)))


@pytest.mark.parametrize(
    ("dressing", "options"),
    [
        (Dressing("a.bddl"), {}),
        (Dressing("a.bddl", scene_xml="scenes/x.xml"), {"scene_xml": "scenes/x.xml"}),
        (
            Dressing("a.bddl", styles=("dark", "white")),
            {"scene_properties": {"floor_style": "dark", "wall_style": "white"}},
        ),
    ],
)
@pytest.mark.bad_input  # the path is never opened
def test_what_hf_libero_is_told(dressing, options):
    assert dressing.options() == options
