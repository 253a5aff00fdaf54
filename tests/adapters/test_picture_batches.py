"""Pictures of several sizes in one batch give what each gives alone."""

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.adapters import picture_batches
from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy
from lerobot_policy_quantile.adapters.picture_batches import in_pieces, pieces
from lerobot_policy_quantile.contract import CAMERA_KEYS, Observation
from scripts.serving_process import save_policy


def seen(row, *sizes):
    draw = np.random.default_rng(row)
    sides = dict(zip(CAMERA_KEYS, sizes * 2, strict=False))
    images = {name: draw.integers(0, 256, (*side, 3), dtype=np.uint8) for name, side in sides.items()}
    return Observation(images, draw.uniform(-1, 1, 8), f"put the can number {row} into the basket")


SIZES = [(32, 32), (48, 64), (32, 32), (224, 224), (48, 64), (20, 40)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return load_lerobot_policy(save_policy(tmp_path_factory.mktemp("policy")))


def test_rows_of_several_sizes_are_one_batch_and_equal_rows_alone(policy, monkeypatch):
    rows = [seen(row, size) for row, size in enumerate(SIZES)]
    passes = []
    model = policy._policy
    real = model.predict_decoded
    monkeypatch.setattr(
        model, "predict_decoded", lambda batch, *a, **k: passes.append(len(batch["task"])) or real(batch, *a, **k)
    )
    together = policy.predict(rows, [policy.begin(row, None, "shared") for row in range(len(rows))])
    assert passes == [len(rows)], "one forward pass"
    for row, prediction in enumerate(together):
        (alone,) = policy.predict([rows[row]], [policy.begin(row, None, "shared")])
        np.testing.assert_allclose(prediction.actions, alone.actions, atol=1e-5)
        np.testing.assert_array_equal(prediction.ranks, alone.ranks)


def test_what_the_policy_reads_is_the_same_in_pieces_and_at_once(policy, monkeypatch):
    rows = [seen(row, (48, 64)) for row in range(5)]
    whole = policy._batch(rows)
    monkeypatch.setattr(picture_batches, "PIXELS", 2 * 2 * 48 * 64)
    assert pieces(rows) == [[0, 1], [2, 3], [4]]
    cut = policy._batch(rows)
    assert whole.keys() == cut.keys()
    for key, value in whole.items():
        assert torch.equal(value, cut[key]) if isinstance(value, torch.Tensor) else value == cut[key], key


def test_large_pictures_are_pieces_of_their_own():
    assert pieces([seen(0, (2048, 2048)), seen(1, (2048, 2048)), seen(2, (32, 32))]) == [[0], [1], [2]]
    assert pieces([seen(row, size) for row, size in enumerate(SIZES)]) == [[0, 2], [1, 4], [3], [5]]


def test_a_policy_that_resizes_nothing_says_so():
    def process(observations):
        return {"images": torch.stack([torch.from_numpy(o.images["external"]) for o in observations])}

    with pytest.raises(ValueError, match="images must have one size in a batch"):
        in_pieces([seen(0, (8, 8)), seen(1, (8, 9))], process)
