"""LIBERO-Plus in two parts: no instance is both demonstrated and drawn for evaluation."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters import suites
from lerobot_policy_quantile.adapters.suite_choice import SuiteChoice
from lerobot_policy_quantile.adapters.suites import SuiteEntry
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.scenes.libero import plus_split
from lerobot_policy_quantile.scenes.libero.plus_instances import Instance
from lerobot_policy_quantile.scenes.libero.plus_split import for_training, training_instances
from lerobot_policy_quantile.scenes.suite_demonstrations import CollectionRecipe

SCENES = ("libero_plus_object", "libero_plus_10")
CATEGORIES = ("Sensor Noise", "Camera Viewpoints")


@pytest.fixture
def listed(monkeypatch):
    """Two hundred instances per suite, every tenth without its files."""

    def instances(suite):
        return tuple(Instance(suite, n, f"n{n}", CATEGORIES[n % 2], "task", {}) for n in range(200))

    def entries_of(scene):
        return [
            SuiteEntry(scene, i.number, i.name, i.category, 0 if i.number % 10 == 9 else 1, None)
            for i in instances(scene)
        ]

    monkeypatch.setattr(plus_split, "instances", instances)
    monkeypatch.setattr(plus_split, "why_unavailable", lambda i: "no file" if i.number % 10 == 9 else None)
    monkeypatch.setattr(suites, "entries_of", entries_of)


def test_about_one_in_four_is_for_training_for_good():
    share = sum(for_training("libero_plus_object", n) for n in range(2518)) / 2518
    assert 0.22 < share < 0.28
    assert [n for n in range(16) if for_training("libero_plus_object", n)] == [7, 12]


@pytest.mark.parametrize("sample", [1, 50, 400])
def test_a_sample_and_demonstrations_never_share_an_instance(listed, sample):
    chosen = SuiteChoice(",".join(SCENES), "paper", None, [], sample, 0)
    drawn = {(key.scene, key.task) for key in chosen.plan(chosen.entries(), [("a", "own")], mixed=False)}
    demonstrated = training_instances(SCENES, 60, 0)
    assert drawn
    assert not drawn & set(demonstrated)
    assert all(for_training(*each) for each in demonstrated)


def test_the_whole_benchmark_is_still_run_whole(listed):
    chosen = SuiteChoice(",".join(SCENES), "paper", None, [], None, 0)
    assert len(chosen.plan(chosen.entries(), [("a", "own")], mixed=False)) == 2 * 180


def test_instances_follow_from_the_seed_and_categories_take_turns(listed):
    found = training_instances(SCENES, 20, 3)
    assert found == training_instances(SCENES, 20, 3) != training_instances(SCENES, 20, 4)
    strata = [(scene, number % 2) for scene, number in found]
    assert {strata.count(each) for each in strata} == {5}
    assert not any(number % 10 == 9 for _, number in found)


@pytest.mark.bad_input
@pytest.mark.parametrize("count", [0, 10_000])
def test_more_instances_than_there_are_cannot_be_demonstrated(listed, count):
    with pytest.raises(ValueError, match=rf"--instances must lie in 1\.\.\d+, .*; got {count}"):
        training_instances(SCENES, count, 0)


@pytest.mark.bad_input
def test_a_recipe_refuses_instances_that_are_kept_for_evaluation():
    train, kept = (next(n for n in range(100) if for_training(SCENES[0], n) == wanted) for wanted in (True, False))
    assert CollectionRecipe(((SCENES[0], train),), 1, states=(0,)).plus
    with pytest.raises(ValueError, match=f"kept for evaluation; got {SCENES[0]} {kept}"):
        CollectionRecipe(((SCENES[0], train), (SCENES[0], kept)), 1, states=(0,))
    with pytest.raises(ValueError, match="got libero_10 3"):
        CollectionRecipe(((SCENES[0], train), ("libero_10", 3)), 1, states=(0,))
    with pytest.raises(ValueError, match=r"states must be \(0,\)"):
        CollectionRecipe(((SCENES[0], train),), 1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--suite", "libero_plus"), "got no --instances"),
        (("--suite", "libero_plus", "--instances", "3", "--tasks", "0-2"), "got --tasks"),
        (("--suite", "libero", "--instances", "3"), "--instances needs --suite libero_plus"),
        (("--suite", "libero_plus,libero_10", "--instances", "3"), "LIBERO-Plus's alone"),
        (("--instances", "3"), "needs --suite"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, words, said):
    result = CliRunner().invoke(app, ["collect", *words, "--out", str(tmp_path / "x")], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.mark.libero
@pytest.mark.plus
@pytest.mark.slow
def test_real_instances_are_demonstrated_and_become_a_dataset(tmp_path):
    command = "from lerobot_policy_quantile.cli.main import app; app()"
    words = ("collect", "--suite", "libero_plus_object", "--instances", "3", "--camera-size", "32", "--workers", "1")
    subprocess.run([sys.executable, "-c", command, *words, "--out", tmp_path], check=True)
    listed = json.loads((tmp_path / "dataset" / "meta" / "demonstrations.json").read_text())
    assert len(listed) == 3
    assert all(each["scene"] == "libero_plus_object" and for_training(each["scene"], each["task"]) for each in listed)
    card = json.loads((tmp_path / "card.json").read_text())
    assert sum(task["demonstrations"] for task in card["tasks"]) == 3
    assert "LIBERO-Plus instance's own" in (tmp_path / "README.md").read_text()
