"""Labels of pretraining: the expert's own answers, the same whoever was on stage before."""

from dataclasses import fields

import numpy as np
import pytest

from lerobot_policy_quantile.contract import Chunk
from lerobot_policy_quantile.pretraining import apprentice
from lerobot_policy_quantile.pretraining.generate import DataBudget, Shard, make_shard
from lerobot_policy_quantile.pretraining.samples import CHUNK, EMBEDDED_THINGS, STATIC, THINGS, Samples, moment
from lerobot_policy_quantile.pretraining.scenes_play import chunk_of, play_samples
from lerobot_policy_quantile.pretraining.scenes_static import static_samples
from lerobot_policy_quantile.scenes.embedded import mixed_start, start_of_task
from lerobot_policy_quantile.scenes.experts.reflex import Moment, reflex
from lerobot_policy_quantile.scenes.staging import EmbeddedStage

SIZE = 32


@pytest.fixture(scope="module")
def stage():
    built = EmbeddedStage(SIZE)
    yield built
    built.close()


@pytest.fixture(scope="module")
def static(stage):
    return static_samples(stage, np.random.default_rng(3), 12)


def equal(one: Samples, two: Samples) -> bool:
    pairs = [(getattr(one, f.name), getattr(two, f.name)) for f in fields(Samples)]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def is_experts(samples: Samples, row: int, thing: int) -> bool:
    state = samples.state[row].astype(float)
    place, goal = samples.things[row, thing], samples.goal[row]
    now = Moment(state[:3], (state[6] - state[7]) / 2, place, THINGS[thing], goal)
    return np.allclose(samples.actions[row, thing, 0], reflex(now), rtol=0, atol=1e-4)


def test_a_static_label_is_the_experts_first_action_for_each_thing(static):
    assert (static.driven == STATIC).all()
    assert static.valid[:, :, 0].any(1).all()
    assert not static.valid[:, :, 1:].any()
    assert all(is_experts(static, row, thing) for row, thing in np.argwhere(static.valid[:, :, 0]))


def test_static_scenes_depend_on_their_generator_alone(stage, static, tmp_path):
    stage.shuffle(np.random.default_rng(8), "milk carton")
    for _ in range(3):
        stage.scene.step(np.array([0.3, 0.2, -0.3, 0, 0, 0, 1.0]))
    again = static_samples(stage, np.random.default_rng(3), 12)
    assert equal(static, again)
    static.save(tmp_path / "shard.npz")
    assert equal(static, Samples.load(tmp_path / "shard.npz"))


def test_play_depends_on_its_generator_alone_and_labels_are_without_noise(stage):
    first, _ = play_samples(stage, np.random.default_rng(5), "can", 24)
    play_samples(stage, np.random.default_rng(6), "loaf of bread", 24)
    second, _ = play_samples(stage, np.random.default_rng(5), "can", 24)
    assert equal(first, second)
    can = THINGS.index("can")
    assert (first.driven == can).all()
    assert first.valid[:, can, 1:].any()
    assert np.abs(first.actions[..., :3]).max() <= 0.33 + 1e-6  # noise and kicks would exceed the expert's speed
    assert not first.actions[..., 3:6].any()


class Pusher:
    """A policy that always does the same."""

    def begin(self, seed, world, decoder):
        return decoder

    def act(self, observations, memories):
        assert all(set(seen.images) == {"external", "wrist"} for seen in observations)
        assert memories == ["median"]
        return [Chunk(np.tile([0.0, 0.9, 0.3, 0.0, 0.0, 0.0, 1.0], (10, 1)))]


def test_an_apprentice_leads_elsewhere_and_the_expert_acts_its_chunks_out_there(stage, monkeypatch):
    turns = [(6, 24)]
    monkeypatch.setattr(apprentice, "draw_turns", lambda rng: turns)
    driven, _ = play_samples(stage, np.random.default_rng(3), "can", 48, (Pusher(), 1.0))
    again, _ = play_samples(stage, np.random.default_rng(3), "can", 48, (Pusher(), 1.0))
    turns.clear()
    alone, _ = play_samples(stage, np.random.default_rng(3), "can", 48, (Pusher(), 1.0))
    assert equal(driven, again)
    same = [np.array_equal(one, other) for one, other in zip(driven.state, alone.state, strict=True)]
    assert same == sorted(same, reverse=True)
    assert same[0]
    assert not same[-1]
    can = THINGS.index("can")
    assert (driven.valid[3:6, can].sum(1) == CHUNK).all(), "inside its turn"
    assert (driven.actions[3:6, can, :, 6] < 0).all(), "the expert would not close the hand there"


def test_a_chunk_of_the_embedded_scene_that_is_acted_out_leaves_no_trace(stage):
    ways, chunks = [], []
    for looking in (False, True):
        stage.shuffle(np.random.default_rng(4), "can")
        stage.look(pictures=False)
        way, answers = [], []
        for step in range(40):
            answers.append(reflex(moment(stage.view(), "can")))
            if looking and step % 8 == 0:
                chunk = apprentice.foresee(stage.scene, answers[-1], lambda: reflex(moment(stage.view(), "can")))
                chunks.append((step, chunk))
            stage.scene.step(answers[-1])
            way.append(np.array(stage.scene.world.sim.data._data.qpos))
        ways.append(way)
    np.testing.assert_array_equal(*ways)
    for step, chunk in chunks[:-1]:
        np.testing.assert_array_equal(chunk, answers[step : step + CHUNK])


def test_a_chunk_ends_where_a_kick_begins_and_at_the_end_of_the_episode():
    answers = [np.full(7, step / 10) for step in range(15)]
    kicked = [step == 6 for step in range(15)]
    actions, valid = chunk_of(answers, kicked, 2)
    np.testing.assert_array_equal(valid, np.arange(CHUNK) < 5)  # steps 2 to 6: the answer at 6 precedes the kick
    np.testing.assert_allclose(actions[valid][:, 0], [0.2, 0.3, 0.4, 0.5, 0.6])
    np.testing.assert_array_equal(chunk_of(answers, kicked, 12)[1], np.arange(CHUNK) < 3)


def test_no_training_scene_shares_its_random_key_with_an_evaluated_one():
    evaluated = {tuple(start_of_task(task, index).basket) for task in range(5) for index in range(50)}
    drawn = set()
    for shard in DataBudget(4, 8, 2, 1, SIZE).shards():
        rng = shard.generator(7)
        rng.integers(EMBEDDED_THINGS)  # a static scene names its thing first
        drawn.add(tuple(mixed_start(rng, "can").basket))
    assert len(drawn) == 7
    assert not drawn & evaluated


def test_a_shard_is_whole_or_absent(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("lerobot_policy_quantile.pretraining.generate._stage", lambda *_: stage)
    shard = Shard("train", "static", 0, 2)
    assert make_shard(shard, tmp_path, 1, SIZE) == (2, 0)
    assert [path.name for path in tmp_path.iterdir()] == [shard.file]
