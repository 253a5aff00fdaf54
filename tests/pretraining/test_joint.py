"""Joint pretraining on made-up samples: batches of both kinds, aims, two action losses, two output projections."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK
from safetensors.torch import load_file

from lerobot_policy_quantile.policy.base_checkpoint import (
    FLOW_FILE,
    base_checkpoint,
    base_statistics,
    load_base_weights,
    policy_from_base,
)
from lerobot_policy_quantile.pretraining.auxiliary import Spotter
from lerobot_policy_quantile.pretraining.budgets import BUDGETS
from lerobot_policy_quantile.pretraining.checkpoint import write_checkpoint
from lerobot_policy_quantile.pretraining.generate import DataBudget, SuiteShard, suite_files
from lerobot_policy_quantile.pretraining.joint_batches import NEAR_WEIGHT, JointBatches, SuiteBatches
from lerobot_policy_quantile.pretraining.ranges import statistics_of
from lerobot_policy_quantile.pretraining.samples import STATIC, THINGS, Samples
from lerobot_policy_quantile.pretraining.student import JOINT, Student, base_config, processors
from lerobot_policy_quantile.pretraining.suite_proof import ProofChoice, head_folders
from lerobot_policy_quantile.pretraining.suite_samples import SUITE_KINDS, SUITES, SuiteSamples
from lerobot_policy_quantile.pretraining.targets import ABSENT, PLACES, SPOTTED, suite_targets_of, targets_of
from lerobot_policy_quantile.pretraining.train import LOG, Trainer

SIZE, SIDE = 96, 6
SMALL = BUDGETS["suites_small"].training


def _cameras(count, rng):
    turn = np.broadcast_to(np.eye(3, dtype=np.float32), (count, 3, 3)).copy()
    place = np.broadcast_to(np.float32([0, 0, 2]), (count, 3)).copy()
    pictures = {name: rng.integers(0, 255, (count, SIZE, SIZE, 3), dtype=np.uint8) for name in ("external", "wrist")}
    poses = {f"{name}_place": place for name in pictures} | {f"{name}_turn": turn for name in pictures}
    return pictures | poses


def embedded(count=12):
    rng = np.random.default_rng(0)
    things = np.full((count, len(THINGS), 3), np.nan, dtype=np.float32)
    things[:, :4] = rng.uniform(-0.3, 0.3, (count, 4, 3))
    valid = np.zeros((count, len(THINGS), 10), dtype=bool)
    valid[:, :4, 0] = True
    return Samples(
        state=rng.normal(0, 0.2, (count, 8)).astype(np.float32),
        things=things,
        goal=rng.uniform(-0.3, 0.3, (count, 3)).astype(np.float32),
        actions=rng.uniform(-0.3, 0.3, (count, len(THINGS), 10, 7)).astype(np.float32),
        valid=valid,
        driven=np.full(count, STATIC, dtype=np.int8),
        **_cameras(count, rng),
    )


def suites(count=12):
    rng = np.random.default_rng(1)
    texts = [f"put thing {number} on the plate" for number in range(count)]
    return SuiteSamples(
        state=rng.normal(0, 0.2, (count, 8)).astype(np.float32),
        instruction=np.array(texts),
        suite=np.arange(count, dtype=np.int8) % 4,
        target=rng.uniform(-0.3, 0.3, (count, 3)).astype(np.float32),
        destination=rng.uniform(-0.3, 0.3, (count, 3)).astype(np.float32),
        kinds=np.full((count, len(SUITE_KINDS), 3), np.nan, np.float32),
        actions=rng.uniform(-0.9, 0.9, (count, 10, 7)).astype(np.float32),
        valid=np.arange(10) < rng.integers(1, 11, (count, 1)),
        **_cameras(count, rng),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for split in ("train", "held_out"):
        embedded().save(folder / f"{split}-static-0000.npz")
        for number in range(2):
            suites().save(folder / f"{suite_files(split)}-libero_goal-{number:04d}.npz")
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A finished small training."""
    trainer = Trainer(data, tmp_path_factory.mktemp("run"), SMALL, 3)
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("policy")
    write_checkpoint(run.averaged(), run.statistics, out, "card")
    return out


