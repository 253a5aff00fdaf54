import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core._normal import phi, phi_inverse
from lerobot_policy_quantile.core.decoders import PRESETS, Decoder, Fixed, PerChunk, PerStep, Window, parse_decoder
from lerobot_policy_quantile.core.decoders.composition import gaussian_surrogate
from lerobot_policy_quantile.core.episode import Episode, episodes_from_seeds
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from tests.core.test_quantile_function import random_function


def preset(name: str, chunk_size: int = 10) -> Decoder:
    """A preset that can be used: the copula with independent ranks."""
    return parse_decoder(name).with_copula(torch.eye(7 * chunk_size))


STOCHASTIC = [name for name in PRESETS if name not in ("median", "densest")]


def test_median_is_the_median_bit_for_bit():
    q = random_function(3, 10, 7)
    decoded = parse_decoder("median").decode(q, episodes_from_seeds([1, 2, 3]))
    assert torch.equal(decoded.actions, q.quantiles[..., 10])
    assert (decoded.ranks == 0.5).all()


@pytest.mark.parametrize("name", PRESETS)
def test_actions_are_the_quantile_function_at_the_reported_ranks(name):
    q = random_function(3, 10, 7)
    decoded = preset(name).decode(q, episodes_from_seeds([1, 2, 3]))
    assert decoded.actions.shape == decoded.ranks.shape == (3, 10, 7)
    expected = gaussian_surrogate(q, decoded.ranks) if name == "gaussian" else q(decoded.ranks)
    torch.testing.assert_close(decoded.actions, expected)


@pytest.mark.parametrize("name", PRESETS)
def test_the_gripper_stays_at_its_median_unless_the_preset_says_otherwise(name):
    q = random_function(4, 10, 7)
    decoded = preset(name).decode(q, episodes_from_seeds(range(4)))
    at_median = torch.equal(decoded.actions[..., -1], q.quantiles[..., -1, 10])
    assert at_median == (name not in ("density_all", "densest"))


@pytest.mark.parametrize("name", ["shared", "density", "density_all"])
def test_shared_ranks_are_comonotone(name):
    """One rank drives all motion coordinates: whenever one coordinate rises, none falls."""
    one = random_function(1, 10, 7)
    q = QuantileFunction(one.levels, one.quantiles.expand(50, -1, -1, -1))
    decoded = parse_decoder(name).decode(q, episodes_from_seeds(range(50)))
    assert (decoded.ranks[..., :6] == decoded.ranks[:, :1, :1]).all()
    motion = decoded.actions[..., :6].flatten(1)
    order = motion[:, 0].argsort()
    assert (motion[order].diff(dim=0) >= 0).all()


def test_independent_ranks_differ_between_coordinates():
    decoded = parse_decoder("independent").decode(random_function(1, 10, 7), [Episode(0)])
    assert len(decoded.ranks[0, 0, :6].unique()) == 6


@pytest.mark.parametrize("name", STOCHASTIC)
def test_ranks_are_held_over_a_chunk_or_drawn_per_step(name):
    decoded = preset(name).decode(random_function(2, 10, 7), episodes_from_seeds([0, 1]))
    held = bool((decoded.ranks == decoded.ranks[:, :1]).all())
    assert held == (name not in ("per_step", "copula"))


@given(seed=st.integers(0, 2**63 - 1), noise=st.integers(0, 5), name=st.sampled_from(list(PRESETS)))
def test_an_episodes_actions_depend_on_its_seed_alone(seed, noise, name):
    """Not on batch mates, on other decodes in between, or on the global random state."""
    decoder = preset(name, chunk_size=4)
    chunks = [random_function(3, 4, 7, seed=i) for i in range(3)]
    batch = [Episode(seed), Episode(11), Episode(12)]
    together = [decoder.decode(q, batch).actions[0] for q in chunks]
    alone, stranger = Episode(seed), Episode(99)
    for q, expected in zip(chunks, together, strict=True):
        for _ in range(noise):
            decoder.decode(QuantileFunction(q.levels, q.quantiles[1:2]), [stranger])
            torch.randn(7)
        actions = decoder.decode(QuantileFunction(q.levels, q.quantiles[:1]), [alone]).actions[0]
        assert torch.equal(actions, expected)


