"""Laws of held-out episodes are the policy's own answers, whatever the batches, and cost what they say."""

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.adapters.lerobot_folder import load_parts, read_config
from lerobot_policy_quantile.calibration.held_out import open_dataset, read_dataset, read_recordings
from lerobot_policy_quantile.calibration.policy_facts import read_policy
from lerobot_policy_quantile.calibration.predictions import FrameReading, Predictor, episode_laws
from lerobot_policy_quantile.policy.action_units import saved_units, units_of
from tests.support.datasets import CAMERA
from tests.support.policies import STATS


class Loaded:
    def __init__(self, folder, root, samples=(1, 3)):
        self.facts = read_policy("ours", folder)
        self.model, self.before, self.after, _ = load_parts(folder, read_config(folder, "cpu"))
        self.predictor = Predictor(self.model, self.before, self.facts, samples)
        self.units = units_of(self.after, 3)
        self.dataset = open_dataset(read_dataset(str(root)), [0, 2])
        self.recordings = read_recordings(self.dataset, [0, 2])

    def laws(self, **reading):
        how = FrameReading(**{"every": 5, "batch_size": 2, **reading})
        heard = []
        found = list(episode_laws(self.predictor, self.dataset, self.recordings, self.units, how, heard.append))
        assert sum(heard) == sum(len(laws[0].frames) for laws in found)
        return found


def test_quantiles_are_the_policys_own_and_actions_those_of_its_preprocessor(saved, toy_set):
    loaded = Loaded(saved["quantile"], toy_set)
    (first,), (second,) = loaded.laws()
    assert (first.episode, second.episode) == (0, 2)
    assert first.frames.tolist() == [0, 5, 10]
    assert first.quantiles.shape == (3, 4, 3, 21)
    assert first.valid.tolist() == [[True] * 4, [True] * 4, [True, True, False, False]]
    row = loaded.dataset[int(loaded.recordings[1].rows[5])]
    batch = {key: row[key][None] for key in (CAMERA, "observation.state", "action")} | {"task": [row["task"]]}
    ready = loaded.before(batch)
    loaded.model.reset(seeds=[0])
    law = loaded.model.predict_distribution(ready, lambda values: values)
    torch.testing.assert_close(torch.tensor(second.quantiles[1]), law.quantiles[0], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(second.actions[1, 0], ready["action"][0].numpy(), atol=1e-6)


@pytest.mark.parametrize("head", ["quantile", "flow"])
def test_batches_change_nothing(saved, toy_set, head):
    loaded = Loaded(saved[head], toy_set)
    for one, other in zip(loaded.laws(batch_size=1), loaded.laws(batch_size=5), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a.quantiles, b.quantiles, atol=1e-5)
            np.testing.assert_array_equal(a.actions, b.actions)


def test_flow_is_judged_by_samples_and_pays_for_them(saved, toy_set):
    loaded = Loaded(saved["flow"], toy_set, samples=(3, 1))
    assert [(s.samples, s.expert_passes) for s in loaded.predictor.sources] == [(1, 10), (3, 30)]
    before = loaded.model.backbone.expert_calls
    laws = loaded.laws(batch_size=100)
    assert loaded.model.backbone.expert_calls - before == 30  # one batch: the samples are drawn once for both laws
    one, three = laws[0]
    assert (one.quantiles == one.quantiles[..., :1]).all()
    np.testing.assert_allclose(one.crps, np.abs(one.quantiles[..., 0] - one.actions), atol=1e-6)
    assert (three.quantiles[..., -1] > three.quantiles[..., 0]).any()
    assert one.fair_crps is None
    assert (three.fair_crps <= three.crps + 1e-6).all()


@pytest.mark.parametrize("head", ["l1", "median"])
def test_points_are_quantiles_that_are_all_the_same(saved, toy_set, head):
    """Median-Only is a point, too: its gaps are never trained."""
    loaded = Loaded(saved[head], toy_set)
    assert [(s.kind, s.expert_passes) for s in loaded.predictor.sources] == [("point", 1)]
    (law,) = loaded.laws()[0]
    assert law.quantiles.shape == (3, 4, 3, 21)
    assert (law.quantiles == law.quantiles[..., :1]).all()


def test_units_are_those_of_the_saved_statistics(saved):
    units = saved_units(saved["quantile"], 3)
    low, high = (STATS["action"][name].numpy() for name in ("q01", "q99"))
    np.testing.assert_allclose(units.scale, (high - low) / 2, rtol=1e-6)
    np.testing.assert_allclose(units.normalised(np.stack([low, high])), [[-1] * 3, [1] * 3], atol=1e-6)