def test_every_part_of_a_batch_has_the_same_share_of_suites():
    joint = JointBatches(embedded(), suites(), lambda raw: raw, SIDE, 0.75)
    whole = joint.draw(8, (3, 1, 0), slice(0, 8)).policy
    parts = [joint.draw(8, (3, 1, 0), slice(begin, begin + 4)).policy for begin in (0, 4)]
    for batch, count in ((whole, 6), (parts[0], 3), (parts[1], 3)):
        assert sum(text.startswith("put thing") for text in batch["task"]) == count
        assert len(batch["task"]) == len(batch["action"]) == count * 4 // 3
    assert sorted(whole["task"]) == sorted(parts[0]["task"] + parts[1]["task"])
    own = [row for row, text in enumerate(whole["task"]) if text.startswith("put thing")]
    numbers = [int(whole["task"][row].split()[2]) for row in own]
    torch.testing.assert_close(whole["action"][own], torch.from_numpy(suites().actions[numbers]))
    torch.testing.assert_close(~whole["action_is_pad"][own], torch.from_numpy(suites().valid[numbers]))


def test_moments_that_decide_a_grasp_are_drawn_more_often():
    samples = suites()
    samples.state[:, 6:] = [0.04, -0.04]
    samples.state[:, :3] = samples.target + 1.0
    samples.state[3, :3] = samples.target[3] + 0.02
    batches = SuiteBatches(samples, lambda raw: raw, SIDE)
    drawn = np.bincount(batches.choose(4000, np.random.default_rng(0)), minlength=len(samples))
    share = NEAR_WEIGHT / (NEAR_WEIGHT + len(samples) - 1)
    assert abs(drawn[3] / 4000 - share) < 0.03
    assert (drawn > 0).all()
    samples.state[3, 6:] = [0.01, -0.01]  # holding, or fingers shut
    shut = SuiteBatches(samples, lambda raw: raw, SIDE).choose(4000, np.random.default_rng(0))
    assert abs((shut == 3).mean() - 1 / len(samples)) < 0.03


def test_things_of_the_suites_are_found_where_there_is_one_of_their_kind():
    samples = suites()
    samples.kinds[2, SUITE_KINDS.index("plate")] = samples.target[2]
    found = suite_targets_of(samples, np.array([2]), SIDE)
    plate = SPOTTED.index("plate")
    assert found.patch[0, :, plate].tolist() == found.aim_patch[0, :, 0].tolist()
    torch.testing.assert_close(found.offset[0, :, plate], found.aim_offset[0, :, 0])
    assert (np.delete(found.patch.numpy(), plate, axis=2) == ABSENT).all()


def test_aims_are_what_is_taken_and_where_it_goes():
    samples, rows = suites(), np.array([2, 5])
    found = suite_targets_of(samples, rows, SIDE)
    assert (found.patch == ABSENT).all()
    away = np.stack([samples.target[rows], samples.destination[rows]], 1) - samples.state[rows, None, :3]
    np.testing.assert_allclose(found.relative, 10 * away.reshape(2, 6), rtol=1e-4, atol=1e-5)
    ours = embedded()
    joint, named = targets_of(ours, rows, np.array([1, 3]), SIDE, aims=2), (1, 3)
    for row in range(2):
        for camera in range(2):
            assert joint.aim_patch[row, camera].tolist() == [
                joint.patch[row, camera, named[row]],
                joint.patch[row, camera, PLACES - 1],
            ]
            torch.testing.assert_close(joint.aim_offset[row, camera, 0], joint.offset[row, camera, named[row]])


def test_a_batch_without_any_present_thing_has_no_loss():
    spotter = Spotter(8, 2)
    assert spotter(torch.randn(5, 4, 8), torch.full((5, 2), ABSENT), torch.zeros(5, 2, 2)).item() == 0


def test_ranges_hold_those_of_every_suite():
    ours, theirs = embedded(), suites()
    theirs.state[theirs.suite == 3, 2] += 5.0
    height = statistics_of(ours, theirs)["observation.state"]
    assert height["q99"][2] > 4
    assert height["q01"][2] < 0
    assert statistics_of(ours)["observation.state"]["q99"][2] < 1


