"""LIBERO-Plus and LIBERO-Pro from their data files: what is listed, what cannot be run and why, and real worlds."""

import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.suites import (
    GROUPS,
    SuiteEntry,
    entries_of,
    episodes_of,
    facts_of,
    parse_categories,
    parse_suites,
)
from lerobot_policy_quantile.evaluation.tables import benchmarks
from lerobot_policy_quantile.scenes.contract import make_scene, perturbed_scene_names
from lerobot_policy_quantile.scenes.libero import plus_instances, pro
from lerobot_policy_quantile.scenes.libero.assets import find_data
from lerobot_policy_quantile.scenes.libero.plus_instances import instances, why_unavailable

BROKEN = {
    ("libero_pro_spatial_task", "pick_up_the_black_bowl_on_the_cookie_box_and_place_it_on_the_plate"),
    ("libero_pro_spatial_task", "pick_up_the_black_bowl_on_the_stove_and_place_it_on_the_plate"),
    ("libero_pro_10_task", "KITCHEN_SCENE3_turn_on_the_stove_and_put_the_moka_pot_on_it"),
    (
        "libero_pro_10_object",
        "LIVING_ROOM_SCENE5_put_the_white_mug_on_the_left_plate_and_put_the_yellow_and_white_mug_on_the_right_plate",
    ),
}


@pytest.fixture(scope="module")
def plus():
    return [i for suite in benchmarks.SUITES for i in instances(suite)]


def test_both_rooms_call_the_scenes_alike():
    assert set(perturbed_scene_names()) == {*GROUPS["libero_plus"], *GROUPS["libero_pro"]}


@pytest.mark.plus
def test_all_instances_are_listed_with_their_category(plus):
    assert len(plus) == 10_030
    counts = {cell: sum((i.suite, i.category) == cell for i in plus) for cell in {(i.suite, i.category) for i in plus}}
    from lerobot_policy_quantile.evaluation.tables.published import plus_counts

    assert counts == plus_counts()


@pytest.mark.plus
def test_instances_agree_with_upstreams_classification(plus):
    upstream = json.loads((find_data("plus") / "task_classification.json").read_text())
    for suite, entries in upstream.items():
        assert [(e["id"] - 1, e["name"], e["category"]) for e in entries] == [
            (i.number, i.name, i.category) for i in plus if i.suite == suite
        ]


@pytest.mark.plus
def test_no_instruction_says_how_it_was_perturbed(plus):
    for instance in plus:
        if "language" in instance.change:
            assert not {"view", "noise", "initstate", "language"} & set(instance.change["language"].split())


@pytest.mark.plus
def test_what_is_available_follows_from_the_files(plus):
    """The data's own mark `real` was set from the same assets; we look at the files instead."""
    marked = {}
    for line in (find_data("plus") / "instances.jsonl").read_text().splitlines():
        entry = json.loads(line)
        marked[entry["suite"], entry["id"] - 1] = entry["real"]
    assert {(i.suite, i.number): why_unavailable(i) is None for i in plus} == marked


@pytest.mark.plus
def test_layouts_need_no_pickle():
    with np.load(find_data("plus") / "layout_init.npz", allow_pickle=False) as archive:
        assert len(archive.files) == 1525


@pytest.mark.plus
def test_an_unavailable_instance_is_refused_with_its_reason(plus):
    lights = next(i for i in plus if i.category == "Light Conditions" and i.suite == "libero_object")
    if why_unavailable(lights) is None:
        pytest.skip("looked for an instance without its files; these assets have them all")
    scene = make_scene("libero_plus_object", camera_size=16)
    with pytest.raises(ValueError, match=r"cannot be run: the assets have no scene file for it \(in scenes/lights/\)"):
        scene.reset(lights.number, 0, 0)


def of(plus, suite, category, **change):
    return next(
        i
        for i in plus
        if (i.suite, i.category) == (suite, category) and all(i.change.get(k) == v for k, v in change.items())
    )


@pytest.mark.slow
@pytest.mark.plus
def test_real_instances_differ_from_their_base_task_as_they_say(plus):
    """Camera: another external picture, the same physics. Robot: another arm. Noise: one picture only. Language."""
    scene = make_scene("libero_plus_object", camera_size=48)
    base = make_scene("libero_object", camera_size=48)
    try:
        camera, robot, noise, language = (
            of(plus, "libero_object", category)
            for category in ("Camera Viewpoints", "Robot Initial States", "Sensor Noise", "Language Instructions")
        )
        assert len({i.base_task for i in (camera, robot, noise, language)}) == 1
        base.reset(scene._base[camera.base_task], 0, 3)
        start = base.frames()
        scene.reset(camera.number, 0, 3)
        assert not np.array_equal(scene.frames()["external"], start["external"])
        np.testing.assert_array_equal(scene.simulator_state(), base.simulator_state())
        np.testing.assert_array_equal(scene.frames()["wrist"], start["wrist"])
        assert scene.instruction == base.instruction
        scene.reset(robot.number, 0, 3)
        assert np.abs(scene.state()[:3] - base.state()[:3]).max() > 0.005
        scene.reset(noise.number, 0, 3)
        noisy = scene.frames()
        assert not np.array_equal(noisy["external"], start["external"])
        np.testing.assert_array_equal(noisy["wrist"], start["wrist"])
        np.testing.assert_array_equal(scene.frames()["external"], noisy["external"])
        scene.reset(language.number, 0, 3)
        assert scene.instruction == language.change["language"].lower() != base.instruction
    finally:
        scene.close()
        base.close()


