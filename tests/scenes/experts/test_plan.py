"""From goal predicates to steps, for all forty tasks."""

import pytest

from lerobot_policy_quantile.scenes.experts.grips import GRIPS, OVEN_GRIPS, grip_for
from lerobot_policy_quantile.scenes.experts.plan import (
    DRAG,
    PULL,
    PUSH,
    PUT,
    SHUT_DOOR,
    TURN,
    drawer_names,
    is_drawer,
    plan_of,
)
from lerobot_policy_quantile.scenes.libero.assets import import_libero, libero_package

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")


def skills(*goals):
    return [(step.skill, step.thing) for step, _ in plan_of(goals)]


def test_a_thing_that_belongs_into_a_drawer_brings_its_opening_and_shutting_comes_last():
    close = ["close", "white_cabinet_1_bottom_region"]
    into = ["in", "akita_black_bowl_1", "white_cabinet_1_bottom_region"]
    assert skills(close, into) == [
        (PULL, "white_cabinet_1_bottom_region"),
        (PUT, "akita_black_bowl_1"),
        (PUSH, "white_cabinet_1_bottom_region"),
    ]
    (pull, _), (put, _), _ = plan_of([close, into])
    assert pull.unless == put


def test_a_stove_is_turned_on_before_pots_are_put_on_it():
    pots = [["on", f"moka_pot_{n}", "flat_stove_1_cook_region"] for n in (1, 2)]
    assert skills(*pots, ["turnon", "flat_stove_1"]) == [
        (TURN, "flat_stove_1"),
        (PUT, "moka_pot_1"),
        (PUT, "moka_pot_2"),
    ]


def test_plates_are_dragged_and_microwaves_have_doors():
    assert skills(["on", "plate_1", "main_table_stove_front_region"]) == [(DRAG, "plate_1")]
    assert skills(["close", "microwave_1"]) == [(SHUT_DOOR, "microwave_1")]


def test_the_top_of_a_cabinet_is_no_drawer():
    assert not is_drawer("wooden_cabinet_1_top_side")
    assert drawer_names("wooden_cabinet_1_top_region") == ("wooden_cabinet_1", "top")
    with pytest.raises(ValueError, match="top, middle or bottom drawer; got 'wine_rack_1_top_region'"):
        drawer_names("wine_rack_1_top_region")


@pytest.mark.bad_input
def test_another_predicate_is_refused():
    with pytest.raises(ValueError, match=r"goal predicate must be one of open.*; got 'turnoff'"):
        plan_of([["turnoff", "flat_stove_1"]])


@pytest.mark.bad_input
def test_a_thing_that_was_never_taken_is_refused_by_name():
    with pytest.raises(ValueError, match="got 'akita_black_bwol'; did you mean 'akita_black_bowl'"):
        grip_for("akita_black_bwol")
    with pytest.raises(ValueError, match="for the microwave: white_yellow_mug; got 'moka_pot'"):
        grip_for("moka_pot", oven=True)


def test_things_in_another_colour_are_taken_alike():
    assert grip_for("red_cream_cheese") is GRIPS["cream_cheese"]


@pytest.mark.libero
@pytest.mark.parametrize("suite", SUITES)
def test_every_task_has_a_plan_and_every_thing_in_it_a_grip(suite):
    import_libero()
    from libero.libero.envs.bddl_utils import robosuite_parse_problem

    files = sorted((libero_package() / "bddl_files" / suite).glob("*.bddl"))
    assert len(files) == 10
    for file in files:
        problem = robosuite_parse_problem(str(file))
        steps = [step for step, _ in plan_of(problem["goal_state"])]
        assert 1 <= len(steps) <= 3
        for step in steps:
            if step.skill in (PUT, DRAG):
                kind = next(kind for kind, names in problem["objects"].items() if step.thing in names)
                into_oven = str(step.place).startswith("microwave")
                assert grip_for(kind, oven=into_oven) in [*GRIPS.values(), *OVEN_GRIPS.values()]
