"""Silent connections take no descriptors from those who speak."""

import resource
import socket
from contextlib import ExitStack

import pytest

from lerobot_policy_quantile.serving import descriptors
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.descriptors import Handshakes, Room, room_for
from tests.support.fake_model import FakeModel, request
from tests.support.running_server import running


def limited(monkeypatch, soft, hard):
    set_to = []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda _, limits: set_to.append(limits))
    return set_to


def test_the_limit_is_raised_or_clients_are_fewer(monkeypatch):
    assert limited(monkeypatch, 10_000, 10_000) == []
    assert room_for(256) == Room(256, 64, 128)
    raised = limited(monkeypatch, 256, resource.RLIM_INFINITY)
    assert room_for(256) == Room(256, 64, 128)
    assert raised == [(640, resource.RLIM_INFINITY)]
    limited(monkeypatch, 256, 256)
    room = room_for(256)
    assert room == Room(96, 32, 32)
    assert room.clients + room.handshakes + 2 * room.backlog + descriptors.OWN <= 256
    limited(monkeypatch, 60, 60)
    with pytest.raises(ValueError, match="ulimit -n must be at least 80"):
        room_for(256)


def test_the_oldest_handshake_goes():
    class Silent:
        def __init__(self):
            self.dropped = False

        def drop(self):
            self.dropped = True

    handshakes, connections = Handshakes(2), [Silent() for _ in range(4)]
    handshakes.begin(connections[0])
    handshakes.begin(connections[1])
    handshakes.end(connections[0])
    handshakes.begin(connections[2])
    handshakes.begin(connections[3])
    assert [connection.dropped for connection in connections] == [False, True, False, False]
    assert handshakes.dropped == 1


def test_two_hundred_silent_connections_leave_the_door_open():
    with running(FakeModel()) as server, ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.server.port)))
        with PolicyClient(server.url) as client:
            assert client.infer(request())
        assert server.server._handshakes.dropped >= 200 - 64
