"""The words a policy is given: hf-libero's `task.language`, but where the perturbation is the language or the goal."""

from itertools import product

import numpy as np
import pytest

from lerobot_policy_quantile.evaluation.tables.benchmarks import CATEGORIES, CONTROLS, PERTURBATIONS, SUITES, pro_scene
from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.libero.assets import find_data, import_libero, libero_package
from lerobot_policy_quantile.scenes.libero.plus_instances import LAYOUT, instances, why_unavailable

LANGUAGE = "Language Instructions"


def scene(name, wording="task.language"):
    return make_scene(name, camera_size=16, wording=wording)


def official(suite):
    """task.language of a suite by task name, from hf-libero's own table."""
    import_libero()
    from libero.libero.benchmark import task_maps

    return {task.name: task.language for task in task_maps[suite].values()}


def language_in(path):
    """The `:language` of a bddl, read without LIBERO's parser."""
    text = path.read_text()
    return " ".join(text[text.index("(:language") + len("(:language") :].split(")")[0].lower().split())


@pytest.mark.libero
def test_all_forty_tasks_speak_hf_liberos_task_language():
    differ = []
    for suite in SUITES:
        ours, old = scene(suite), scene(suite, "bddl")
        assert [ours.instruction_of(task) for task in range(10)] == list(official(suite).values())
        for task in range(10):
            file = libero_package() / "bddl_files" / suite / ours.tasks[task].bddl_file
            assert old.instruction_of(task) == language_in(file)
            differ += [suite] * (ours.instruction_of(task) != old.instruction_of(task))
    assert {suite: differ.count(suite) for suite in SUITES} == {
        "libero_spatial": 10,
        "libero_object": 10,
        "libero_goal": 5,
        "libero_10": 0,
    }


@pytest.mark.libero
def test_the_context_says_which_words_are_spoken():
    """That they are in an observation, too: test_lerobot_libero.py, test_perturbed.py."""
    for wording in ("task.language", "bddl"):
        assert scene("libero_object", wording).versions["wording"] == wording


@pytest.mark.plus
def test_a_hundred_sampled_plus_instances_follow_the_rule():
    rng = np.random.default_rng(22)
    checked = 0
    for suite, category in product(SUITES, CATEGORIES):
        world, words = scene(suite.replace("libero", "libero_plus")), official(suite)
        members = [instance for instance in instances(suite) if instance.category == category]
        for instance in rng.choice(np.array(members, dtype=object), 4, replace=False):
            said = world.instruction_of(instance.number)
            if category == LANGUAGE:
                assert said == " ".join(instance.change["language"].lower().split()) != words[instance.base_task]
            else:
                assert said == words[instance.base_task]
                leaked = instance.name.removeprefix(instance.base_task).split("_")
                assert not said.endswith(" ".join(leaked[1:]))
            checked += 1
    assert checked >= 100


@pytest.mark.plus
def test_no_plus_instruction_ends_like_its_file_name():
    for suite in SUITES:
        world = scene(suite.replace("libero", "libero_plus"))
        for instance in instances(suite):
            words = world.instruction_of(instance.number).split()
            assert not any(char.isdigit() for word in words[-2:] for char in word), instance.name
            assert world.instruction_of(instance.number) == world.instruction_of(instance.number).lower()


@pytest.mark.plus
def test_the_old_wording_of_plus_is_the_bddls():
    world = scene("libero_plus_object", "bddl")
    here = [i for i in instances("libero_object") if why_unavailable(i) is None]
    layout = next(i for i in here if i.category == LAYOUT)
    camera = next(i for i in here if i.category == "Camera Viewpoints")
    language = next(i for i in here if i.change.get("language", "").lower() != i.change.get("language", ""))
    assert world.instruction_of(layout.number).startswith("pick the ")
    assert world.instruction_of(camera.number).startswith("pick the ")
    assert world.instruction_of(language.number) == language.change["language"]


@pytest.mark.pro
def test_all_156_pro_tasks_and_the_controls_follow_the_rule():
    checked = 0
    for suite, kind in product(SUITES, (*PERTURBATIONS, *CONTROLS)):
        world, words = scene(pro_scene(suite, kind)), official(suite)
        for task, (name, unperturbed) in enumerate(words.items()):
            if kind in CONTROLS:
                assert world.instruction_of(task) == unperturbed
            elif world.why_unavailable(task) is None:
                said = world.instruction_of(task)
                if kind in ("semantic", "task"):
                    folder = {"semantic": "lan", "task": "task"}[kind]
                    file = find_data("pro") / "bddl_files" / f"{suite}_{folder}" / f"{name}.bddl"
                    assert said == language_in(file) != unperturbed
                else:
                    assert said == unperturbed
                checked += 1
    assert checked == 156


def test_an_unknown_wording_is_refused_before_anything_is_built():
    with pytest.raises(ValueError, match=r"one of task\.language, bddl; got 'bdll'; did you mean 'bddl'"):
        make_scene("libero_object", wording="bdll")
