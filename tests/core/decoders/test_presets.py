import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core.decoders import (
    PRESETS,
    CopulaLatents,
    Decoder,
    DensestInterval,
    DensityWeighted,
    Fixed,
    PerChunk,
    PerStep,
    Tracked,
    WhereChoice,
    Window,
    canonical_text,
    parse_decoder,
)

PAPER = {
    # Sec. 4.4: windowed ranks, T = 0.35, held over a chunk or per step, AR between chunks
    "window(l=0.1, rho=0.7)": Decoder(Window(0.1, 0.35), PerChunk(0.7)),
    "window(l=0.4)": Decoder(Window(0.4, 0.35), PerChunk(0.0)),
    "per_step(l=0.3)": Decoder(Window(0.3, 0.35), PerStep()),
    # Sec. 4.4: Gaussian surrogate
    "gaussian(l=0.2)": Decoder(Window(0.2, 0.35), PerChunk(0.0), marginal="gaussian"),
    # App. B.3: the two-demonstration study
    "native": Decoder(Window(0.1, 0.35), PerChunk(0.9)),
    "independent": Decoder(Window(0.0, 1.0), PerChunk(0.9)),
    "shared": Decoder(Window(0.0, 1.0), PerChunk(0.9), coupling="shared"),
    "shared(l=0.2,rho=0.9)": Decoder(Window(0.2, 1.0), PerChunk(0.9), coupling="shared"),
    "median": Decoder(Fixed(0.5)),
    # App. B.3, App. B.4: density weighting and its variants
    "density": Decoder(DensityWeighted(2.0, "motion"), PerChunk(0.9), coupling="shared"),
    "density_all": Decoder(DensityWeighted(1.0, "all"), PerChunk(0.9), coupling="shared", gripper="rank"),
    "densest": Decoder(DensestInterval("all"), coupling="shared", gripper="rank"),
}


OURS = {
    "choice": Decoder(WhereChoice(0.2, 2.0), PerChunk(1.0), coupling="shared"),
    "tracking(w=0.3)": Decoder(Tracked(0.3, 2.0), PerChunk(1.0), coupling="shared"),
    "copula(rho=0.5)": Decoder(Window(0.0), CopulaLatents(0.5)),
}


@pytest.mark.parametrize(("text", "expected"), [*PAPER.items(), *OURS.items()])
def test_presets_are_the_papers_decoders_and_ours(text, expected):
    assert parse_decoder(text) == expected


def test_every_preset_is_checked_and_described():
    assert {text.split("(")[0] for text in [*PAPER, *OURS]} == set(PRESETS)
    for preset in PRESETS.values():
        assert preset.summary.endswith(".")
        assert preset.source.startswith(("Sec.", "App.")) == (preset.name not in {text.split("(")[0] for text in OURS})


def test_presets_without_noise_are_known():
    assert {name for name, preset in PRESETS.items() if preset.deterministic} == {"median", "densest"}


@pytest.mark.parametrize("name", PRESETS)
def test_printed_presets_parse_back_to_themselves(name):
    text = PRESETS[name].text()
    assert canonical_text(name) == canonical_text(text) == text
    assert parse_decoder(text) == parse_decoder(name)


@given(l=st.floats(0, 0.49), rho=st.floats(0, 1))
def test_canonical_text_round_trips_any_value(l, rho):
    text = canonical_text(f" shared ( l = {l!r} , rho={rho!r} ) ")
    assert canonical_text(text) == text
    assert parse_decoder(text) == parse_decoder(f"shared(l={l!r},rho={rho!r})")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shraed", "decoder must be one of median, window.*got 'shraed'; did you mean 'shared'"),
        ("densty(rho=0.5)", "got 'densty'; did you mean 'density'"),
        ("shared(roh=0.9)", "decoder shared takes the parameters l, rho; got 'roh'; did you mean 'rho'"),
        ("median(l=0.1)", "decoder median takes the parameters none; got 'l'"),
        ("shared(l=0.5)", r"l must lie in \[0.0, 0.5\); got 0.5"),
        ("shared(rho=2)", r"rho must lie in \[0.0, 1.0\]; got 2"),
        ("shared(l=low)", "decoder shared: l must be a number, as in l=0.2; got 'l=low'"),
        ("shared(l)", "l must be a number"),
        ("shared(l=0.1, l=0.2)", "takes each parameter once; got 'l' twice"),
        ("shared(l=0.1", r"decoder must read like 'median' or 'shared\(l=0.2, rho=0.9\)'"),
        ("", "decoder must read like"),
        ("__import__('os')", "decoder must"),
    ],
)
def test_a_wrong_text_says_what_is_wrong_and_what_is_near(text, message):
    with pytest.raises(ValueError, match=message):
        parse_decoder(text)
