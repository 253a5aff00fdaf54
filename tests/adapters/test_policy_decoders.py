"""A decoder that a policy folder cannot answer with is refused from its files, before a worker loads the model."""

import json

import pytest

from lerobot_policy_quantile.adapters.policy_decoders import require_decoders


@pytest.fixture
def folder(tmp_path):
    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps({"type": "quantile", **config}))
        return {"ours": str(tmp_path)}

    return write


@pytest.mark.parametrize(
    ("config", "decoder", "said"),
    [
        ({"head": "l1"}, "median", r"--decoder must be 'own' for policy 'ours': .* its head is l1; got 'median'"),
        ({"head": "flow"}, "shared(l=0, rho=0.9)", "its head is flow"),
        ({"type": "act"}, "median", "which is of type act; got 'median'"),
        ({}, "copula(rho=0.9)", "needs a correlation fitted to training data; .* does not exist"),
    ],
)
def test_what_cannot_be_decoded_is_refused(folder, config, decoder, said):
    with pytest.raises(ValueError, match=said):
        require_decoders(folder(**config), {"ours": [decoder]})


@pytest.mark.parametrize(
    ("config", "decoder"),
    [
        ({}, "shared(l=0, rho=0.9)"),
        ({"head": "l1"}, "own"),
        ({"head": "l1", "decoder": "median"}, "median"),
        ({"type": "act"}, "own"),
    ],
)
def test_what_can_be_decoded_passes(folder, config, decoder):
    require_decoders(folder(**config), {"ours": [decoder]})


def test_experts_and_servers_are_not_looked_at_here():
    require_decoders({"a": "expert", "b": "ws://host:1"}, {"a": ["own"], "b": ["median"]})
