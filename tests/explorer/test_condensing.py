"""Quantiles in a page of one file: executed steps and ranks in full, later steps from eight bits; the file's size."""

import json

import numpy as np
import pytest

from lerobot_policy_quantile.explorer.condensing import STEPS_OF_RANGE, condensed
from lerobot_policy_quantile.explorer.episode_reading import EpisodeRecord
from lerobot_policy_quantile.explorer.page import single_page
from lerobot_policy_quantile.explorer.run_reading import read_run
from lerobot_policy_quantile.util.quantiles import interval_densities, levels_of
from scripts.explorer_speed import make_run
from tests.explorer.test_decoders_in_page import DECODERS, page
from tests.support.explored_run import CHUNK, DIM, EXECUTED, QUERIES, K, decoded, law_of, made_quantiles
from tests.support.rows import row

__all__ = ["page"]
SCALE = (0.125, 0.0625, 0.125, 0.0625, 0.03125, 0.125, 1.0)  # exact in float32
JUDGING = ("density(rho=0.9)", "tracking")
"""Decoders that look at all steps of a chunk, in the policy's units."""


def record_of(quantiles: np.ndarray, actions: np.ndarray) -> EpisodeRecord:
    steps = np.arange(0, len(actions), EXECUTED, dtype=np.int32)
    return EpisodeRecord(row("fake", 0, 0), actions=actions, query_steps=steps, quantiles=quantiles)


def test_densities_without_torch_are_the_maths_own():
    quantiles = made_quantiles(2)[0].astype(float)
    quantiles[0, 0, 3] = quantiles[0, 0, 4]
    own = law_of(quantiles).interval_densities().numpy()
    np.testing.assert_allclose(interval_densities(quantiles, levels_of(K)), own, rtol=1e-9)


def test_executed_steps_keep_their_bits_and_later_ones_eight():
    chunk = 50
    quantiles = made_quantiles(1, chunk=chunk)
    found = condensed(record_of(quantiles, np.zeros((QUERIES * EXECUTED, DIM), np.float32)), None)
    np.testing.assert_array_equal(found["executed"], quantiles[:, :EXECUTED].reshape(-1, DIM, K))
    low, high = np.moveaxis(found["later_range"], -1, 0)[:, :, None, :, None]
    later = found["later"].reshape(QUERIES, chunk - EXECUTED, DIM, K)
    off = np.abs(low + later / STEPS_OF_RANGE * (high - low) - quantiles[:, EXECUTED:]) / (high - low)
    assert off.max() < 0.51 / STEPS_OF_RANGE
    assert sum(array.nbytes for array in found.values()) < 0.36 * quantiles.nbytes


@pytest.mark.parametrize("steps", [QUERIES * CHUNK, 0])
def test_chunks_without_later_or_without_any_steps_are_condensed(steps):
    """All of every chunk executed; or a policy that was never asked."""
    queries = steps // CHUNK
    record = record_of(made_quantiles(0)[:queries], np.zeros((steps, DIM), np.float32))
    record.query_steps = np.arange(0, steps, CHUNK, dtype=np.int32)
    found = condensed(record, (0.5,) * DIM)
    assert found["later"].size == 0
    assert len(found["executed"]) == steps
    assert all(np.isfinite(array).all() for array in found.values())


@pytest.mark.browser
@pytest.mark.parametrize(("text", "scale"), [*((text, None) for text in DECODERS), *((t, SCALE) for t in JUDGING)])
def test_decoders_on_condensed_quantiles_are_pythons(page, text, scale):
    """Ranks of whole chunks and actions of executed steps to 1e-6, on quantiles that the page restored."""
    seed, units = 3, np.ones(DIM) if scale is None else np.asarray(scale)
    quantiles = made_quantiles(6)  # four wide dimensions
    executed = np.concatenate([chunk[:EXECUTED] for chunk, _ in decoded(quantiles, text, seed)]).astype(np.float32)
    commands, actions = (quantiles * units[:, None]).astype(np.float32), (executed * units).astype(np.float32)
    stored = {name: array.ravel().tolist() for name, array in condensed(record_of(commands, actions), scale).items()}
    timing = {"steps": len(actions), "querySteps": list(range(0, len(actions), EXECUTED))}
    law = {"levels": levels_of(K).tolist(), "shape": quantiles.shape, "grippers": [DIM - 1], "scale": scale}
    decoder = {"name": text.split("(")[0], "seed": seed, **DECODERS[text]}
    found = page.run(
        f"""Promise.all([import('/condensed.js'), import('/decoders.js')]).then(([condensed, decoders]) => {{
            const timing = {json.dumps(timing)}, law = {json.dumps(law)}, stored = {json.dumps(stored)};
            for (const name in stored) stored[name] = new Float32Array(stored[name]);
            Object.assign(law, condensed.restored(stored, timing, law.shape));
            const actions = new Float32Array({json.dumps(actions.ravel().tolist())});
            return decoders.decodeEpisode({{ ...timing, actions, law }}, {json.dumps(decoder)})
                .map(({{ actions, ranks }}) => [[...actions], [...ranks]]) }})"""
    )
    for (got, ranks), (own, own_ranks) in zip(found, decoded(quantiles, text, seed, executed), strict=True):
        np.testing.assert_allclose(ranks, own_ranks[0], atol=1e-6)
        got = np.reshape(got, (CHUNK, DIM))
        np.testing.assert_allclose(got[:EXECUTED], (own * units)[:EXECUTED], atol=1e-6)
        width = np.ptp(commands[:, EXECUTED:], axis=(1, 3)).max(axis=0)
        assert (np.abs(got - own * units)[EXECUTED:] <= width / STEPS_OF_RANGE + 1e-6).all()


@pytest.mark.parametrize(("chunk", "camera", "followed"), [(10, 96, 5), (50, 256, 10)])
def test_a_file_of_twenty_episodes_stays_under_thirty_megabytes(tmp_path, chunk, camera, followed):
    run = read_run(make_run(tmp_path / "run", 1, chunk=chunk, camera=camera, followed=followed))
    empty, one = (len(single_page(runs).encode()) for runs in ([], [run]))
    assert empty + 20 * (one - empty) < 30e6