def test_both_action_losses_train_the_expert_each_with_its_own_projection(run):
    log = [json.loads(line) for line in (run.out / LOG).read_text().splitlines()]
    assert {"action", "flow", "spot", "named", "distance", "total"} <= set(log[0])
    student = Student(0, JOINT)
    assert student.policy.backbone.prompts is None
    batch = run.batches.draw(8, (0,), slice(0, 8))
    losses = student.losses(batch, torch.Generator().manual_seed(1))
    total = sum(JOINT.weights[name] * loss for name, loss in losses.items() if name != "total")
    torch.testing.assert_close(losses["total"], total)
    expert = student.policy.backbone.action_in_proj.weight
    projections = student.flow_head.projection.weight, student.policy.head.projection.weight
    flow = torch.autograd.grad(losses["flow"], (expert, *projections), retain_graph=True, allow_unused=True)
    assert all(gradient.abs().max() > 0 for gradient in flow[:2])
    assert flow[2] is None
    direct = torch.autograd.grad(losses["action"], projections, allow_unused=True)
    assert direct[0] is None
    assert direct[1].abs().max() > 0


def test_text_padding_that_all_rows_share_is_cut_and_changes_no_loss(run):
    short = run.batches.draw(8, (0,), slice(0, 8))
    before, _ = processors(run.statistics)
    padded = JointBatches(embedded(), run.suites, before, SIDE, SMALL.suite_share).draw(8, (0,), slice(0, 8))
    lengths = [batch.policy[OBS_LANGUAGE_ATTENTION_MASK].shape[1] for batch in (short, padded)]
    assert lengths[0] == padded.policy[OBS_LANGUAGE_ATTENTION_MASK].sum(-1).max() < lengths[1]
    student = Student(0, JOINT)
    for name, loss in student.losses(short).items():
        torch.testing.assert_close(loss, student.losses(padded)[name], rtol=1e-5, atol=1e-6)


def test_noise_is_a_function_of_seed_update_and_process(run):
    draws = [torch.rand(3, generator=run._noise()) for _ in range(2)]
    assert torch.equal(*draws)
    rank = run.rank
    try:
        run.rank = 1
        assert not torch.equal(draws[0], torch.rand(3, generator=run._noise()))
    finally:
        run.rank = rank


def test_a_resumed_joint_training_equals_an_uninterrupted_one(run, data, tmp_path):
    class StoppedError(Exception):
        pass

    def stop(update, losses):
        if update == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        Trainer(data, tmp_path, SMALL, 3).run(stop)
    resumed = Trainer(data, tmp_path, SMALL, 3)
    assert resumed.update == 3
    resumed.run()
    assert all(torch.equal(one, two) for one, two in zip(run.average, resumed.average, strict=True))


def test_training_goes_on_from_a_checkpoint_in_its_ranges(data, folder, tmp_path):
    more = Trainer(data, tmp_path, replace(SMALL, start=str(folder)), 4)
    stored = load_file(folder / "model.safetensors")
    ours = more.student.policy.state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in stored.items())
    flow = load_file(folder / FLOW_FILE)["flow_projection.weight"]
    assert torch.equal(more.student.flow_head.projection.weight, flow)
    ranges = base_statistics(base_config(freeze_vlm=True), folder)["observation.state"]
    np.testing.assert_array_equal(more.statistics["observation.state"]["q99"], ranges["q99"])
    more.run()
    assert more.update == SMALL.updates
    with pytest.raises(ValueError, match=r"--start must have 0 prompts and a flow projection.* has 16 and none"):
        Trainer(data, tmp_path / "other", replace(SMALL, start=str(base_checkpoint())), 4)


def test_held_out_figures_name_every_suite_and_both_answers(run):
    figures = run.gate()
    for suite in SUITES:
        for head in ("median", "flow"):
            assert figures[f"{suite}_{head}_position_error"] > 0
            assert 0 <= figures[f"{suite}_{head}_gripper_right"] <= 1


