"""Floods of frames are closed before they are parsed, and a log does not fill with one kind of line."""

import logging
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.connection import CONTROL_FRAMES
from lerobot_policy_quantile.serving.frame_headers import FrameHeaders
from lerobot_policy_quantile.serving.protocol import BLOCK
from lerobot_policy_quantile.serving.rates import Allowance, RepeatedLines, log_to_stderr
from lerobot_policy_quantile.serving.wire import pack
from scripts.raw_websocket import BINARY, CLOSE, PING, PONG, TEXT, RawWebSocket, encode
from tests.support.fake_model import FakeModel, request
from tests.support.running_server import running

FRAGMENT = b"\x00\x81\0\0\0\0\x07"


@pytest.mark.parametrize(("kind", "frame"), [("control", encode(b"", PING)), ("data", FRAGMENT)])
def test_a_flood_is_closed_with_a_code_and_others_are_served(kind, frame):
    with running(FakeModel()) as server, PolicyClient(server.url) as good:
        with RawWebSocket(server.url) as flood:
            flood.receive()
            flood.send_raw(b"\x02\x81\0\0\0\0\x07" + frame * 20_000)
            while (answer := flood.receive()).opcode == PONG:
                pass
        assert answer.opcode == CLOSE
        assert int.from_bytes(answer.data[:2]) == 1008
        assert f"{kind} frames a second".encode() in answer.data
        assert good.infer(request())
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    assert 'qhead_refused_connections_total{reason="flood"} 1.0' in page


def test_a_client_that_pings_now_and_then_is_left_alone():
    with running(FakeModel()) as server, RawWebSocket(server.url) as client:
        client.receive()
        client.send_raw(encode(b"", PING) * int(CONTROL_FRAMES[1]))
        assert [client.receive().opcode for _ in range(int(CONTROL_FRAMES[1]))] == [PONG] * int(CONTROL_FRAMES[1])


frames = st.lists(
    st.tuples(st.sampled_from([BINARY, PING, PONG, CLOSE]), st.sampled_from([0, 5, 125, 126, 300, 70000]))
)


@given(frames, st.data())
def test_headers_are_found_however_the_bytes_are_cut(sent, data):
    stream = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"".join(encode(b"\x89" * size, opcode) for opcode, size in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    headers, seen = FrameHeaders(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += headers.walk(stream[start:end])
    assert seen == [(opcode >= CLOSE, size) for opcode, size in sent]


def test_an_allowance_is_a_rate_and_a_burst():
    now = [0.0]
    allowance = Allowance(10.0, 3.0, lambda: now[0])
    assert [allowance.spend() for _ in range(3)] == [0.0] * 3
    assert allowance.spend() == pytest.approx(0.1)
    now[0] = 0.3
    assert allowance.spend() == 0


def test_refusals_are_slowed_down(monkeypatch):
    from lerobot_policy_quantile.serving import server as module

    waited = []
    real = module.asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda seconds: waited.append(seconds) or real(0.001))
    monkeypatch.setattr(module, "REFUSALS", (0.01, 5.0))
    with running(FakeModel()) as server, RawWebSocket(server.url) as client:
        client.receive()
        client.send([pack({BLOCK: {}})] * 9)
        assert {client.receive().opcode for _ in range(9)} == {TEXT}
    assert len([seconds for seconds in waited if seconds > 50]) in (3, 4), "after the sixth, seventh, eighth; the ninth"


def test_a_log_holds_one_line_of_a_kind_and_counts_the_others():
    now, lines = [0.0], []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(RepeatedLines(10.0, lambda: now[0]))
    logger = logging.getLogger("flooded")
    logger.addHandler(handler)
    for number in range(1000):
        logger.warning("socket %d failed", number)
    logger.warning("another kind")
    now[0] = 11.0
    logger.warning("socket %d failed", 7)
    logger.removeHandler(handler)
    assert lines == ["socket 0 failed", "another kind", "socket 7 failed [and 999 like it before]"]


def test_logging_of_a_server_leaves_handlers_of_others_alone():
    """A program that embeds the server, or a test, keeps what it set up itself."""
    theirs = logging.NullHandler()
    logging.getLogger().addHandler(theirs)
    try:
        log_to_stderr()
        assert not theirs.filters
    finally:
        logging.getLogger().removeHandler(theirs)
