"""Sessions that nobody uses take no place from those who come, and belong to the token that began them."""

import urllib.request

import pytest

from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import RequestOptions
from lerobot_policy_quantile.serving.session import IN_USE, Connection, Sessions
from tests.support.fake_model import FakeModel, request
from tests.support.running_server import running
from tests.support.waiting import wait_until

NEW = RequestOptions(reset=True, new_session=True)


class Crowd:
    """Sessions on a simulated clock."""

    def __init__(self, **limits):
        self.now = 0.0
        self.sessions = Sessions(FakeModel(), clock=lambda: self.now, **limits)

    def visit(self, peer, count, *, asks=False, stays=False):
        """A connection that opens sessions; their ids."""
        connection = Connection(peer=peer)
        opened = [self.sessions.find(NEW, connection) for _ in range(count)]
        for session in opened:
            session.asked = asks
        if not stays:
            self.sessions.leave(connection)
        return [session.name for session in opened]

    def known(self, name):
        return name in self.sessions._sessions


def test_visitors_that_never_ask_do_not_lock_others_out():
    crowd = Crowd()
    robot = crowd.visit("10.0.0.1", 1, asks=True)
    for _ in range(300):
        crowd.visit("10.0.0.9", 16)
    assert len(crowd.sessions) <= 1025, "one peer has its share"
    for peer in range(5):
        for _ in range(64):
            crowd.visit(f"10.0.1.{peer}", 16)
    newcomer = crowd.visit("10.0.0.2", 1, stays=True)
    assert len(crowd.sessions) <= 4096
    assert crowd.known(robot[0]), "it has asked, and may come back"
    assert crowd.known(newcomer[0])


def test_those_that_never_asked_go_first_then_the_abandoned_then_the_idle():
    crowd = Crowd(limit=4)
    idle = crowd.visit("a", 1, asks=True, stays=True)
    abandoned = crowd.visit("b", 1, asks=True)
    silent = crowd.visit("c", 1, stays=True)
    gone = crowd.visit("d", 1)
    crowd.now = IN_USE + 1
    for leaves in (gone, silent, abandoned, idle):
        assert crowd.known(leaves[0])
        crowd.visit("e", 1, asks=True, stays=True)
        assert not crowd.known(leaves[0])
    with pytest.raises(RequestError, match="keeps 4 sessions and all are in use") as refused:
        crowd.visit("f", 1)
    assert refused.value.kind is ErrorKind.BUSY
    crowd.now += IN_USE + 1
    assert crowd.visit("f", 1)


def test_a_peer_that_has_its_share_loses_its_own_or_is_told_so():
    crowd = Crowd(limit=100, per_peer=3)
    other = crowd.visit("quiet", 1)
    crowd.visit("greedy", 3)
    kept = crowd.visit("greedy", 3, asks=True, stays=True)
    with pytest.raises(RequestError, match="all 3 sessions of one address are in use"):
        crowd.visit("greedy", 1)
    assert all(map(crowd.known, [*other, *kept]))


def test_a_session_belongs_to_the_token_it_was_begun_with():
    tokens = ("the first robot's token", "the second robot's token")
    with running(FakeModel(), tokens=tokens) as server:
        with PolicyClient(server.url, token=tokens[0]) as own:
            session = own.infer({}, reset=True)[BLOCK]["session"]
            own.infer(request(), session=session, sequence=1)
        with PolicyClient(server.url, token=tokens[1]) as other:
            for sequence in (1, 2):  # a repeated request gets no answer, either
                with pytest.raises(RequestError, match="never begun here") as refused:
                    other.infer(request(), session=session, sequence=sequence)
                assert refused.value.kind is ErrorKind.UNKNOWN_SESSION
        with PolicyClient(server.url, token=tokens[0]) as again:
            assert again.infer(request(1), session=session, sequence=2)


def test_a_closed_connection_leaves_its_sessions_to_whoever_comes():
    with running(FakeModel()) as server:
        with PolicyClient(server.url) as client:
            client.infer({}, reset=True)
        (session,) = server.server._sessions._sessions.values()
        wait_until(lambda: not session.open, "leaving")
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    assert "qhead_sessions 1.0" in page
