"""How many models are in memory: one per worker, one per replica, two while a replica's simulators change over."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from lerobot_policy_quantile.contract import Observation
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.ray_engine import Replica
from lerobot_policy_quantile.evaluation.shelf import MOST, Shelf
from lerobot_policy_quantile.evaluation.worker import EpisodeRunner, WorkerJob
from lerobot_policy_quantile.studies.plans import load_study
from tests.support.fake_worlds import FakePolicy, FakeWorld

SEEN = Observation({"external": np.zeros((4, 4, 3), np.uint8)}, np.zeros(8), "move the point")


@dataclass
class Census:
    """A factory that counts the models it has made and how many of them were in memory at once."""

    alive: int = 0
    most: int = 0
    made: list[str] = field(default_factory=list)

    def world(self, scene):
        return FakeWorld(scene)

    def policy(self, policy):
        self.made.append(policy)
        self.alive += 1
        self.most = max(self.most, self.alive)
        return Counted(self)


class Counted(FakePolicy):
    """One of them."""

    def __init__(self, census):
        super().__init__()
        self._census, self._open = census, True

    def act(self, observations, memories):
        assert self._open, "a released model was asked"
        return super().act(observations, memories)

    def close(self):
        assert self._open, "released twice"
        self._open = False
        self._census.alive -= 1


def run_all(plan, models=1):
    census = Census()
    runner = EpisodeRunner(WorkerJob(census, models=models))
    assert all(runner.run(key).status == "success" for key in plan)
    return census


def test_the_sampling_plan_needs_one_model_and_loads_it_once():
    decoders = load_study("sampling").evaluations[0].decoders
    plan = Plan.cross(scenes=["fake"], indices=[0, 2], policies=["quantile#0"], decoders=decoders)
    census = run_all(plan)
    assert len(decoders) > 16
    assert (census.most, len(census.made)) == (1, 1)


def test_the_r_sweep_never_holds_two_of_its_33_models():
    names = [f"{variant.name}#{seed}" for variant in load_study("r_sweep").variants for seed in range(3)]
    census = run_all(Plan.cross(scenes=["fake"], indices=[0, 2], policies=names))
    assert census.made == names
    assert len(names) == 33
    assert census.most == 1


def test_a_worker_keeps_as_many_models_as_it_is_told_and_drops_the_one_used_longest_ago():
    turns = [EpisodeKey("fake", 0, index, 0, name, "median") for index in (0, 2, 4) for name in "abc"]
    assert run_all(turns, models=3).made == ["a", "b", "c"]
    order = [EpisodeKey("fake", 0, 0, seed, name, "median") for seed, name in enumerate("abacab")]
    census = run_all(order, models=2)
    assert census.made == ["a", "b", "c", "b"], "a was used again before c came"
    assert census.most == 2


def test_a_replica_holds_two_models_only_while_its_simulators_change_over():
    census = Census()

    async def episode(replica, visitor, name, decoder):
        await replica.about(visitor, name)
        await replica.begin(visitor, name, visitor, decoder)
        for _ in range(3):
            await replica.act(visitor, SEEN)
            await asyncio.sleep(0.001 * visitor)
        await replica.end(visitor)

    async def simulator(replica, visitor, work):
        while work:
            await episode(replica, visitor, *work.pop(0))

    async def run():
        replica = Replica(census)
        work = [(f"r{n}", decoder) for n in range(6) for decoder in ("median", "window(l=0.2)") for _ in range(2)]
        await asyncio.gather(*(simulator(replica, visitor, work) for visitor in range(4)))

    asyncio.run(asyncio.wait_for(run(), 60))
    assert sorted(set(census.made)) == [f"r{n}" for n in range(6)]
    assert census.most == MOST
    assert census.alive == 1


def test_a_third_policy_waits_until_one_of_two_is_free_and_a_lost_simulator_frees_its_own():
    census = Census()

    async def run():
        shelf = Shelf(census.policy)
        await shelf.take(0, "a")
        await shelf.take(1, "b")
        waiting = [asyncio.create_task(shelf.take(visitor, "c")) for visitor in (2, 3)]
        await asyncio.sleep(0)
        assert census.made == ["a", "b"]
        shelf.leave(3)
        shelf.leave(0)
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[1], RuntimeError)
        assert census.made == ["a", "b", "c"]
        shelf.give_back(1)
        assert census.alive == 1

    asyncio.run(asyncio.wait_for(run(), 60))
    assert census.most == MOST


@pytest.mark.bad_input
def test_a_policy_that_cannot_be_loaded_leaves_the_shelf_as_it_was():
    def load(name):
        raise ValueError(name)

    async def run():
        shelf = Shelf(load)
        for _ in range(MOST + 1):
            with pytest.raises(ValueError, match="a"):
                await shelf.take(0, "a")

    asyncio.run(asyncio.wait_for(run(), 60))
