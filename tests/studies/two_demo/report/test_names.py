import pytest

from lerobot_policy_quantile.core.decoders import PRESETS
from lerobot_policy_quantile.drawing.palette import colour
from lerobot_policy_quantile.studies.two_demo.report.names import HEADS, decoder_name
from lerobot_policy_quantile.studies.two_demo.result import is_deterministic


def test_every_head_has_a_colour():
    assert all(colour(head) == f"var(--{head})" for head in HEADS)


@pytest.mark.parametrize(
    ("head", "decoder", "name"),
    [
        ("quantile", "median", "median"),
        ("quantile", "shared(l=0, rho=0.9)", "shared rank"),
        ("quantile", "shared(l=0.2, rho=0.9)", "shared rank in [0.2, 0.8]"),
        ("quantile", "shared(l=0.2, rho=0.5)", "shared rank in [0.2, 0.8], rho=0.5"),
        ("quantile", "native(l=0.1, rho=0.9, T=0.35)", "native ranks"),
        ("quantile", "native(l=0.3, rho=0.9, T=0.35)", "native ranks, l=0.3"),
        ("quantile", "density_all(rho=0.9, n=1)", "density, all seven"),
        ("quantile", "tracking(w=0.2, n=2)", "tracking (ours)"),
        ("quantile", "new_one(a=1)", "new one, a=1"),
        ("flow", "own", "Flow matching"),
        ("l2", "own", "L2"),
    ],
)
def test_names_of_decoders(head, decoder, name):
    assert decoder_name(head, decoder) == name


def test_which_repeats_cannot_differ():
    assert is_deterministic("l1", "own")
    assert is_deterministic("quantile", "median")
    assert not is_deterministic("flow", "own")
    assert not is_deterministic("quantile", "shared(l=0, rho=0.9)")
    assert [name for name in PRESETS if is_deterministic("quantile", name)] == ["median", "densest"]
    assert not is_deterministic("quantile", "new_one(a=1)")


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ("window", "per_step", "gaussian")])
def test_default_parameters_go_without_saying(name):
    assert decoder_name("quantile", PRESETS[name].text()) == decoder_name("quantile", name)
    assert "=" not in decoder_name("quantile", PRESETS[name].text())