def test_decoders_given_one_seed_see_the_same_noise():
    """shared is independent with the first coordinate's latent for all; native squeezes the same z."""
    q = random_function(1, 10, 7)
    for _ in range(3):
        a, b, c = (parse_decoder(n).decode(q, [Episode(5)]).ranks[0, 0] for n in ("independent", "shared", "native"))
        assert torch.equal(a[0].expand(6), b[:6])
        torch.testing.assert_close(c[:6], 0.1 + 0.8 * phi(0.35 * phi_inverse(a[:6])))


def test_latents_follow_the_ar_process():
    """Stationary N(0, 1), correlation rho at lag one, rho^2 at lag two (standard error 0.01)."""
    episode, process = Episode(0), PerChunk(0.9)
    z = torch.cat([process.latents(episode, 10, 8) for _ in range(30_000)])
    assert abs(float(z.mean())) < 0.05
    assert abs(float(z.var()) - 1) < 0.05
    assert abs(float((z[1:] * z[:-1]).mean()) - 0.9) < 0.05
    assert abs(float((z[2:] * z[:-2]).mean()) - 0.81) < 0.05


def test_rho_zero_and_rho_one_are_fresh_and_frozen():
    for rho, frozen in ((0.0, False), (1.0, True)):
        episode = Episode(3)
        first, second = (PerChunk(rho).latents(episode, 10, 7) for _ in range(2))
        assert torch.equal(first, second) == frozen


def test_per_step_remembers_nothing():
    episode = Episode(1)
    assert PerStep().latents(episode, 10, 7).shape == (10, 7)
    assert episode.latent is None


def test_gaussian_surrogate_keeps_median_and_10_90_width():
    q = random_function(2, 3, 4)
    for rank, expected in ((0.5, q(0.5)), (0.9, q(0.5) + q.width(0.8) / 2), (0.1, q(0.5) - q.width(0.8) / 2)):
        ranks = torch.full((2, 3, 4), rank, dtype=torch.float64)
        torch.testing.assert_close(gaussian_surrogate(q, ranks), expected)
    assert torch.isfinite(gaussian_surrogate(q, torch.tensor([0.0, 1.0, 0.5, 0.5]).double().expand(2, 3, 4))).all()


def test_grippers_can_be_elsewhere_or_absent():
    q = random_function(1, 4, 6)
    bimanual = Decoder(Window(0.0), coupling="shared", grippers=(2, -1)).decode(q, [Episode(0)]).ranks[0, 0]
    assert bimanual[2] == bimanual[5] == 0.5
    assert (bimanual[[0, 1, 3, 4]] == bimanual[0]).all()
    none = Decoder(Window(0.0), coupling="shared", grippers=()).decode(q, [Episode(0)]).ranks[0, 0]
    assert (none == none[0]).all()


def test_a_decoder_is_a_value():
    assert parse_decoder("shared(l=0.2)") == Decoder(Window(0.2), PerChunk(0.9), coupling="shared")
    assert hash(parse_decoder("median")) == hash(Decoder(Fixed(0.5)))
    assert str(parse_decoder("per_step")) == (
        "Window(l=0.2, temperature=0.35) | independent | PerStep() | quantile | gripper at median"
    )


@pytest.mark.bad_input
def test_bad_input_is_refused():
    q = random_function(2, 3, 4)
    with pytest.raises(ValueError, match="episodes must match the batch, 2 rows; got 1"):
        parse_decoder("median").decode(q, [Episode(0)])
    with pytest.raises(ValueError, match=r"quantiles must have axes \(b, h, d, k\); got \(3, 4, 21\)"):
        parse_decoder("median").decode(QuantileFunction(q.levels, q.quantiles[0]), [Episode(0)])
    with pytest.raises(ValueError, match="grippers must index the 4 action dimensions; got 4"):
        Decoder(Fixed(), grippers=(4,)).decode(q, episodes_from_seeds([0, 1]))
    with pytest.raises(ValueError, match="coupling must be one of independent, shared; got 'share'; did you mean"):
        Decoder(Fixed(), coupling="share")
    with pytest.raises(ValueError, match=r"rho must lie in \[0.0, 1.0\]; got 1.5"):
        PerChunk(1.5)
    with pytest.raises(ValueError, match="seed must be an integer in"):
        Episode(-1)
