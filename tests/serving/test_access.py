"""Who may speak to the server: the genuine client, tokens, addresses, TLS."""

import contextlib
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import BLOCK
from lerobot_policy_quantile.serving.settings import ServerSettings, is_loopback
from tests.support.fake_model import ACTION_DIM, LEVELS, STEPS, FakeModel, alone, request
from tests.support.running_server import running

TOKEN = "a token of some length"


def test_the_genuine_openpi_client_connects_infers_resets_and_breaks_chunks():
    with running(FakeModel(), first_seed=7) as server:
        client = WebsocketClientPolicy("127.0.0.1", server.server.port)
        assert client.get_server_metadata()["action_dim"] == ACTION_DIM
        answer = client.infer(request(1))
        np.testing.assert_allclose(answer["actions"], alone([1])[0])
        assert "quantiles" not in answer
        client.reset()  # says nothing to the server
        again = client.infer({BLOCK: {"reset": True, "seed": 7}})
        assert again[BLOCK]["episode"] == 1
        broker = ActionChunkBroker(client, STEPS)
        wish = {BLOCK: {"want": ["quantiles", "spread", "ranks"]}}
        steps = [broker.infer(request(1) | wish) for _ in range(STEPS)]
    np.testing.assert_allclose([step["actions"] for step in steps], answer["actions"])
    assert {step["quantiles"].shape for step in steps} == {(ACTION_DIM, len(LEVELS))}
    assert {step["spread"].shape for step in steps} == {(ACTION_DIM,)}
    assert all((np.diff(step["quantiles"]) >= 0).all() for step in steps)


def test_the_genuine_client_hears_an_error_and_the_connection_is_closed_as_openpis_server_does():
    with running(FakeModel()) as server:
        client = WebsocketClientPolicy("127.0.0.1", server.server.port)
        with pytest.raises(RuntimeError, match="prompt is missing"):
            client.infer(request(prompt=None))
        with pytest.raises(ConnectionClosed) as closed:
            client.infer(request())
        assert closed.value.rcvd.code == 1011
        assert WebsocketClientPolicy("127.0.0.1", server.server.port).infer(request())["actions"].shape == (10, 7)


def test_the_genuine_client_brings_its_api_key():
    with running(FakeModel(), tokens=(TOKEN,)) as server:
        assert WebsocketClientPolicy("127.0.0.1", server.server.port, api_key=TOKEN).infer(request())


@pytest.mark.parametrize("header", [None, "Api-Key wrong", f"Bearer {TOKEN}", f"Api-Key {TOKEN}x", "Api-Key ", TOKEN])
def test_without_the_token_nobody_gets_in(header):
    with running(FakeModel(), tokens=(TOKEN,), host="0.0.0.0") as server:
        headers = {} if header is None else {"Authorization": header}
        with pytest.raises(InvalidStatus) as refused, connect(server.url, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 401
        with pytest.raises(urllib.error.HTTPError) as metrics:
            urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics")
        assert metrics.value.code == 401
        assert urllib.request.urlopen(server.url.replace("ws", "http") + "/healthz").read() == b"OK\n"
        with pytest.raises(ServerGoneError, match="401 a token is needed"):
            PolicyClient(server.url)
        assert PolicyClient(server.url, token=TOKEN).infer(request())["actions"].shape == (STEPS, ACTION_DIM)


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    from lerobot_policy_quantile.serving import door as module

    real = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or real(a, b))
    with running(FakeModel(), tokens=(TOKEN,)) as server:
        for token in ("x", "x" * 5000, TOKEN):
            with contextlib.suppress(ServerGoneError):
                PolicyClient(server.url, token=token).close()
    assert compared == [(32, 32)] * 3


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "gpu-box"])
def test_an_address_that_others_can_reach_needs_a_token(host):
    with pytest.raises(ValueError, match="a token is needed"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, tokens=(TOKEN,)).host == host
    with pytest.raises(ValueError, match="at least 16 characters"):
        ServerSettings(host=host, tokens=("short",))


def test_loopback_is_known():
    assert [is_loopback(h) for h in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert ServerSettings().host == "127.0.0.1"


def test_a_web_page_may_not_speak_to_the_server():
    with (
        running(FakeModel()) as server,
        pytest.raises(InvalidStatus) as refused,
        connect(server.url, origin="https://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example:8000"}, {"Host": ""}]
)
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/"])
def test_a_web_page_may_read_no_page(headers, path):
    with running(FakeModel()) as server:
        url = server.url.replace("ws", "http")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url + path, headers=headers))
        assert refused.value.code == 403
        for name in ("localhost", "127.0.0.1:1", "[::1]:8000"):
            assert (
                urllib.request.urlopen(urllib.request.Request(url + "/healthz", headers={"Host": name})).status == 200
            )


@pytest.mark.parametrize("name", ["deadline", "max_age", "message_timeout", "window", "drain", "idle"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_times_are_finite(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        ServerSettings(**{name: value})


def test_seeds_fit_an_episode():
    for seed in (2**63, 2**64, -1):
        with pytest.raises(ValueError, match=r"seed must lie in 0..2\*\*63-1; got"):
            ServerSettings(first_seed=seed)
    assert ServerSettings(first_seed=2**63 - 1)


def test_too_many_clients_are_told_so():
    with running(FakeModel(), max_connections=1) as server, PolicyClient(server.url) as first:
        with pytest.raises(ServerGoneError, match="503 busy: 1 clients are connected"):
            PolicyClient(server.url)
        assert first.infer(request())


def test_tls_by_certificate_files(tmp_path):
    files = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", files[0]]
    subprocess.run([*new, "-out", files[1], *subject], check=True, capture_output=True)
    with running(FakeModel(), certificate=files[1], key=files[0]) as server:
        url = server.url.replace("ws://", "wss://")
        assert PolicyClient(url, ca=files[1]).infer(request())["actions"].shape == (STEPS, ACTION_DIM)
        with pytest.raises(ServerGoneError, match="certificate verify failed"):
            PolicyClient(url)
    with pytest.raises(ValueError, match="certificate and key must be given together"):
        ServerSettings(certificate=files[1])
    with pytest.raises(ValueError, match="do not go together"):
        ServerSettings(certificate=files[0], key=files[0]).tls()
    with pytest.raises(ValueError, match=r"certificate must be a PEM file; there is none at missing\.pem"):
        ServerSettings(certificate="missing.pem", key=files[0]).tls()
