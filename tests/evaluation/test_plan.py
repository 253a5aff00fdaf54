import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan, parse_numbers

KEY = EpisodeKey("embedded", 0, 3, 7, "runs/a b/π", "shared(l=0.2, rho=0.9)")
WORDS = st.text(min_size=1).filter(str.isprintable)
NUMBERS = st.integers(0, 2**31 - 1)


@given(st.builds(EpisodeKey, WORDS, NUMBERS, NUMBERS, NUMBERS, WORDS, WORDS))
def test_text_goes_round_trip(key):
    assert EpisodeKey.parse(key.text) == key
    assert 0 <= key.noise_seed < 2**63


def test_text_digest_and_seed_never_change():
    """They are on people's disks: journals, file names, results."""
    assert KEY.text == '["embedded",0,3,7,"runs/a b/π","shared(l=0.2, rho=0.9)"]'
    assert KEY.digest == "b25bb88f9d584ed7"
    assert KEY.noise_seed == 1602797090198533174


def test_another_process_derives_the_same():
    code = (
        f"from {EpisodeKey.__module__} import EpisodeKey as K; k = K.parse({KEY.text!r}); print(k.digest, k.noise_seed)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == [KEY.digest, str(KEY.noise_seed)]


def test_noise_depends_on_the_episode_and_not_on_who_is_compared():
    same = EpisodeKey("embedded", 0, 3, 7, "another", "median")
    others = [("libero_object", 0, 3, 7), ("embedded", 1, 3, 7), ("embedded", 0, 4, 7), ("embedded", 0, 3, 8)]
    assert same.noise_seed == KEY.noise_seed
    assert len({EpisodeKey(*o, "p", "d").noise_seed for o in others} | {KEY.noise_seed}) == 5


def test_a_plan_is_the_cross_product_without_repeats():
    plan = Plan.cross(scenes=["a", "b"], tasks=[0, 1, 1], indices=range(3), policies=["p"], decoders=["x", "y", "x"])
    assert len(plan) == 2 * 2 * 3 * 2 == len(set(plan))
    again = plan + Plan.cross(scenes=["b", "c"], tasks=[0], indices=[0], policies=["p"], decoders=["x"])
    assert len(again) == len(plan) + 1
    assert list(again)[: len(plan)] == list(plan)


def test_seeds_do_not_depend_on_the_plans_order():
    forward = Plan.cross(scenes=["a"], indices=range(5), policies=["p"])
    backward = Plan.cross(scenes=["a"], indices=reversed(range(5)), policies=["p"])
    assert {k: k.noise_seed for k in forward} == {k: k.noise_seed for k in backward}


@pytest.mark.parametrize(
    ("field", "value"),
    [("scene", ""), ("policy", "a\nb"), ("task", -1), ("index", 1.0), ("seed", True), ("seed", 2**31)],
)
def test_a_bad_field_is_named(field, value):
    good = {"scene": "a", "task": 0, "index": 0, "seed": 0, "policy": "p", "decoder": "d"}
    with pytest.raises(ValueError, match=f"{field} must be .*; got"):
        EpisodeKey(**{**good, field: value})


@pytest.mark.parametrize("text", ["{}", json.dumps(["a", 0, 0, 0, "p"])])
def test_a_text_that_is_no_key_is_refused(text):
    with pytest.raises(ValueError, match="key must be a JSON list of scene, task, index, seed, policy, decoder"):
        EpisodeKey.parse(text)


def test_an_empty_axis_is_refused():
    with pytest.raises(ValueError, match="seeds must name at least one"):
        Plan.cross(scenes=["a"], seeds=[], policies=["p"])


@pytest.mark.parametrize("text", ["0-999999999", "0-99999,100000", "3000000000", "0-" + "9" * 5000])
def test_more_numbers_than_anybody_means_are_refused_before_they_fill_the_memory(text):
    with pytest.raises(ValueError, match="--indices must name at most 100000 numbers, none above"):
        parse_numbers("--indices", text)


def test_a_plan_that_would_fill_the_memory_is_refused():
    many = range(100_000)
    with pytest.raises(ValueError, match="a plan must have at most 1000000 episodes; got 10000000000"):
        Plan.cross(scenes=["a"], indices=many, seeds=many, policies=["p"])


def test_numbers_read_ranges_and_lists():
    assert parse_numbers("seeds", "0-3") == (0, 1, 2, 3)
    assert parse_numbers("seeds", "7, 0,2-4,3") == (7, 0, 2, 3, 4)
    for wrong in ("", "a", "3-1", "-1", "1-", "1,,2"):
        with pytest.raises(ValueError, match="seeds must read like"):
            parse_numbers("seeds", wrong)
