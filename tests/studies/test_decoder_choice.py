"""Successive rejects: how episodes are spent, who is dropped, and what is said about it."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

from lerobot_policy_quantile.evaluation.tables.successive_rejects import phase_lengths, probability_best, worst
from lerobot_policy_quantile.studies.decoder_choice import DecoderChoice, choice_table, choose_decoder
from tests.support.fake_worlds import FakePolicy, FakeWorld

RATES = {"median": 0.9, "shared": 0.5, "independent": 0.1}


class LuckyWorld(FakeWorld):
    """Succeeds as often as the decoder's rate says; told by its key, so that a second run goes the same way."""

    decoder = "median"

    def success(self):
        luck = np.random.default_rng([self.index, len(self.decoder)]).uniform()
        return luck < RATES[self.decoder] and self.count >= 5


class Telling(FakePolicy):
    def begin(self, seed, world, decoder):
        world.decoder = decoder
        return super().begin(seed, world, decoder)


@dataclass(frozen=True)
class LuckyFactory:
    def world(self, scene):
        return LuckyWorld()

    def policy(self, policy):
        return Telling(needs_images=False)


@pytest.mark.parametrize(("arms", "budget"), [(2, 10), (3, 60), (6, 100), (13, 500)])
def test_phases_grow_and_stay_within_the_budget(arms, budget):
    phases = phase_lengths(arms, budget)
    assert phases == sorted(phases)
    spent = sum(phases) + phases[-1]  # one arm leaves after each phase, the last two stay to the end
    assert 0.7 * budget <= spent <= budget + arms


def test_the_worst_of_equal_arms_is_the_one_named_last():
    assert worst({"a": 3, "b": 2, "c": 2}) == "c"


def test_the_probability_to_be_best_is_shared_by_equal_arms_and_near_one_for_a_clear_winner():
    assert probability_best([5, 5], [10, 10]) == pytest.approx([0.5, 0.5], abs=0.02)
    assert probability_best([48, 10], [50, 50])[0] > 0.999


def choice(**changes):
    settings = {"policy": "p", "decoders": tuple(RATES), "scene": "fake", "tasks": (0,), "indices": tuple(range(40))}
    return DecoderChoice(**{**settings, "seeds": (0,), "budget": 60, **changes})


def test_more_episodes_than_there_are_keys_are_refused_with_their_number():
    with pytest.raises(ValueError, match=r"--budget 600 runs the last two decoders on \d+ episodes; .* give 40"):
        choice(budget=600)


def test_decoders_share_their_episodes():
    a, b = (choice().keys(decoder, 7) for decoder in ("median", "shared"))
    assert [(k.task, k.index, k.seed) for k in a] == [(k.task, k.index, k.seed) for k in b]
    many = choice(tasks=(0, 1), indices=(5, 6), budget=8).keys
    assert [(k.task, k.index) for k in many("median", 3)] == [(0, 5), (1, 5), (0, 6)]


def test_the_better_decoder_is_found_and_a_second_run_adds_nothing(tmp_path):
    quiet = Console(quiet=True)
    record = choose_decoder(choice(), LuckyFactory(), tmp_path, workers=1, console=quiet)
    assert record["best"] == "median"
    assert [arm["decoder"] for arm in record["decoders"]] == list(RATES)
    assert [arm["dropped_in_phase"] for arm in record["decoders"]] == [None, 2, 1]
    assert record["decoders"][2]["episodes"] == record["phases"][0] < record["decoders"][0]["episodes"]
    assert "cannot be told apart" in record["statement"]
    assert record["statement"] in choice_table(record)
    assert json.loads((tmp_path / "choice.json").read_text()) == record
    size = (tmp_path / "journal.sqlite").stat().st_size
    assert choose_decoder(choice(), LuckyFactory(), tmp_path, workers=1, console=quiet) == record
    assert (tmp_path / "journal.sqlite").stat().st_size == size
