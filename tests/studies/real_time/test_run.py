"""Which cells are run, and which are kept; the episodes themselves are made by hand."""

from itertools import groupby

import pytest
from rich.console import Console

from lerobot_policy_quantile.evaluation.tables.motion import EpisodeMotion
from lerobot_policy_quantile.evaluation.whole_run import UnfinishedError
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.studies.real_time.cells import Cell, CellFile, CellName
from lerobot_policy_quantile.studies.real_time.run import JoiningStudy, _weights_and_fade

SCENE, POLICIES = "embedded", {"ours": str(base_checkpoint())}


class Machine:
    """Stands for the closed loop: notes what it is asked for and stops after so many episodes."""

    def __init__(self, monkeypatch):
        self.asked, self.most, self.policies = [], 10_000, {}
        monkeypatch.setattr(JoiningStudy, "_run", lambda study, part, keys, factory: self.run(keys, factory))
        monkeypatch.setattr(JoiningStudy, "_finished", lambda study, part: self.finished())

    def run(self, keys, factory):
        self.policies |= {key.policy: _weights_and_fade(factory, key.policy) for key in keys}
        self.asked += keys[: self.most]
        if len(keys) > self.most:
            raise UnfinishedError("stopped")

    def finished(self):
        def name(key):
            handover, delay = key.policy.rpartition("/")[2].split("-")
            return CellName("ours", key.decoder, handover, int(delay))

        motion = EpisodeMotion(0.1, 0.1, 0.1, 0.0, 5.0, 0.0)
        for cell, keys in groupby(sorted(self.asked, key=name), name):
            starts = tuple(sorted((key.task, key.index, key.seed) for key in keys))
            weights, fade = self.policies[cell.arm]
            yield Cell(cell, weights, starts, (True,) * len(starts), (motion,) * len(starts), fade)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def study(tmp_path, episodes=8, delays=(0, 4)):
    return JoiningStudy(tmp_path, episodes, delays, 1, Console(quiet=True))


def test_every_handover_at_every_delay_on_the_same_starts_and_nothing_twice(machine, tmp_path):
    kept = CellFile(tmp_path / "cells.json")
    study(tmp_path).delays_in(SCENE, POLICIES, kept)
    names = [(cell.name.decoder.partition("(")[0], cell.name.handover, cell.name.delay) for cell in kept.read()]
    assert names == [
        ("median", "ensemble", 0),
        ("median", "ensemble", 4),
        ("median", "pause", 4),  # without a delay pausing is swapping
        ("median", "rank", 0),
        ("median", "rank", 4),
        ("median", "swap", 0),
        ("median", "swap", 4),
        ("shared", "rank", 0),
        ("shared", "rank", 4),
        ("shared", "swap", 0),
        ("shared", "swap", 4),
    ]
    assert len(machine.asked) == 11 * 8
    assert len({cell.starts for cell in kept.read()}) == 1
    study(tmp_path).delays_in(SCENE, POLICIES, kept)
    assert len(machine.asked) == 11 * 8, "all of it is kept"
    study(tmp_path, delays=(0, 2, 4)).delays_in(SCENE, POLICIES, kept)
    later = {(key.decoder.partition("(")[0], key.policy.rpartition("/")[2]) for key in machine.asked[11 * 8 :]}
    assert later == {*(("median", f"{how}-2") for how in ("swap", "rank", "pause", "ensemble")), ("shared", "rank-2")}


def test_of_a_stopped_run_the_whole_cells_are_kept(machine, tmp_path):
    kept, machine.most = CellFile(tmp_path / "cells.json"), 7 * 7 + 3
    with pytest.raises(UnfinishedError):
        study(tmp_path).delays_in(SCENE, POLICIES, kept)
    assert len(kept.read()) == 3, "of seven cells back to back, eight starts each"