@pytest.mark.pro
def test_pro_lists_160_tasks_of_which_four_are_broken_by_name():
    scenes = [benchmarks.pro_scene(s, p) for s in benchmarks.SUITES for p in benchmarks.PERTURBATIONS]
    entries = [entry for scene in scenes for entry in entries_of(scene)]
    assert len(entries) == 160
    assert {(e.scene, e.name) for e in entries if e.reason is not None} == BROKEN
    assert {e.states for e in entries if e.reason is None} == {50}


@pytest.mark.pro
def test_pro_runs_with_its_own_objects_and_its_own_instruction():
    scene = make_scene("libero_pro_object_object", camera_size=32)
    try:
        scene.reset(0, 0, 0)
        assert set(scene.world.objects_dict) & {"red_alphabet_soup_1", "bigger_alphabet_soup_1"}
        assert scene.frames()["external"].std() > 1
        assert make_scene("libero_pro_10_task").limit == 800
    finally:
        scene.close()


class Attack:
    def __reduce__(self):
        return os.mkdir, ("broken_in",)


@pytest.mark.bad_input
@pytest.mark.pro
def test_a_malicious_pickle_in_place_of_initial_states_is_refused(tmp_path, monkeypatch):
    source = find_data("pro")
    name = "libero_object_task"
    for folder in ("bddl_files", "init_files"):
        shutil.copytree(source / folder / name, tmp_path / "pro" / folder / name)
    shutil.copy(source / "objects.json", tmp_path / "pro")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pro, "find_data", lambda part: tmp_path / part)
    scene = make_scene("libero_pro_object_task", camera_size=16)
    victim = scene._own(0, "init")
    victim.chmod(0o644)
    victim.parent.chmod(0o755)
    with zipfile.ZipFile(victim, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Attack(), protocol=2))
    assert "may only hold numpy arrays" in scene.why_unavailable(0)
    with pytest.raises(ValueError, match="cannot be run: its initial states are missing or broken"):
        scene.reset(0, 0, 0)
    assert not (tmp_path / "broken_in").exists()


@pytest.mark.bad_input
def test_a_torn_list_of_instances_is_refused(tmp_path, monkeypatch):
    line = {"suite": "libero_object", "id": 2, "name": "n", "category": "Sensor Noise", "base_task": "b", "noise": 1}
    (tmp_path / "instances.jsonl").write_text(json.dumps(line) + "\n")
    monkeypatch.setattr(plus_instances, "find_data", lambda part: tmp_path)
    with pytest.raises(ValueError, match="must count 1, 2, 3"):
        instances.__wrapped__("libero_object")
    with pytest.raises(ValueError, match="there is no such file"):
        plus_instances._all.__wrapped__(tmp_path / "nowhere")


# --- plans ---


def test_a_hundred_episodes_use_fifty_states_twice_with_other_seeds():
    entry = SuiteEntry("libero_object", 3, "n", None, 50, None)
    found = episodes_of(entry, 100, 7)
    assert len(set(found)) == 100
    assert found[0] == (0, 7)
    assert found[49:51] == [(49, 7), (0, 8)]
    assert episodes_of(SuiteEntry("libero_plus_10", 3, "n", "Sensor Noise", 1, None), 100, 7) == [(0, 7)]
    assert episodes_of(SuiteEntry("libero_pro_10_task", 3, "n", None, 0, "broken"), 100, 7) == []


def test_facts_count_the_whole_benchmark():
    entries = [
        SuiteEntry("libero_plus_10", 0, "a", "Sensor Noise", 1, None),
        SuiteEntry("libero_plus_10", 1, "b", "Light Conditions", 0, "no file"),
        SuiteEntry("libero_object", 0, "c", None, 50, None),
    ]
    facts = facts_of(entries, 100)
    assert facts.population == {"libero_plus_10": 2, "libero_object": 100}
    assert facts.unavailable == {"libero_plus_10": {1: "no file"}}


def test_suites_and_categories_are_read_with_hints():
    assert parse_suites("libero_10,libero") == ["libero_10", "libero_spatial", "libero_object", "libero_goal"]
    assert len(parse_suites("libero_plus")) == 4
    assert parse_suites("libero_pro_10_task") == ["libero_pro_10_task"]
    with pytest.raises(ValueError, match="did you mean 'libero_plus'"):
        parse_suites("libero_pluss")
    assert parse_categories(["camera", "Lang", "Sensor Noise"]) == [
        "Camera Viewpoints",
        "Language Instructions",
        "Sensor Noise",
    ]
    with pytest.raises(ValueError, match="--category must be one of"):
        parse_categories(["smell"])
