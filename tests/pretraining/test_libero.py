"""LIBERO-Object's scenes in pretraining: the same labels and targets, on the embedded scene's ground."""

import numpy as np
import pytest

from lerobot_policy_quantile.policy.base_checkpoint import BASE_GROUND
from lerobot_policy_quantile.pretraining.batches import INSTRUCTIONS
from lerobot_policy_quantile.pretraining.generate import KINDS, DataBudget, Shard
from lerobot_policy_quantile.pretraining.projection import FIELD_OF_VIEW, project
from lerobot_policy_quantile.pretraining.samples import EMBEDDED_THINGS, THINGS
from lerobot_policy_quantile.pretraining.scenes_play import play_samples
from lerobot_policy_quantile.pretraining.scenes_static import static_samples
from lerobot_policy_quantile.scenes.embedded import TABLE_TOP
from lerobot_policy_quantile.scenes.libero.staging import LiberoStage
from tests.pretraining.test_samples import equal, is_experts

pytestmark = pytest.mark.libero
SIZE = 64
TASK = 7  # the milk: red and white on grey


@pytest.fixture(scope="module")
def stage():
    built = LiberoStage(TASK, SIZE)
    yield built
    built.close()


@pytest.fixture(scope="module")
def static(stage):
    return static_samples(stage, np.random.default_rng(3), 10)


def test_instructions_are_liberos_own(stage):
    from libero.libero.envs.bddl_utils import get_problem_info  # LIBERO's paths must have been set

    files = [stage.scene._file(task, "bddl_files", "bddl_file") for task in range(stage.scene.task_count)]
    tasks = [get_problem_info(str(file))["language_instruction"] for file in files]
    assert tasks == list(INSTRUCTIONS[EMBEDDED_THINGS:])
    stage.shuffle(np.random.default_rng(0), "milk")
    assert stage.scene.instruction == INSTRUCTIONS[THINGS.index("milk")]


def test_labels_are_the_experts_for_the_things_of_the_task(stage, static):
    present = ~np.isnan(static.things).any((0, 2))
    assert {THINGS[i] for i in np.flatnonzero(present)} == set(stage.kinds)
    assert not static.valid[:, ~present].any()
    assert static.valid[:, present, 0].any(1).all()
    assert all(is_experts(static, row, thing) for row, thing in np.argwhere(static.valid[:, :, 0]))


def test_heights_begin_at_the_embedded_ground(static):
    assert BASE_GROUND == TABLE_TOP
    lowest = np.nanmin(static.things[..., 2])
    assert TABLE_TOP < lowest < TABLE_TOP + 0.02
    assert (static.goal[:, 2] == np.float32(TABLE_TOP)).all()
    assert (static.state[:, 2] > TABLE_TOP).all()


def test_the_milk_is_red_where_it_is_projected(stage):
    stage.shuffle(np.random.default_rng(4), "milk")
    view = stage.look()
    camera = view.cameras["external"]
    point = view.things[view.kinds.index("milk")]
    spot, inside = project(point, camera.place, camera.turn, FIELD_OF_VIEW["external"])
    assert inside
    column, row = (spot * SIZE).astype(int)
    red, green, blue = view.frames["external"][row - 1 : row + 2, column].astype(int).max(0)
    assert red > green + 30
    assert red > blue + 30


def test_scenes_depend_on_their_generator_alone(stage, static):
    first, _ = play_samples(stage, np.random.default_rng(5), "milk", 16)
    play_samples(stage, np.random.default_rng(6), stage.kinds[0], 8)
    assert equal(first, play_samples(stage, np.random.default_rng(5), "milk", 16)[0])
    assert equal(static, static_samples(stage, np.random.default_rng(3), 10))
    assert (first.driven == THINGS.index("milk")).all()


def test_no_two_shards_share_a_file_or_a_generator():
    budget = DataBudget(2, 8, 2, 1, SIZE, libero_static_shards=12, libero_play_shards=2, libero_held_out_shards=1)
    shards = budget.shards()
    assert len({shard.file for shard in shards}) == len(shards) == 20
    assert len({shard.generator(7).random() for shard in shards}) == 20
    assert {shard.task for shard in shards} == {None, *range(len(KINDS))}
    assert all(shard.task is None for shard in budget.without_libero().shards())
    assert Shard("train", "static", 3).file == "train-static-0003.npz"
