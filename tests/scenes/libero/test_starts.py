"""Starts without building a model against starts from a model that LIBERO has built anew: nothing may differ."""

from typing import Any

import mujoco
import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast.kept_start import _memory, _things
from tests.scenes.rollouts import SIZE, random_actions

pytestmark = pytest.mark.libero

STEPS = 30
LOOKS = (9, 29)
QUICK = {"libero_spatial": 0, "libero_object": 6, "libero_goal": 7, "libero_10": 2}
"""A task of each suite; in those of Goal and Long a stove is turned on."""

UNWRITTEN = ("efc_J", "efc_AR", "efc_island", "island", "dof_island", "maxuse", "timer", "signature", "solver_fwdinv")
"""Arrays of MuJoCo's data that its dense solver leaves as they were, and its statistics of memory and time."""


def numbers_of(world: Any) -> dict[str, bytes]:
    """Every array of MuJoCo's model and data, contacts included, and all that robosuite's objects remember."""
    found: dict[str, bytes] = {}
    for name, source in (("model", world.sim.model._model), ("data", world.sim.data._data)):
        for field in dir(source):
            if not field.startswith(("_", *UNWRITTEN)) and isinstance(value := getattr(source, field), np.ndarray):
                found[f"{name}.{field}"] = np.ascontiguousarray(value).tobytes()
    contact = world.sim.data._data.contact
    for field in ("geom", "dist", "pos", "frame", "friction", "dim", "solref", "solimp"):
        found[f"contact.{field}"] = np.ascontiguousarray(getattr(contact, field)).tobytes()
    for number, thing in enumerate(_things(world)):
        for name, value in _memory(thing).items():
            if name != "hard_reset":
                found[f"{number} {type(thing).__name__}.{name}"] = _bytes(value)
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return b"".join(str(key).encode() + _bytes(entry) for key, entry in value.items())
    return _bytes(vars(value)) if hasattr(value, "__dict__") else repr(value).encode()


def episode(scene: Any) -> list[Any]:
    """What is there at the start and after some steps: numbers, the success flag, pictures."""
    seen = [numbers_of(scene.world), scene.success(), _pictures(scene)]
    for number, action in enumerate(random_actions(STEPS, seed=5)):
        scene.step(action, observe=number in LOOKS)
        seen.append(scene.success())
        seen.append(scene.simulator_state().tobytes())
        if number in LOOKS:
            seen += [numbers_of(scene.world), _pictures(scene)]
    return seen


def _pictures(scene: Any) -> dict[str, bytes]:
    return {name: frame.tobytes() for name, frame in scene.frames().items()}


def differing(one: list[Any], other: list[Any]) -> list[Any]:
    """Names of what is not the same."""
    found: list[Any] = []
    for number, (mine, its) in enumerate(zip(one, other, strict=True)):
        if isinstance(mine, dict):
            found += [(number, name) for name in mine.keys() | its.keys() if mine.get(name) != its.get(name)]
        elif mine != its:
            found.append(number)
    return found


def tasks() -> list[Any]:
    return [
        pytest.param(name, task, marks=[] if task == quick else pytest.mark.slow)
        for name, quick in QUICK.items()
        for task in range(10)
    ]


@pytest.fixture(scope="module")
def suites():
    """Scenes of the suites, made when asked for."""
    made: dict[str, Any] = {}

    def suite(name: str) -> Any:
        if name not in made:
            made[name] = make_scene(name, camera_size=SIZE)
        return made[name]

    yield suite
    for scene in made.values():
        scene.close()


@pytest.mark.parametrize(("name", "task"), tasks())
def test_starts_on_a_model_at_hand_and_kept_starts_are_those_of_a_new_model(suites, name, task):
    scene = suites(name)
    first, second = (task, 3, 7), (task, 20, 11)
    scene.reset(*first)
    scene.reset(*second)  # on the model of the first
    at_hand = {second: episode(scene)}
    scene.starts.pop(first)
    scene.reset(*first)
    at_hand[first] = episode(scene)
    kept = {}
    for key in (second, first):
        assert key in scene.starts
        scene.reset(*key)
        kept[key] = episode(scene)
    scene.close_world()
    scene.reset(*second)  # a kept start on another model of the same task
    assert differing(episode(scene), at_hand[second]) == []
    scene.world.hard_reset = True
    for key in (first, second):
        scene.starts.pop(key)
        sim = scene.world.sim
        scene.reset(*key)
        assert scene.world.sim is not sim
        new = episode(scene)
        assert differing(new, at_hand[key]) == []
        assert differing(new, kept[key]) == []
    scene.close_world()
    scene.starts.clear()


def test_a_stove_that_was_turned_on_is_off_in_the_next_episode(suites):
    """LIBERO shows it by a site of the model, and remembers it in the stove."""
    scene = suites("libero_goal")
    key = (QUICK["libero_goal"], 0, 7)
    scene.reset(*key)
    expected = episode(scene)
    for other in (key, (key[0], 1, 7)):  # gone back to; made on the model at hand
        world = scene.world
        world.sim.data.set_joint_qpos(world.get_object("flat_stove_1").joints[0], 1.0)
        scene.step(np.zeros(7))
        assert scene.success()
        scene.reset(*other)
        assert not scene.success()
    scene.starts.clear()
    scene.reset(*key)
    assert differing(episode(scene), expected) == []
    scene.step(np.zeros(7))
    world = scene.world
    world.sim.data.set_joint_qpos(world.get_object("flat_stove_1").joints[0], 1.0)
    scene.step(np.zeros(7))
    scene.reset(*key)
    assert differing(episode(scene), expected) == []


def test_places_of_fixtures_are_part_of_a_start(suites, monkeypatch):
    """The twin: without the model's arrays a start is another one."""
    scene = suites("libero_goal")
    task = QUICK["libero_goal"]
    scene.reset(task, 0, 7)
    expected = numbers_of(scene.world)
    assert "body_pos" in scene.starts[task, 0, 7].before.changed
    scene.reset(task, 0, 8)
    monkeypatch.setattr(scene.world.built, "write", lambda changed: None)
    scene.reset(task, 0, 7)
    found = numbers_of(scene.world)
    assert found["model.body_pos"] != expected["model.body_pos"]
    assert found["data.xpos"] != expected["data.xpos"]


def test_building_a_model_draws_nothing_at_random(suites):
    """What a start on a model at hand relies on: the generator is where it was before LIBERO built."""
    scene = suites("libero_goal")
    scene.reset(QUICK["libero_goal"], 0, 7)
    world = scene.world
    before = np.random.get_state()[1].copy()
    world._load_model()
    mujoco.MjModel.from_xml_string(world.model.get_xml())
    assert np.array_equal(np.random.get_state()[1], before)
    scene.close_world()
