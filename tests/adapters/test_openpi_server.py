"""Any openpi server as a policy of the closed loop; the genuine openpi-client says what the wire looks like."""

import numpy as np
import pytest
from openpi_client import image_tools

from lerobot_policy_quantile.adapters.openpi_server import ServerPolicy
from lerobot_policy_quantile.adapters.server_address import ServerAddress, is_server, resize_with_padding
from lerobot_policy_quantile.contract import Observation
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.serving.client import ServerGoneError, ServerRefusedError
from tests.support.fake_model import FakeModel
from tests.support.fake_worlds import FakeWorld
from tests.support.openpi_server import openpi_server
from tests.support.running_server import running

KEY = EpisodeKey("fake", 0, 0, 0, "far", "own")


def seen(size=(48, 64)):
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (*size, 3), dtype=np.uint8) for name in ("external", "wrist")}
    return Observation(images, rng.normal(size=8), "put the can into the basket")


def chunk(observation):
    return {"actions": np.full((10, 7), observation["observation/state"][0], np.float32), "policy_timing": {"ms": 1.0}}


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (256, 256), (224, 224), (37, 500), (300, 299)])
def test_pictures_are_resized_as_openpis_clients_do(shape):
    image = seen(shape).images["external"]
    assert np.array_equal(resize_with_padding(image, 224), image_tools.resize_with_pad(image, 224, 224))


def test_a_server_sees_what_openpis_libero_client_would_send():
    requests = []

    def infer(observation):
        requests.append(observation)
        return chunk(observation)

    observation = seen()
    with openpi_server(infer) as url:
        policy = ServerPolicy(ServerAddress.parse(url))
        (answer,) = policy.act([observation], [policy.begin(3, None)])
    (request,) = requests
    assert set(request) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
    for name, camera in (("observation/image", "external"), ("observation/wrist_image", "wrist")):
        expected = image_tools.convert_to_uint8(image_tools.resize_with_pad(observation.images[camera], 224, 224))
        assert request[name].dtype == np.uint8
        assert np.array_equal(request[name], expected)
    np.testing.assert_allclose(request["observation/state"], observation.state, rtol=1e-6)
    assert request["prompt"] == observation.instruction
    assert answer.actions.shape == (10, 7)
    assert answer.quantiles is None
    assert policy.n_action_steps == 5


def test_names_steps_and_size_are_options_of_the_address():
    requests = []

    def infer(observation):
        requests.append(observation)
        return {"actions": np.zeros((10, 7))}

    with openpi_server(infer) as url:
        policy = ServerPolicy(ServerAddress.parse(f"{url}?steps=10&resize=0&external=cam/front&wrist=&state=joints"))
        policy.act([seen()], [None])
    assert set(requests[0]) == {"cam/front", "joints", "prompt"}
    assert requests[0]["cam/front"].shape == (48, 64, 3)
    assert policy.n_action_steps == 10


def test_an_episode_runs_through_a_server_and_its_context_names_the_metadata():
    with openpi_server(chunk, {"model": "a"}) as url:
        first = run_episode(FakeWorld(), ServerPolicy(ServerAddress.parse(url)), KEY).outcome
        again = run_episode(FakeWorld(), ServerPolicy(ServerAddress.parse(url)), KEY).outcome
    with openpi_server(chunk, {"model": "b"}) as url:
        other = ServerPolicy(ServerAddress.parse(url)).context
    assert (first.status, first.steps, first.hashes) == ("success", 13, again.hashes)
    assert first.policy_context == again.policy_context
    assert first.policy_context["policy"].startswith("openpi server ")
    assert first.policy_context != other
    assert not any("127.0.0.1" in value for value in first.policy_context.values())


def test_a_servers_error_is_an_error_and_the_next_episode_connects_again():
    calls = []

    def infer(observation):
        calls.append(observation)
        if len(calls) == 1:
            raise RuntimeError("no such key")
        return chunk(observation)

    with openpi_server(infer) as url:
        policy = ServerPolicy(ServerAddress.parse(url))
        with pytest.raises(ServerRefusedError, match="no such key"):
            policy.act([seen()], [None])
        assert run_episode(FakeWorld(), policy, KEY).outcome.status == "success"


@pytest.mark.parametrize("answer", [{"action": np.zeros((2, 7))}, {"actions": [[0.0] * 7]}])
def test_an_answer_without_an_array_of_actions_is_refused(answer):
    with openpi_server(lambda _: answer) as url, pytest.raises(ValueError, match="must answer with an array 'actions'"):
        ServerPolicy(ServerAddress.parse(url)).act([seen()], [None])


def test_no_server_and_a_server_that_is_gone_are_told_apart_from_failures():
    with openpi_server(chunk) as url:
        policy = ServerPolicy(ServerAddress.parse(url))
    outcome = run_episode(FakeWorld(), policy, KEY).outcome
    assert outcome.status == "error"
    assert "ServerGoneError" in outcome.traceback
    with pytest.raises(ServerGoneError, match="cannot be reached"):
        ServerPolicy(ServerAddress.parse(url))


def test_a_decoder_needs_a_server_that_knows_decoders():
    with openpi_server(chunk) as url, pytest.raises(ValueError, match="which is no quantile server; got 'median'"):
        ServerPolicy(ServerAddress.parse(url)).begin(0, None, "median")


def test_a_chunk_is_cut_where_our_server_is_in_doubt():
    """The fake model's spread grows by 0.08 with every step: a threshold of 0.3 leaves three of ten."""
    with running(FakeModel()) as server:
        policy = ServerPolicy(ServerAddress.parse(f"{server.url}?replan=0.3"))
        careful = ServerPolicy(ServerAddress.parse(f"{server.url}?replan=0.3&least=5"))
        lengths = [len(p.act([seen()], [p.begin(1, None)])[0].actions) for p in (policy, careful)]
    assert lengths == [3, 5]
    assert "threshold=0.3" in policy.context["replanning"]
    with openpi_server(chunk) as url, pytest.raises(ValueError, match="which predicts no quantiles"):
        ServerPolicy(ServerAddress.parse(f"{url}?replan=0.3"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://host", "must read like ws://host:8000"),
        ("ws://", "must read like ws://host:8000"),
        (
            "ws://host?step=5",
            "prompt, steps, resize, timeout, replan, least; got 'step'",
        ),
        ("ws://host?steps=five", "option steps must be a number; got 'five'"),
        ("ws://host?steps=0", "steps, timeout and least must be positive"),
    ],
)
def test_wrong_addresses_are_told_what_is_allowed(text, said):
    with pytest.raises(ValueError, match=said):
        ServerAddress.parse(text)


def test_only_websocket_addresses_are_servers():
    assert [is_server(s) for s in ("ws://a:1", "wss://a", "expert", "runs/ws")] == [True, True, False, False]
