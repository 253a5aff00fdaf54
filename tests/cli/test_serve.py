"""`qhead serve` and `qhead client`, and a saved policy behind the server: the same numbers as without it."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.adapters.lerobot_folder import load_lerobot_policy
from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy
from lerobot_policy_quantile.adapters.served_policy import load_served_policy
from lerobot_policy_quantile.adapters.server_address import ServerAddress
from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.cli.serve import parse_guard
from lerobot_policy_quantile.contract import Observation
from lerobot_policy_quantile.core.decoders import parse_decoder
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import parse_request
from scripts.serving_process import observation, save_policy, serving
from tests.support.running_server import running

DECODERS = ("median", "shared(l=0.1)", "density")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_policy(tmp_path_factory.mktemp("policy"))


def seen(seed: int) -> Observation:
    wire = observation(np.random.default_rng(seed))
    images = {"external": wire["observation/image"], "wrist": wire["observation/wrist_image"]}
    return Observation(images, wire["observation/state"], wire["prompt"])


def invoke(*arguments: object, **environment: str):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200", **environment})


def test_rows_with_decoders_of_their_own_in_one_batch_equal_rows_alone(folder):
    policy = load_lerobot_policy(folder)
    together, alone = ([policy.begin(7, None, decoder) for decoder in (*DECODERS, "own")] for _ in range(2))
    for query in range(2):
        rows = [seen(10 * query + row) for row in range(4)]
        batch = policy.predict(rows, together)
        for row, prediction in enumerate(batch):
            (single,) = policy.predict([rows[row]], [alone[row]])
            for field in ("actions", "quantiles", "ranks"):
                np.testing.assert_allclose(getattr(prediction, field), getattr(single, field), atol=1e-5)
    assert (batch[0].ranks == 0.5).all()
    assert not np.allclose(batch[1].ranks, 0.5)
    with pytest.raises(ValueError, match="did you mean 'shared'"):
        policy.begin(0, None, "shraed")


def test_a_copula_that_was_never_fitted_is_refused_at_reset(folder):
    with running(load_served_policy(folder), deadline=300) as server, PolicyClient(server.url, timeout=300) as client:
        with pytest.raises(RequestError, match="decoder copula needs a correlation fitted") as refused:
            client.infer({}, reset=True, decoder="copula")
        assert (refused.value.kind, refused.value.field) == (ErrorKind.INVALID, "qhead.decoder")
        assert client.infer({}, reset=True, decoder="shared")


def test_a_batch_that_fails_leaves_every_rows_noise_as_it_was(folder):
    """The rows are then computed one by one, and give what they give alone."""
    policy = load_lerobot_policy(folder)
    together, alone = ([policy.begin(7, None, "shared"), policy.begin(8, None, "shared")] for _ in range(2))
    rows = [seen(0), seen(1)]
    unfitted = replace(policy.begin(9, None, "shared"), decoder=parse_decoder("copula"))
    with pytest.raises(ValueError, match="needs a correlation fitted"):
        policy.predict([*rows, seen(2)], [*together, unfitted])
    for row in range(2):
        (after,), (expected,) = (policy.predict([rows[row]], [memories[row]]) for memories in (together, alone))
        np.testing.assert_array_equal(after.ranks, expected.ranks)
        np.testing.assert_array_equal(after.actions, expected.actions)


def test_a_long_instruction_is_refused_at_the_door_whatever_the_state(folder):
    model = load_served_policy(folder)
    limit = model.spec.prompt_limit
    words = "put the can into the basket and then "
    longest = max((words * 20)[:n].strip() for n in range(1, 400) if limit.tokens((words * 20)[:n]) <= limit.most)
    for state in (-1.0, 0.0, 1.0):
        row = replace(seen(0), instruction=longest, state=np.full(8, state, np.float32))
        assert np.isfinite(policy_row(model, row).actions).all()
    with pytest.raises(RequestError, match=f"at most {limit.most} tokens"):
        parse_request({**observation(np.random.default_rng(0)), "prompt": words * 20}, model.spec)


def policy_row(model, row):
    images = dict(zip(model.spec.cameras, row.images.values(), strict=True))
    return model.predict([replace(row, images=images)], [model.begin(0, None)])[0]


def test_the_closed_loop_gets_the_same_numbers_through_the_server_as_from_the_folder(folder):
    policy = load_lerobot_policy(folder)
    with running(load_served_policy(folder), deadline=300) as server:
        remote = ServerPolicy(ServerAddress.parse(f"{server.url}?timeout=300"))
        assert remote.n_action_steps == policy.n_action_steps
        assert remote.context == policy.context
        for decoder in DECODERS[:2]:
            memories = remote.begin(5, None, decoder), policy.begin(5, None, decoder)
            for query in range(2):
                (far,) = remote.act([seen(query)], memories[:1])
                (near,) = policy.act([seen(query)], memories[1:])
                np.testing.assert_allclose(far.actions, near.actions, atol=1e-5)
                np.testing.assert_allclose(far.quantiles, near.quantiles, atol=1e-5)


def test_cameras_are_called_as_openpi_calls_them_or_as_told(folder):
    assert load_served_policy(folder).spec.cameras == ("observation/image", "observation/wrist_image")
    with pytest.raises(ValueError, match="camera must name one of the policy's features"):
        load_served_policy(folder, names={"observation.images.front": "x"})


def test_serve_answers_the_smoke_client_and_sigterm_ends_it_in_order(folder):
    with serving(folder, "--decoder", "shared(l=0.1)", "--limits=-5:5") as server:
        result = invoke("client", server.url, "--requests", "2", "--size", "32")
        assert result.exit_code == 0, result.output
        assert "actions          (10, 7)" in result.stdout
        assert "decoder shared(l=0.1)" in result.stdout
        assert "mean_spread" in result.stdout
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert "stopped" in server.process.stdout.read()
    gone = invoke("client", server.url)
    assert gone.exit_code == 1
    assert "cannot be reached" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "a token is needed; set QHEAD_TOKEN"),
        (("--limits", "1:-1"), "limits must be pairs with low < high"),
        (("--limits", "one"), "--limits must read like -1:1"),
        (("--guard", "hope"), "guard must be one of clamp, hold; got 'hope'"),
        (("--certificate", "c.pem"), "certificate and key must be given together"),
        (("--camera", "front"), "--camera must read like"),
        (("--deadline", "0"), "deadline must be positive"),
        (("--max-age", "nan"), "max_age must be positive and finite; got nan"),
        (("--message-timeout", "nan"), "message_timeout must be positive and finite; got nan"),
        (("--seed", str(2**64)), "seed must lie in 0..2**63-1"),
        (("--certificate", "c.pem", "--key", "k.pem"), "certificate must be a PEM file; there is none at c.pem"),
    ],
)
def test_wrong_usage_is_told_before_the_policy_is_loaded(tmp_path, arguments, said):
    result = invoke("serve", "--policy", tmp_path, *arguments, QHEAD_TOKEN="")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_a_folder_without_a_policy_is_one_sentence(tmp_path):
    result = invoke("serve", "--policy", tmp_path)
    assert result.exit_code == 1
    assert "policy must be a folder that LeRobot saved" in result.stderr


def test_limits_may_differ_by_coordinate():
    guard = parse_guard("-1:1,0:2", "hold")
    assert (guard.low, guard.high, guard.mode) == ((-1.0, 0.0), (1.0, 2.0), "hold")
