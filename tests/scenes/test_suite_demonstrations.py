"""Collection of whole suites with a scene and an expert that need no simulator; the last tests use LIBERO."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from lerobot_policy_quantile.scenes import suite_demonstrations as demonstrations
from lerobot_policy_quantile.scenes.demonstration_folder import CollectError
from lerobot_policy_quantile.scenes.experts.disturbance import COLLECTION
from lerobot_policy_quantile.scenes.experts.drive import Drive
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe, Slot, Take, perform
from lerobot_policy_quantile.scenes.suite_folder import EPISODES, collect_suite
from lerobot_policy_quantile.util.locks import alone

SIZE, SOLVED, STEPS = 8, 12, 62


class FakeScene:
    """A point that actions move; its pictures and its state follow from key and actions."""

    task_count, limit, versions = 10, 100, {"mujoco": "none"}

    def __init__(self, name="libero_object", *, camera_size=SIZE, wording="task.language"):
        self.name, self.camera_size, self.closed = name, camera_size, False

    def state_count(self, task):
        return 50

    def reset(self, task, index, seed):
        self.instruction = f"{self.name}: do {task}"
        self.place = np.random.default_rng([task, index, seed]).normal(size=8)

    def frames(self):
        values = (np.abs(self.place[0]) * 100 + np.arange(SIZE * SIZE * 3)) % 256
        picture = values.astype(np.uint8).reshape(SIZE, SIZE, 3)
        return {"external": picture, "wrist": picture[::-1]}

    def state(self):
        return self.place.copy()

    def step(self, action, *, observe=False):
        self.place[:7] += action

    def close(self):
        self.closed = True


def drive_that(fails):
    """A stand-in for `drive`: moves for 20 steps, rests for 42, and does not end solved where `fails(key)`."""

    def drive(scene, key, *, style, disturbances, limit, grace, seen):
        scene.reset(*key)
        executed = disturbances.begin(key[2])
        for step in range(STEPS):
            label = np.full(7, style.speed / 2) if step < 20 else np.array([0.0, 0, 0, 0, 0, 0, style.speed / 2])
            done = executed(label)
            seen(label, done)
            scene.step(done, observe=True)
        return Drive(SOLVED, not fails(key), True, STEPS)

    return drive


@pytest.fixture
def world(monkeypatch):
    """Replaces the simulator; `world(fails)` chooses which keys do not end solved."""
    monkeypatch.setattr(demonstrations, "make_scene", FakeScene)

    def choose(fails=lambda key: False):
        monkeypatch.setattr(demonstrations, "drive", drive_that(fails))

    choose()
    return choose


def recipe(**changes):
    tasks = (("libero_object", 0), ("libero_goal", 3))
    return CollectionRecipe(**{"tasks": tasks, "episodes": 2, "camera_size": SIZE, **changes})


def collect(out, wanted, told=lambda *_: None):
    return collect_suite(out, wanted, workers=1, repo_id="qhead/test", told=told)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npz"))}


@pytest.mark.parametrize("state", [0, 19, 45, 49])
def test_states_kept_for_evaluation_are_refused(state):
    with pytest.raises(ValueError, match=rf"states must lie in 20\.\.44, .* evaluation; got \[{state}\]"):
        recipe(states=(25, state))


def test_states_are_taken_in_turn_and_seeds_differ():
    wanted = recipe(episodes=60)
    slots = list(wanted.slots())
    assert [slot.state(wanted) for slot in slots[:27]] == [*range(20, 45), 20, 21]
    seeds = {slot.seed(wanted, attempt) for slot in slots for attempt in range(5)}
    assert len(seeds) == 120 * 5
    assert max(seeds) < 2**32, "numpy's global generator takes no more"
    assert slots[0].seed(wanted, 0) != slots[0].seed(recipe(seed=1), 0)


def test_labels_are_clean_and_the_robot_executes_disturbed_actions(world):
    key = (0, 25, 11)
    take = perform(FakeScene(), key, recipe())
    executed = COLLECTION.begin(11)
    np.testing.assert_array_equal(take.executed, [executed(label) for label in take.labels])
    assert not np.array_equal(take.executed, take.labels)
    assert take.labels[0][0] == Style.draw(11).speed / 2
    moved = np.array(take.states[1])[:7] - np.array(take.states[0])[:7]
    np.testing.assert_allclose(moved, take.executed[0])


def test_plain_and_undisturbed_demonstrations(world):
    take = perform(FakeScene(), (0, 25, 11), recipe(plain=True, undisturbed=True))
    np.testing.assert_array_equal(take.executed, take.labels)
    assert take.labels[0][0] == Style.plain().speed / 2


def test_a_demonstration_ends_half_a_second_after_the_hand_rests(world):
    take = perform(FakeScene(), (0, 25, 11), recipe())
    assert take.length == 20 + 10
    take.labels = [np.zeros(7)] * STEPS
    assert take.length == SOLVED + 10, "the flag is always among what is kept"


@pytest.mark.parametrize("end", [Drive(None, False, False, 9), Drive(5, False, True, 9), Drive(5, True, False, 9)])
def test_only_what_is_left_solved_counts(end):
    assert not Take(end=end).good
    assert Take(end=Drive(5, True, True, 9)).good


def test_a_failed_attempt_is_replaced_by_the_next_seed_and_counted(world, tmp_path):
    wanted, slot = recipe(), Slot("libero_goal", 3, 1)
    first, second = slot.seed(wanted, 0), slot.seed(wanted, 1)
    world(lambda key: key[2] == first)
    progress = []
    rows = collect(tmp_path / "out", wanted, lambda *now: progress.append(now))
    assert [row["seed"] for row in rows if row["number"] == 1 and row["task"] == 3] == [second]
    with np.load(tmp_path / "out" / "episodes" / f"{slot.name}.npz") as stored:
        assert (stored["seed"], stored["state"]) == (second, 21)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [(task["successes"], task["attempts"]) for task in card["tasks"]] == [(2, 2), (2, 3)]
    assert card["errors"] == []
    assert "| 2 of 3 |" in (tmp_path / "out" / "README.md").read_text()
    assert [now[1:] for now in progress if now[0] == "episodes"] == [(n, 4, n // 4) for n in range(5)]
    assert [now[1:] for now in progress if now[0] == "dataset"] == [(n, 4, 1) for n in range(5)]


def test_what_never_succeeds_is_an_error_in_the_card(world, tmp_path):
    world(lambda key: key[:2] == (3, 21))
    rows = collect(tmp_path / "out", recipe())
    assert [row["file"] is None for row in rows] == [False, False, False, True]
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    (error,) = card["errors"]
    assert error.startswith("libero_goal task 3, demonstration 1 (state 21): none of 5 attempts")
    assert error in (tmp_path / "out" / "README.md").read_text()
    listed = json.loads((tmp_path / "out" / "dataset" / "meta" / "demonstrations.json").read_text())
    assert len(listed) == 3


def test_without_a_success_there_is_no_dataset(world, tmp_path):
    world(lambda key: True)
    with pytest.raises(ValueError, match="at least one demonstration must succeed"):
        collect(tmp_path / "out", recipe(tries=1))
    assert not (tmp_path / "out" / "dataset").exists()


@pytest.mark.bad_input
def test_two_collections_into_one_folder_are_refused(world, tmp_path):
    out = tmp_path / "out"
    collect(out, recipe())
    with alone(out / EPISODES, "collection"), pytest.raises(ValueError, match="is in use by another collection"):
        collect(out, recipe())


def test_a_stopped_run_resumes_with_the_same_files(world, tmp_path):
    def stop_at_two(what, done, *_):
        if done == 2:
            raise KeyboardInterrupt

    collect(tmp_path / "whole", recipe())
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "stopped", recipe(), stop_at_two)
    before = contents(tmp_path / "stopped" / "episodes")
    assert len(before) == 2
    (tmp_path / "stopped" / "dataset.part").mkdir()  # as a kill during the conversion leaves it
    starts = []
    collect(tmp_path / "stopped", recipe(), lambda what, done, *_: starts.append(done))
    assert starts[0] == 2, "what is there is not made again"
    assert contents(tmp_path / "stopped" / "episodes") == contents(tmp_path / "whole" / "episodes")
    assert not (tmp_path / "stopped" / "dataset.part").exists()
    assert not demonstrations._scenes, "simulators are closed"


def test_episodes_can_be_added_but_not_taken_away(world, tmp_path):
    from lerobot.datasets import LeRobotDataset

    out = tmp_path / "out"
    collect(out, recipe(episodes=1))
    first = contents(out / "episodes")
    collect(out, recipe(episodes=2))
    assert first.items() < contents(out / "episodes").items()
    assert LeRobotDataset("qhead/test", root=out / "dataset").num_episodes == 4
    with pytest.raises(ValueError, match=r"--episodes must be at least 2, .*; got 1"):
        collect(out, recipe(episodes=1))


def test_a_finished_run_is_not_converted_again(world, tmp_path):
    collect(tmp_path / "out", recipe())
    before = (tmp_path / "out" / "dataset" / "meta" / "info.json").stat().st_mtime_ns
    for file in (tmp_path / "out" / "episodes").glob("*.npz"):
        file.unlink()
    collect(tmp_path / "out", recipe())
    assert (tmp_path / "out" / "dataset" / "meta" / "info.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("change", [{"seed": 5}, {"plain": True}, {"undisturbed": True}, {"states": (30,)}])
def test_another_recipe_is_refused(world, tmp_path, change):
    collect(tmp_path / "out", recipe())
    with pytest.raises(ValueError, match=f"{next(iter(change))} was .*; use another --out"):
        collect(tmp_path / "out", recipe(**change))


def test_a_folder_with_other_things_is_left_alone(world, tmp_path):
    (tmp_path / "dataset").mkdir()
    with pytest.raises(CollectError, match="--out must be a new or empty folder"):
        collect(tmp_path, recipe())
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_the_dataset_holds_labels_instructions_and_exact_statistics(world, tmp_path):
    from lerobot.datasets import LeRobotDataset

    from lerobot_policy_quantile.policy.normalisation import exact_statistics

    out = tmp_path / "out"
    rows = collect(out, recipe())
    dataset = LeRobotDataset("qhead/test", root=out / "dataset")
    assert dataset.num_episodes == 4
    assert dataset.num_frames == sum(row["steps"] for row in rows)
    assert dataset[0]["task"] == "libero_object: do 0"
    assert dataset[dataset.num_frames - 1]["task"] == "libero_goal: do 3"
    assert dataset[0]["action"][0] == np.float32(Style.draw(rows[0]["seed"]).speed / 2)
    exact = exact_statistics(out / "dataset")["action"]["q01"]
    np.testing.assert_allclose(dataset.meta.stats["action"]["q01"], exact, rtol=1e-6)


COMMAND = (
    *(sys.executable, "-m", "lerobot_policy_quantile.cli.main", "collect", "--suite", "libero_object"),
    *("--tasks", "0,1", "--episodes", "1", "--camera-size", "32", "--workers", "1", "--out"),
)


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Two tasks of LIBERO-Object, by the command; the log says how it went."""
    out = tmp_path_factory.mktemp("suite") / "out"
    subprocess.run([*COMMAND, out], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return out


@pytest.mark.libero
@pytest.mark.slow
def test_libero_demonstrations_train_like_any_other_dataset(collected):
    """A batch with chunks of ten actions, as `lerobot-train` takes it."""
    import torch
    from lerobot.datasets import LeRobotDataset

    steps = {"action": [number / 20 for number in range(10)]}
    dataset = LeRobotDataset("qhead/demonstrations", root=collected / "dataset", delta_timestamps=steps)
    assert dataset.num_episodes == 2
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert batch["action"].shape == (4, 10, 7)
    assert batch["observation.images.image"].shape == (4, 3, 32, 32)
    assert batch["task"][0] == "pick up the alphabet soup and place it in the basket"


@pytest.mark.libero
@pytest.mark.slow
def test_executed_actions_lead_to_the_stored_states_and_a_rerun_gives_the_same_file(collected, tmp_path):
    from lerobot_policy_quantile.scenes.contract import make_scene

    file = collected / "episodes" / "libero_object_00_0000.npz"
    with np.load(file) as stored:
        scene = make_scene("libero_object", camera_size=32)
        scene.reset(0, int(stored["state"]), int(stored["seed"]))
        for executed, state in zip(stored["executed"], stored["states"], strict=True):
            np.testing.assert_array_equal(scene.state().astype(np.float32), state)
            scene.step(executed)
        assert scene.success()
        scene.close()
    before = file.read_bytes()
    file.unlink()
    file.with_suffix(".json").unlink()  # as if the run had been killed before this demonstration
    subprocess.run([*COMMAND, collected], check=True)
    assert file.read_bytes() == before
