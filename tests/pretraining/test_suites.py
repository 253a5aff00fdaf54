"""Play in LIBERO's suites: drawn layouts, the expert's labels, privileged aims, and the small budget end to end."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.policy.base_checkpoint import FLOW_FILE
from lerobot_policy_quantile.pretraining import apprentice
from lerobot_policy_quantile.pretraining.apprentice import MOST_TURNS, draw_turns, foresee
from lerobot_policy_quantile.pretraining.budgets import BUDGETS
from lerobot_policy_quantile.pretraining.generate import SuiteShard
from lerobot_policy_quantile.pretraining.projection import FIELD_OF_VIEW
from lerobot_policy_quantile.pretraining.suite_play import _Cameras, _Placing, answers_of, suite_play
from lerobot_policy_quantile.pretraining.suite_samples import BASKET, SUITE_KINDS, SUITES
from lerobot_policy_quantile.pretraining.train import LOG
from lerobot_policy_quantile.scenes.experts.aims import aims
from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA
from lerobot_policy_quantile.scenes.libero.suites import LiberoScene
from tests.pretraining.test_samples import Pusher

pytestmark = pytest.mark.libero
SIZE = 64
DRAWER, BOWL_TO_STOVE = 0, 1


@pytest.fixture(scope="module")
def scene():
    built = LiberoScene("libero_goal", obstacle=False, camera_size=SIZE)
    yield built
    built.close()


def test_a_drawn_layout_is_a_function_of_its_seed_and_is_none_of_the_stored_ones(scene):
    scene.reset_fresh(BOWL_TO_STOVE, 5)
    first = scene.simulator_state()
    scene.reset_fresh(BOWL_TO_STOVE, 6)
    other = scene.simulator_state()
    scene.reset_fresh(BOWL_TO_STOVE, 5)
    np.testing.assert_array_equal(scene.simulator_state(), first)
    assert np.abs(other - first).max() > 0.005
    scene.reset(BOWL_TO_STOVE, 0, 5)
    assert np.abs(scene.simulator_state() - first).max() > 0.005
    assert scene.instruction == "put the bowl on the stove"
    with pytest.raises(ValueError, match=r"task must lie in 0\.\.9; got 10"):
        scene.reset_fresh(10, 0)


def test_aims_are_the_thing_and_its_place_or_the_handle_and_where_it_ends_up(scene):
    scene.reset_fresh(BOWL_TO_STOVE, 5)
    expert = TaskExpert(scene)
    target, destination = aims(expert)
    np.testing.assert_array_equal(target, expert.view.position("akita_black_bowl_1"))
    assert np.linalg.norm((destination - expert.view.position("flat_stove_1"))[:2]) < 0.15
    scene.reset_fresh(DRAWER, 5)
    target, destination = aims(TaskExpert(scene))
    assert np.linalg.norm(destination - target) == pytest.approx(0.15, abs=0.01)
    assert target[2] == pytest.approx(destination[2], abs=1e-6)


def test_the_cameras_have_the_fields_of_view_that_projections_assume(scene):
    scene.reset_fresh(BOWL_TO_STOVE, 5)
    model = scene.world.sim.model._model
    assert model.camera(EXTERNAL_CAMERA).fovy[0] == FIELD_OF_VIEW["external"]
    assert model.camera(WRIST_CAMERA).fovy[0] == FIELD_OF_VIEW["wrist"]


def test_samples_depend_on_their_generator_alone_and_hold_true_states(scene):
    first, _ = suite_play(scene, BOWL_TO_STOVE, np.random.default_rng(3), 16)
    suite_play(scene, BOWL_TO_STOVE, np.random.default_rng(4), 8)
    again, _ = suite_play(scene, BOWL_TO_STOVE, np.random.default_rng(3), 16)
    for name in vars(first):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name), err_msg=name)
    assert 3 <= len(first) <= 4
    assert set(first.instruction) == {"put the bowl on the stove"}
    assert set(first.suite) == {SUITES.index("libero_goal")}
    assert (first.state[:, 2] > 0.9).all()
    assert first.valid[:, 0].all()
    assert np.abs(first.actions).max() <= 1
    bowl, basket = (first.kinds[:, SUITE_KINDS.index(kind)] for kind in ("akita_black_bowl", BASKET))
    np.testing.assert_array_equal(bowl, first.target)
    assert np.isnan(basket).all()


def test_where_an_apprentice_drives_the_expert_acts_its_chunks_out_and_takes_over_later(scene, monkeypatch):
    turns = [(6, 24)]
    monkeypatch.setattr(apprentice, "draw_turns", lambda rng: turns)
    driven, _ = suite_play(scene, BOWL_TO_STOVE, np.random.default_rng(3), 48, (Pusher(), 1.0))
    turns.clear()
    alone, _ = suite_play(scene, BOWL_TO_STOVE, np.random.default_rng(3), 48, (Pusher(), 1.0))
    same = [np.array_equal(one, other) for one, other in zip(driven.state, alone.state, strict=True)]
    assert same == sorted(same, reverse=True)
    assert same[0]
    assert not same[-1], "the apprentice's way is another"
    counts = driven.valid.sum(1)  # a row every four steps
    assert (counts[2:5] == 10).all(), "inside its turn"
    assert counts[6:].max() == 10, "after it"
    assert (driven.actions[2:5, :, 6] < 0).all(), "the expert would not close the hand there"


def test_a_placed_hand_is_labelled_where_it_is_and_leaves_no_trace(scene):
    """The episode's own samples are the last rows, to the last bit those of the same episode without placing."""
    made, alone = [], []
    for rows, placed in ((made, 2), (alone, 0)):
        rng = np.random.default_rng(3)
        scene.reset_fresh(BOWL_TO_STOVE, 5)
        expert, cameras, added = TaskExpert(scene), _Cameras(scene.world), []
        placing = _Placing(scene, cameras, rng, added, placed)
        for step in range(24):
            answer = expert.act(scene.state())
            if step % 8 == 4:
                placing.around(expert)
            scene.step(answer, observe=(step + 1) % 8 == 4)
            rows.append(scene.simulator_state())
        assert len(added) <= 3 * placed
        if placed:
            assert len(added) >= 3
            samples = added
    np.testing.assert_array_equal(made, alone)
    bowl = samples[0]["target"]
    for row in samples:
        away = row["state"][:3] - bowl
        assert np.linalg.norm(away[:2]) < 0.25
        assert row["valid"].all()
        assert row["external"].shape == (SIZE, SIZE, 3)
    hands = np.array([row["state"][:3] for row in samples])
    assert np.ptp(hands, axis=0).max() > 0.01, "not where the episode is"
    assert len({row["wrist"].tobytes() for row in samples}) == len(samples)


