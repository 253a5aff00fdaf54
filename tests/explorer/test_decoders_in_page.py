"""The page's decoders give the numbers of Python's, on the same quantiles and the same seeds, to 1e-6."""

import json

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.evaluation.tables.intervals import wilson
from tests.explorer.conftest import open_page
from tests.support.explored_run import DIM, EXECUTED, decoded, law_of, made_quantiles

pytestmark = pytest.mark.browser

DECODERS = {
    "median": {},
    "shared(l=0.1, rho=0.9)": {"l": 0.1, "rho": 0.9},
    "shared(l=0, rho=0)": {"l": 0, "rho": 0},
    "independent(l=0.05, rho=0.5)": {"l": 0.05, "rho": 0.5},
    "window(l=0.3, rho=0.7)": {"l": 0.3, "rho": 0.7},
    "density(rho=0.9)": {"rho": 0.9},
    "tracking": {},
}


@pytest.fixture(scope="module")
def page(browser, server):
    open_page(browser, server.address)
    return browser


def in_page(page, quantiles: np.ndarray, decoder: dict, executed: np.ndarray, scale: list[float] | None = None):
    """What the page's decoder answers to every query: [(actions, ranks)]."""
    queries, _, dim, k = quantiles.shape
    levels = np.linspace(0.025, 0.975, k).tolist()
    episode = {"steps": queries * EXECUTED, "querySteps": list(range(0, queries * EXECUTED, EXECUTED))}
    law = {"levels": levels, "shape": quantiles.shape, "grippers": [dim - 1], "scale": scale}
    found = page.run(
        f"""import('/decoders.js').then(({{ decodeEpisode }}) => decodeEpisode(
            {{...{json.dumps(episode)}, actions: new Float32Array({json.dumps(executed.ravel().tolist())}),
              law: {{...{json.dumps(law)}, quantiles: new Float32Array({json.dumps(quantiles.ravel().tolist())})}}}},
            {json.dumps(decoder)}).map(({{ actions, ranks }}) => [[...actions], [...ranks]]))"""
    )
    return [(np.reshape(actions, quantiles.shape[1:3]), np.asarray(ranks)) for actions, ranks in found]


@pytest.mark.parametrize("seed", [0, 3, 2**31 + 5])
@pytest.mark.parametrize("text", DECODERS)
def test_a_decoder_of_the_page_is_the_python_one(page, text, seed):
    quantiles = made_quantiles(seed % 7)
    executed = np.concatenate([chunk[:EXECUTED] for chunk, _ in decoded(quantiles, text, seed)]).astype(np.float32)
    python = decoded(quantiles, text, seed, executed)
    found = in_page(page, quantiles, {"name": text.split("(")[0], "seed": seed, **DECODERS[text]}, executed)
    for (actions, ranks), (own_actions, own_ranks) in zip(found, python, strict=True):
        np.testing.assert_allclose(actions, own_actions, atol=1e-6)
        np.testing.assert_allclose(ranks, own_ranks[0], atol=1e-6)


@pytest.mark.parametrize("text", ["shared(l=0.1, rho=0.9)", "density(rho=0.9)"])
def test_many_dimensions_draw_as_torch_draws_them(page, text):
    """From sixteen numbers on torch draws in blocks, with other arithmetic."""
    quantiles = made_quantiles(1, dim=21)
    executed = np.zeros((len(quantiles) * EXECUTED, 21), np.float32)
    found = in_page(page, quantiles, {"name": text.split("(")[0], "seed": 11, **DECODERS[text]}, executed)
    for (actions, _), (own, _) in zip(found, decoded(quantiles, text, 11), strict=True):
        np.testing.assert_allclose(actions, own, atol=1e-6)


@pytest.mark.parametrize("text", ["density(rho=0.9)", "tracking"])
def test_units_of_the_policy_decide_where_they_are_known(page, text):
    """Commands that are scaled are judged as the policy judges them."""
    scale = np.array([0.125, 0.0625, 0.125, 0.0625, 0.03125, 0.125, 1])  # exact in float32
    quantiles = made_quantiles(6)  # four wide dimensions
    commands = (quantiles * scale[:, None]).astype(np.float32)
    executed = np.concatenate([chunk[:EXECUTED] for chunk, _ in decoded(quantiles, text, 4)]).astype(np.float32)
    decoder = {"name": text.split("(")[0], "seed": 4, **DECODERS[text]}
    found = in_page(page, commands, decoder, (executed * scale).astype(np.float32), scale.tolist())
    without = in_page(page, commands, decoder, (executed * scale).astype(np.float32))
    python = decoded(quantiles, text, 4, executed)
    for (actions, _), (own, _) in zip(found, python, strict=True):
        np.testing.assert_allclose(actions, own * scale, atol=2e-6)
    assert not all(np.allclose(a, b) for (a, _), (b, _) in zip(found, without, strict=True))


def test_one_rank_reads_the_quantile_function_there(page):
    quantiles = made_quantiles(5)
    found = in_page(page, quantiles, {"name": "rank", "rank": 0.83}, np.zeros((30, DIM), np.float32))
    levels = np.linspace(0.025, 0.975, 21)
    expected = [[np.interp(0.83, levels, knots) for knots in step] for step in quantiles[2].astype(float)]
    np.testing.assert_allclose(found[2][0][:, :-1], np.asarray(expected)[:, :-1], atol=1e-6)


@pytest.mark.parametrize("count", [7, 16, 21, 40])
def test_draws_are_torchs(page, count):
    episode = Episode(123456789)
    python = torch.cat([episode.normal(count), episode.normal(count)]).numpy()
    found = page.run(
        f"""import('/numbers.js').then(({{ TorchGenerator }}) => {{
            const g = new TorchGenerator(123456789); return [...g.normal({count}), ...g.normal({count})] }})"""
    )
    np.testing.assert_allclose(found, python, atol=2e-6)


def test_phi_and_wilson_are_pythons(page):
    places = np.linspace(-9, 9, 181)
    found = page.run(f"import('/numbers.js').then(({{ phi }}) => {json.dumps(places.tolist())}.map(phi))")
    np.testing.assert_allclose(found, torch.special.ndtr(torch.tensor(places)).numpy(), atol=1e-14)
    counts = [(0, 5), (5, 5), (3, 7), (61, 200)]
    found = page.run(f"import('/numbers.js').then(({{ wilson }}) => {json.dumps(counts)}.map(c => wilson(...c)))")
    own = [wilson(won / trials, trials) for won, trials in counts]
    np.testing.assert_allclose(found, [(each.low, each.high) for each in own], atol=1e-12)


def test_ranks_of_executed_actions_are_the_inverse(page):
    quantiles = made_quantiles(6)[0, 0, 0].astype(float)
    values = np.linspace(quantiles[0] - 0.1, quantiles[-1] + 0.1, 50).tolist()
    found = page.run(
        f"""import('/numbers.js').then(({{ rankOf }}) => {json.dumps(values)}.map(
            v => rankOf({np.linspace(0.025, 0.975, 21).tolist()}, {quantiles.tolist()}, 0, v)))"""
    )
    np.testing.assert_allclose(found, law_of(quantiles).cdf(torch.tensor(values)).numpy(), atol=1e-9)
