"""Settings are read from small files, checked, and fixed for a folder."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.studies.two_demo import settings as module
from lerobot_policy_quantile.studies.two_demo.closed_loop import TURN, SameStart, arm_plan
from lerobot_policy_quantile.studies.two_demo.paper import FREE, OBSTACLE
from lerobot_policy_quantile.studies.two_demo.settings import StudySettings, changed, fix_settings, load_settings


def test_make_study_is_what_was_promised():
    study = load_settings("study")
    assert (study.seeds, study.updates, study.episodes) == (3, 6000, 50)
    assert study.arms == ("embedded", "embedded+obstacle", "libero_object", "libero_object+obstacle")
    assert (study.arm_limit("embedded"), study.arm_limit("embedded+obstacle")) == (400, 600)
    assert set(OBSTACLE) <= set(study.arm_decoders("embedded+obstacle"))
    assert set(FREE) <= set(study.arm_decoders("embedded"))


def test_make_demo_has_both_settings_four_heads_and_ten_episodes():
    demo = load_settings("demo")
    assert demo.arms == ("embedded", "embedded+obstacle")
    assert {head for head, _ in demo.arm_decoders("embedded")} == {"quantile", "l1", "l2", "flow"}
    assert 8 <= demo.episodes <= 12


def test_development_and_evaluation_episodes_do_not_meet():
    demo, study = load_settings("demo"), load_settings("study")
    pair = ("quantile", "shared(l=0, rho=0.9)")
    assert not set(demo.arm_episodes(*pair)) & set(study.arm_episodes(*pair))


@pytest.mark.parametrize(
    ("head", "decoder", "count"),
    [("quantile", "median", 2), ("quantile", "densest", 1), ("quantile", "shared(l=0, rho=0.9)", 10), ("l1", "own", 1),
     ("l2", "own", 1), ("flow", "own", 10)],
)  # fmt: skip
def test_deterministic_decoders_run_once_and_the_median_twice(head, decoder, count):
    assert len(StudySettings().arm_episodes(head, decoder)) == count


def test_decoders_take_turns_so_that_half_a_run_has_half_of_each():
    settings = StudySettings(episodes=2 * TURN, seeds=1, first_seed=2)
    plan = list(arm_plan("embedded", settings))
    pairs = settings.arm_decoders("embedded")
    assert len(plan) == len(set(plan)) == sum(len(settings.arm_episodes(*pair)) for pair in pairs)
    first = [(key.policy, key.decoder) for key in plan if key.seed == 0]
    assert sorted(first) == sorted((f"{h}-2", d) for h, d in pairs)
    early = [key for key in plan if key.seed < TURN]
    assert plan[: len(early)] == early
    models = [one.policy for one, two in pairwise([*plan, None]) if two is None or one.policy != two.policy]
    assert len(models) <= 2 * len({key.policy for key in plan}), "every head's model is loaded once per turn"


def test_nearby_starts_belong_to_deterministic_decoders_and_come_last():
    settings = StudySettings(episodes=3, nearby_starts=4)
    plan = list(arm_plan("embedded", settings))
    nearby = [key for key in plan if key.index]
    assert plan[-len(nearby) :] == nearby
    assert {(key.policy, key.decoder) for key in nearby} == {
        ("quantile-0", "median"),
        ("l1-0", "own"),
        ("l2-0", "own"),
    }
    assert len(nearby) == len(set(nearby)) == 3 * 4
    assert plan[: -len(nearby)] == list(arm_plan("embedded", replace(settings, nearby_starts=0)))


def test_a_nearby_start_is_a_centimetre_or_so_away_and_the_same_every_time():
    world = SameStart(make_scene("embedded", camera_size=32))
    try:
        hands = []
        for index in (0, 1, 2, 1, 0):
            world.reset(0, index, 5)
            hands.append(world.state()[:3])
            assert set(world.frames()) == {"external", "wrist"}
        shared, one, two, again, back = hands
        np.testing.assert_array_equal(back, shared)
        np.testing.assert_array_equal(again, one)
        away = [np.linalg.norm(hand - shared) for hand in (one, two)]
        assert 0.003 < min(away) <= max(away) < 0.03
        assert np.linalg.norm(one - two) > 0.003
    finally:
        world.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("updats = 5", "got 'updats'; did you mean 'updates'"),
        ("updates = 0", "updates must be at least 1; got 0"),
        ("first_seed = -1", "first_seed must not be negative; got -1"),
        ("learning_rate = -1.0", "learning_rate must be positive"),
        ("head_learning_rate = 0.0", "head_learning_rate must be positive"),
        ('scenes = ["embeded"]', "got 'embeded'; did you mean 'embedded'"),
        ('decoders = ["shared"]', "decoders must hold median"),
        ('decoders = ["shraed", "median"]', "did you mean 'shared'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_settings(str(tmp_path / "mine.toml"))


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match=r"settings must be demo, study, paper or a TOML file; got 'nope.toml'"):
        load_settings("nope.toml")


def test_a_folder_keeps_its_settings_but_may_grow(tmp_path):
    begun = StudySettings(obstacle=(False,), updates=10)
    fix_settings(tmp_path, begun, "random")
    fix_settings(tmp_path, changed(begun, seeds=2, episodes=20, obstacle=(True,)), "random")
    found = json.loads((tmp_path / "study.json").read_text())
    assert found["arms"] == ["embedded", "embedded+obstacle"]
    assert found["seeds"] == 2
    with pytest.raises(ValueError, match=r"begun with other settings .updates was 10, now 11"):
        fix_settings(tmp_path, changed(begun, updates=11), "random")
    with pytest.raises(ValueError, match="base was 'random', now 'elsewhere'"):
        fix_settings(tmp_path, begun, "elsewhere")


def test_every_default_decoder_is_spelled_canonically():
    assert module.StudySettings().decoders[0] == "native(l=0.1, rho=0.9, T=0.35)"


def test_the_study_speaks_the_words_its_base_was_pretrained_on(tmp_path):
    assert load_settings("study").wording == StudySettings().wording == "bddl"
    fix_settings(tmp_path, StudySettings(), "base")
    begun = json.loads((tmp_path / "study.json").read_text())
    del begun["wording"]  # a folder older than the field
    (tmp_path / "study.json").write_text(json.dumps(begun))
    with pytest.raises(ValueError, match=r"wording was 'bddl', now 'task\.language'"):
        fix_settings(tmp_path, StudySettings(wording="task.language"), "base")
    fix_settings(tmp_path, StudySettings(), "base")
    with pytest.raises(ValueError, match="wording must be one of"):
        StudySettings(wording="words")
