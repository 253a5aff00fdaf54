"""The studies' sizes: states that are kept apart, and as many episodes as were promised."""

from pathlib import Path

import pytest
from rich.console import Console

from lerobot_policy_quantile.studies.demonstrated import size_of, training_steps
from lerobot_policy_quantile.studies.doubt.policies import PLAN, TRAININGS
from lerobot_policy_quantile.studies.doubt.settings import (
    ACTING_SUITE,
    FITTED_ON,
    FULL,
    SMALL,
    SUITES,
    TRAINED_ON,
    DoubtStudy,
)
from lerobot_policy_quantile.studies.plans.commands import Where


def study(size=FULL):
    return DoubtStudy(Path("out"), Path("pages"), 2, size, Console(quiet=True))


def test_trained_fitted_and_judged_states_are_apart():
    judged = {*FULL.judging, *FULL.acting}
    assert judged <= set(range(20))
    assert not set(TRAINED_ON) & set(FITTED_ON)
    assert {*TRAINED_ON, *FITTED_ON} <= set(range(20, 45))
    assert set(FULL.fitting) <= set(FITTED_ON)
    assert not {*SMALL.judging, *SMALL.acting, *SMALL.fitting} & set(range(20)), "a trial run touches no judged state"


def test_there_are_as_many_episodes_as_promised():
    assert len(study().plan(SUITES, FULL.judging)) >= 300
    assert len(study().plan((ACTING_SUITE,), FULL.acting)) == 200


@pytest.mark.parametrize("seed", range(3))
def test_three_seeds_of_the_quantile_head_and_one_flow_head_are_trained_alike(seed):
    where, size = Where(1000, "out", "data", lean=True), size_of(PLAN, 1500)
    steps = {step.name: step for step in training_steps(PLAN, TRAININGS, where, size)}
    assert list(steps) == ["quantile-0", "flow-0", "quantile-1", "quantile-2"]
    step = steps[f"quantile-{seed}"]
    assert step.folder == f"out/{PLAN.name}/train/quantile-{seed}"
    for word in (f"--seed={seed}", "--steps=1500", "--policy.backbone_weights=base_suites", "--dataset.root=data"):
        assert word in step.words
    assert not any(word.startswith("--policy.freeze_vlm") for word in step.words), "frozen is the default"
    assert "--policy.head=flow" in steps["flow-0"].words
