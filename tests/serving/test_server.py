"""What leaves the server, and how it treats slow clients and its own end."""

import asyncio
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from websockets.sync.client import connect

from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.guard import Guard
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.server import PolicyServer
from lerobot_policy_quantile.serving.settings import ServerSettings
from tests.support.fake_model import ACTION_DIM, STEPS, FakeModel, request
from tests.support.running_server import running
from tests.support.waiting import PATIENCE, wait_until


def test_actions_that_are_not_finite_never_leave_and_are_counted():
    nan = request(**{"observation/state": np.array([777.0] + [0.0] * 7)})
    with running(FakeModel()) as server, PolicyClient(server.url) as client:
        answer = client.infer(nan, want=[])
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    assert np.isfinite(answer["actions"]).all()
    assert (answer["actions"][3:] == answer["actions"][2]).all()
    assert answer[BLOCK]["guarded_steps"] == 7
    assert "qhead_guarded_steps_total 7.0" in page


def test_actions_beyond_the_limits_are_clamped_or_held():
    far = request(**{"observation/state": np.array([0.0, 50.0] + [0.0] * 6)})
    with running(FakeModel(), guard=Guard((-1.0,), (1.0,))) as server:
        answer = PolicyClient(server.url).infer(far)
    assert (answer["actions"] == 1).all()
    with running(FakeModel(), guard=Guard((-1.0,), (2.0,), "hold")) as server, PolicyClient(server.url) as client:
        with pytest.raises(RequestError, match="none before it to hold") as refused:
            client.infer(far, want=[])
        assert refused.value.kind is ErrorKind.INFERENCE
        good = client.infer(request(0), want=[])["actions"]
        held = client.infer(far, want=[])["actions"]
    np.testing.assert_array_equal(held, np.broadcast_to(good[-1], (STEPS, ACTION_DIM)))
    with pytest.raises(ValueError, match="limits must be one pair or 7"):
        asyncio.run(_made(Guard((-1.0,) * 3, (1.0,) * 3)))


async def _made(guard):
    return PolicyServer(FakeModel(), ServerSettings(guard=guard))


@pytest.mark.parametrize("fragments", [False, True])
def test_a_client_that_sends_byte_by_byte_is_dropped(fragments):
    with running(FakeModel(), message_timeout=1.0) as server, PolicyClient(server.url) as good:
        with connect(server.url, ping_interval=None) as slow:
            slow.recv()
            raw = slow.socket
            header = b"\x02\x81\0\0\0\0\x07" if fragments else b"\x82\xfe\xff\xff\0\0\0\0"
            raw.sendall(header)
            dropped = False
            for _ in range(100):
                time.sleep(0.1)
                try:
                    raw.sendall(b"\x00\x81\0\0\0\0\x07" if fragments else b"\x07")
                except OSError:
                    dropped = True
                    break
            assert dropped
        assert good.infer(request())
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    assert 'qhead_refused_connections_total{reason="slow"} 1.0' in page


@pytest.mark.slow
def test_a_client_that_is_idle_or_pings_is_not_slow():
    with running(FakeModel(), message_timeout=2.0) as server, PolicyClient(server.url) as client:
        client.infer(request())
        for _ in range(3):
            client._socket.ping().wait()
            time.sleep(1.0)
        assert client.infer(request())


def test_an_unfinished_handshake_is_dropped():
    with (
        running(FakeModel(), message_timeout=0.5) as server,
        socket.create_connection(("127.0.0.1", server.server.port)) as raw,
    ):
        raw.sendall(b"GET / HTTP/1.1\r\n")
        raw.settimeout(PATIENCE)
        assert raw.recv(1000) == b""


def test_stopping_finishes_what_is_under_way_and_refuses_the_rest():
    model = FakeModel(shut=True)
    with running(model) as server, PolicyClient(server.url) as client, PolicyClient(server.url) as second:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(client.infer(request())))
        thread.start()
        assert model.begun.wait(PATIENCE)
        server.stop()
        wait_until(server.server.stopping.is_set)
        with pytest.raises(RequestError, match="the server is stopping") as refused:
            second.infer(request(), want=[])
        assert refused.value.kind is ErrorKind.STOPPING
        with pytest.raises(ServerGoneError):
            PolicyClient(server.url)
        model.gate.set()
        thread.join()
        assert answers[0]["actions"].shape == (STEPS, ACTION_DIM)