def test_a_chunk_that_is_acted_out_leaves_no_trace(scene):
    """The same way to the last bit, and a chunk that is what the expert then does undisturbed."""
    ways, chunks = [], []
    for looking in (False, True):
        scene.reset_fresh(BOWL_TO_STOVE, 5)
        expert, way, answers = TaskExpert(scene), [], []
        for step in range(40):
            answers.append(expert.act(scene.state()))
            if looking and step % 8 == 0:
                chunks.append((step, foresee(scene, answers[-1], answers_of(expert.twin(), scene))))
            scene.step(answers[-1])
            way.append(scene.simulator_state())
        ways.append(way)
    np.testing.assert_array_equal(*ways)
    for step, chunk in chunks[:-1]:
        np.testing.assert_array_equal(chunk, answers[step : step + 10])


@pytest.mark.bad_input
def test_a_budget_that_is_driven_needs_a_checkpoint_to_go_on_from(tmp_path):
    driven = BUDGETS["suites_driven"]
    with pytest.raises(ValueError, match="--start must name the checkpoint that drives"):
        driven.data.shards()
    shards = driven.starting_from(tmp_path).data.shards()
    suites = [shard for shard in shards if isinstance(shard, SuiteShard)]
    assert {(shard.split, shard.driver) for shard in suites} == {("train", str(tmp_path)), ("held_out", None)}
    embedded = {(s.split, s.kind, s.driver) for s in shards if s not in suites}
    assert embedded == {("train", "play", str(tmp_path)), ("train", "static", None), ("held_out", "static", None)}
    assert BUDGETS["suites_more"].starting_from(tmp_path).data == BUDGETS["suites_more"].data


def test_turns_of_an_apprentice_are_apart_and_bounded():
    for seed in range(50):
        turns = draw_turns(np.random.default_rng(seed))
        assert 1 <= len(turns) <= MOST_TURNS
        ends = [0, *(end for _, end in turns)]
        assert all(begin >= end for (begin, _), end in zip(turns, ends, strict=False))
        assert all(20 <= end - begin < 90 for begin, end in turns)


@pytest.mark.slow
def test_the_small_budget_writes_a_base_with_two_projections(tmp_path):
    out = tmp_path / "run"
    command = ["pretrain", "--budget", "suites_small", "--workers", "1", "--seed", "3", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert len(list((out / "data").glob("*.npz"))) == len(BUDGETS["suites_small"].data.shards())
    log = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    assert {"action", "flow"} <= set(log[0])
    assert (out / "policy" / FLOW_FILE).is_file()
    card = (out / "policy" / "README.md").read_text()
    assert "| libero_spatial, play | " in card
    assert json.loads((out / "policy" / "config.json").read_text())["n_prompts"] == 0