def test_flow_heads_get_the_flow_projection_and_the_others_the_direct_one(run, folder):
    flow = load_file(folder / FLOW_FILE)
    direct = load_file(folder / "model.safetensors")
    assert not torch.equal(flow["flow_projection.weight"], direct["head.projection.weight"])
    for head in ("flow", "one_step_flow", "l1", "l2", "quantile"):
        weight = policy_from_base(head, folder=folder).head.projection.weight
        wanted = flow["flow_projection.weight"] if "flow" in head else direct["head.projection.weight"]
        assert torch.equal(weight, wanted), head
    fresh = policy_from_base("flow", folder=folder, output_projection="fresh").head.projection.weight
    assert not torch.equal(fresh, flow["flow_projection.weight"])


def test_prompts_are_new_where_the_base_has_none(folder):
    policy = policy_from_base("quantile", folder=folder, n_prompts=16)
    assert policy.backbone.prompts.shape[0] == 16
    assert policy_from_base("quantile", folder=folder).backbone.prompts is None


def test_a_base_without_a_flow_projection_gives_flow_heads_the_direct_one():
    if (base_checkpoint() / FLOW_FILE).is_file():
        pytest.skip("the shipped base has both")
    direct = load_file(base_checkpoint() / "model.safetensors")["head.projection.weight"]
    assert torch.equal(policy_from_base("flow").head.projection.weight, direct)


def test_a_flow_projection_of_another_shape_is_refused_and_nothing_is_written(folder, tmp_path):
    from shutil import copytree

    from safetensors.torch import save_file

    broken = copytree(folder, tmp_path / "broken")
    save_file({"flow_projection.weight": torch.zeros(3, 3)}, broken / FLOW_FILE)
    policy = policy_from_base("flow", folder=folder)
    with torch.no_grad():
        policy.head.projection.weight.zero_()
    with pytest.raises(ValueError, match=r"flow_projection\.safetensors must hold"):
        load_base_weights(policy.backbone, policy.head, broken)
    assert policy.head.projection.weight.abs().max() == 0


def test_every_head_of_a_base_is_a_policy_folder(folder, tmp_path):
    from lerobot_policy_quantile.adapters.factory import SceneFactory

    folders = head_folders(folder, tmp_path, ("quantile", "flow"))
    assert folders["quantile"] == str(folder)
    policy = SceneFactory(folders, SIZE).policy("flow")
    assert policy.config.head == "flow"
    assert policy.n_action_steps == JOINT.n_action_steps


def test_the_proof_in_suites_uses_no_evaluation_state_and_pairs_heads():
    keys = list(ProofChoice().plan())
    assert {key.index for key in keys} == set(range(20, 30))
    assert len(keys) == 4 * 10 * 10 * 3
    assert [key.policy for key in keys[:4]] == ["quantile", "flow", "one_step_flow", "quantile"]
    with pytest.raises(ValueError, match="heads must be one of"):
        ProofChoice(heads=("crps",))


def test_suite_shards_have_files_and_generators_of_their_own():
    budget = DataBudget(2, 8, 2, 1, SIZE, suite_shards=12, suite_held_out_shards=1)
    shards = budget.shards()
    assert len({shard.file for shard in shards}) == len(shards) == 5 + 4 * 13
    assert len({shard.generator(7).random() for shard in shards}) == len(shards)
    found = [shard for shard in shards if isinstance(shard, SuiteShard)]
    assert {(shard.scene, shard.task) for shard in found} == {(suite, task) for suite in SUITES for task in range(10)}
    assert not any(shard.file.startswith(("train-", "held_out-")) for shard in found)


def test_suites_cannot_be_left_out_of_a_budget_that_trains_on_them():
    with pytest.raises(ValueError, match="--no-libero must be left out"):
        BUDGETS["suites"].without_libero()
    with pytest.raises(ValueError, match="suite_share must lie strictly between 0 and 1"):
        JointBatches(embedded(), suites(), processors(statistics_of(embedded()))[0], SIDE, 1.0)
    assert replace(BUDGETS["full"].training).suite_share == 0
