"""What the server holds at once is bounded in bytes."""

import threading
import tracemalloc
from contextlib import ExitStack

import numpy as np
import pytest

from lerobot_policy_quantile.serving.byte_budget import LARGE, ByteBudget, UnreadMessages
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import ErrorKind, RequestError
from lerobot_policy_quantile.serving.wire import pack
from scripts.hostile_clients import break_off
from scripts.raw_websocket import BINARY, RawWebSocket, encode
from tests.support.fake_model import ACTION_DIM, CAMERAS, STEPS, FakeModel, request
from tests.support.running_server import running
from tests.support.waiting import PATIENCE, wait_until

LARGE_PICTURE = {CAMERAS[0]: np.zeros((1024, 1024, 3), np.uint8)}


def test_pictures_beyond_the_bound_are_told_busy():
    model = FakeModel(shut=True)
    with running(model, decoded_bytes=4 * 2**20, max_batch=1) as server:
        answers = []
        with PolicyClient(server.url, timeout=PATIENCE) as first, PolicyClient(server.url, timeout=PATIENCE) as second:
            thread = threading.Thread(target=lambda: answers.append(first.infer(request(**LARGE_PICTURE))))
            thread.start()
            assert model.begun.wait(PATIENCE)
            with pytest.raises(RequestError, match="pictures of 3 MiB wait already, of 4") as refused:
                second.infer(request(**LARGE_PICTURE), want=[])
            assert refused.value.kind is ErrorKind.BUSY
            model.gate.set()
            thread.join()
            assert second.infer(request(**LARGE_PICTURE), want=[])["actions"].shape == (STEPS, ACTION_DIM)
    assert answers


def test_large_messages_are_read_one_after_the_other_and_small_ones_at_once():
    """One connection has announced a large message and sends nothing more of it: the next waits for it to go."""
    with running(FakeModel(), unread_bytes=4 * 2**20) as server, PolicyClient(server.url, timeout=PATIENCE) as small:
        budget = server.server._budget
        answers = []
        with RawWebSocket(server.url) as hog, PolicyClient(server.url, timeout=PATIENCE) as large:
            hog.receive()
            hog.send_raw(encode(b"\0" * (3 * 2**20), BINARY)[:1000])
            wait_until(lambda: budget.held > LARGE, "the announcement")
            thread = threading.Thread(target=lambda: answers.append(large.infer(request(**LARGE_PICTURE))))
            thread.start()
            wait_until(lambda: budget._waiting, "the second message")
            assert small.infer(request())["actions"].shape == (STEPS, ACTION_DIM)
            assert not answers
            hog._socket.close()
            hog._read.close()
            thread.join()
        assert answers
        wait_until(lambda: budget.held == 0, "all bytes returned")


def test_many_fragments_count_like_one_large_message():
    budget = ByteBudget(10 * LARGE)
    fragments = UnreadMessages(budget, lambda: None)
    for _ in range(8):
        fragments.announce(LARGE)
    assert budget.held == 8 * LARGE
    other = UnreadMessages(budget, lambda: None)
    other.announce(LARGE)
    assert not other.waiting, "small messages are not counted"
    other.announce(2 * LARGE)
    assert other.waiting
    fragments.decoded(8 * LARGE)
    assert not other.waiting
    assert budget.held == 3 * LARGE
    other.close()
    assert budget.held == 0


def test_messages_in_fragments_cannot_wait_for_each_other_for_ever():
    """Each has a part of the budget and wants more: both are dropped when an answer would be of no use."""
    first, more = b"\x02" + encode(b"\0" * (3 * 2**19))[1:], b"\x00" + encode(b"\0" * (3 * 2**19))[1:]
    with running(FakeModel(), unread_bytes=4 * 2**20, deadline=1.0) as server:
        with RawWebSocket(server.url) as one, RawWebSocket(server.url) as other:
            for socket in (one, other):
                socket.receive()
                socket.send_raw(first)
            wait_until(lambda: server.server._budget.held == 3 * 2**20, "the first fragments")
            for socket in (one, other):
                socket.send_raw(more[:1000])
            wait_until(lambda: server.server._budget.held == 0, "both dropped")
        assert PolicyClient(server.url).infer(request(**LARGE_PICTURE))


def test_a_message_larger_than_the_budget_is_read_alone():
    budget = ByteBudget(2 * LARGE)
    huge, next_one = UnreadMessages(budget, lambda: None), UnreadMessages(budget, lambda: None)
    huge.announce(5 * LARGE)
    next_one.announce(2 * LARGE)
    assert (huge.waiting, next_one.waiting) == (False, True)
    huge.close()
    assert not next_one.waiting


def test_pipelined_large_requests_are_all_answered():
    with running(FakeModel(), unread_bytes=4 * 2**20) as server, RawWebSocket(server.url) as client:
        client.receive()
        frames = [pack(request(number, **LARGE_PICTURE)) for number in range(4)]
        sender = threading.Thread(target=client.send, args=(frames,))
        sender.start()
        assert [client.receive().opcode for _ in frames] == [BINARY] * 4
        sender.join()
        wait_until(lambda: server.server._budget.held == 0, "all bytes returned")


def test_clients_that_were_answered_and_stay_hold_no_message():
    """Eight messages of 3 MiB; the websocket library's parser would keep each until its client's next frame."""
    with running(FakeModel()) as server, ExitStack() as stay:
        clients = [stay.enter_context(PolicyClient(server.url, timeout=PATIENCE)) for _ in range(9)]
        observation = request(**LARGE_PICTURE)
        tracemalloc.start()
        try:
            for client in clients[:8]:
                assert client.infer(observation)["actions"].shape == (STEPS, ACTION_DIM)
            clients[8].infer(request())  # the server is done with the others
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert held < 8 * 2**20


def test_a_large_message_that_breaks_off_is_freed():
    with running(FakeModel()) as server:
        assert break_off(server.url, 4 * LARGE)
        wait_until(lambda: not server.server._open, "its end")
        assert server.server._budget.held == 0
