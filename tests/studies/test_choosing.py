"""Where `qhead choose-decoder` was used: the searched task, what confirms a choice, and the page."""

from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

from lerobot_policy_quantile.studies.choosing.run import (
    ChoicePlace,
    choice_figure,
    chosen_at,
    page,
    where_sampling_pays,
)
from lerobot_policy_quantile.studies.choosing.settings import FIRST_CONFIRMING_START, FULL, SMALL, ChoosingStudy
from lerobot_policy_quantile.studies.decoder_choice import DecoderChoice
from tests.support.fake_worlds import FakePolicy, FakeWorld

SOLVED = {
    ("libero_goal", 0, "median"): 5,
    ("libero_goal", 0, "shared"): 5,
    ("libero_goal", 1, "median"): 3,
    ("libero_goal", 1, "shared"): 6,
    ("libero_goal", 2, "median"): 8,
    ("libero_goal", 2, "shared"): 7,
}


class UnevenWorld(FakeWorld):
    """Succeeds as often as its decoder's rate says."""

    def __init__(self, rates):
        super().__init__()
        self.rates, self.decoder = rates, "median"

    def success(self):
        return np.random.default_rng([self.index, 1]).uniform() < self.rates[self.decoder] and self.count >= 5


class Telling(FakePolicy):
    def begin(self, seed, world, decoder):
        world.decoder = decoder
        return super().begin(seed, world, decoder)


@dataclass(frozen=True)
class UnevenFactory:
    median: float
    shared: float

    def world(self, scene):
        return UnevenWorld({"median": self.median, "shared": self.shared})

    def policy(self, policy):
        return Telling(needs_images=False)


def study(tmp_path):
    return ChoosingStudy(tmp_path, tmp_path / "page.md", 1, SMALL, Console(quiet=True))


def test_the_task_is_the_one_where_the_sampler_solves_most_more():
    assert where_sampling_pays(SOLVED) == ("libero_goal", 1)


@pytest.mark.parametrize("size", [FULL, SMALL])
def test_no_state_is_used_for_two_things(size):
    parts = [set(size.searched), set(size.chosen_on), set(size.confirmed_on)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert size.starts < FIRST_CONFIRMING_START
    assert max(set.union(*parts)) < 45


def place_of(tmp_path, factory, *confirming):
    choice = DecoderChoice("p", ("shared", "median"), "fake", (0,), tuple(range(20)), (0,), budget=20)
    return ChoicePlace("A scene", choice, factory, confirming, tmp_path / "place")


def test_a_choice_is_confirmed_against_the_median_on_other_episodes(tmp_path):
    others = ((index, 0) for index in range(30, 40))
    chosen = chosen_at(place_of(tmp_path, UnevenFactory(0.2, 0.9), *others), study(tmp_path))
    assert (chosen.record["best"], chosen.rival) == ("shared", "median")
    assert chosen.confirmed.pairs == 10
    assert chosen.confirmed.only_a > 3
    assert chosen.confirmed.only_b == 0
    text = page(study(tmp_path), SOLVED, [chosen], figure := choice_figure([chosen]))
    assert "## A scene" in text
    assert "(page.svg)" in text
    best = chosen.record["decoders"][0]
    (panel,) = figure.panels
    assert panel.alt.startswith(f"shared: {100 * best['successes'] / best['episodes']:.1f} % of {best['episodes']}")
    assert "On other episodes: `shared` is better on" in text
    rows = [line for line in text.splitlines() if line.startswith("| libero_goal")]
    assert rows == ["| libero_goal | 1 | 3 | 6 |", "| libero_goal | 2 | 8 | 7 |"]
    assert "`shared` solves more in 1 of them; in the one that was taken the difference is 3." in text


def test_a_chosen_median_is_held_against_the_last_rival(tmp_path):
    chosen = chosen_at(place_of(tmp_path, UnevenFactory(0.9, 0.2), (30, 0)), study(tmp_path))
    assert (chosen.record["best"], chosen.rival) == ("median", "shared")
    assert chosen.confirmed.pairs == 1
