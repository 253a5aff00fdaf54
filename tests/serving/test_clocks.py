"""Clocks that drift or are set do not stop a robot; what is truly old is still refused."""

import contextlib
import time

import pytest

from lerobot_policy_quantile.serving import background_client
from lerobot_policy_quantile.serving.background_client import BackgroundClient, TimedObservation
from lerobot_policy_quantile.serving.client import PolicyClient, WrongTokenError
from lerobot_policy_quantile.serving.protocol import RequestError
from scripts.hostile_clocks import Day, SmallestLag, day
from tests.support.fake_model import FakeModel, request
from tests.support.running_server import running
from tests.support.waiting import PATIENCE, wait_until

TOKEN = "a token of some length"


@pytest.mark.parametrize("ppm", [-200, 200])
@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
def test_a_day_of_drift_or_a_clock_that_is_set_refuses_nothing_but_what_is_old(ppm, step):
    seen = day(ppm, step=step, period=2.0)
    assert seen == Day(seen.requests, false_refusals=0, old_sent=24, old_accepted=0)
    assert seen.requests > 40_000


def test_without_ageing_a_slow_clock_is_refused_before_noon():
    """The twin: the smallest lag of all time takes 200 ppm for a delay after 5000 s."""
    seen = day(-200, period=2.0, estimate=SmallestLag())
    assert seen.false_refusals > 35_000


def test_an_observation_that_was_long_on_its_way_is_refused():
    with running(FakeModel(), max_age=0.2) as server, PolicyClient(server.url) as client:
        with contextlib.suppress(RequestError):  # stale on a busy machine
            client.infer(request(), sent=-1000.0)  # the client's clock may stand anywhere
        time.sleep(0.3)
        with pytest.raises(RequestError, match="s old; at most"):
            client.infer(request(), sent=-999.99)


def test_a_robot_that_hears_stale_again_and_again_reconnects_and_goes_on(monkeypatch):
    """Its clock stands still: every request looks older than the one before."""

    class Stopped:
        monotonic = staticmethod(lambda: 0.0)

    monkeypatch.setattr(background_client, "time", Stopped)
    with running(FakeModel(), max_age=0.2) as server:
        background = BackgroundClient(server.url, timeout=PATIENCE, backoff=(0.11, 0.2))
        wanted = {"connections": 3, "refused": 6}
        until = time.monotonic() + PATIENCE
        while any(getattr(background.counts, name) < count for name, count in wanted.items()):
            assert time.monotonic() < until, background.counts
            if not background.waiting:
                background.submit(TimedObservation(request(), 0.0))
            background.poll()
        background.close()
    assert background.counts.sessions == 1, "the session goes on over the new connection"
    assert background.counts.answers >= 1


def test_a_wrong_token_is_said_after_a_few_attempts():
    with running(FakeModel(), tokens=(TOKEN,)) as server:
        background = BackgroundClient(server.url, token="wrong", timeout=PATIENCE, backoff=(0.01, 0.02))
        said = []

        def asked():
            if not background.waiting:
                background.submit(TimedObservation(request(), time.monotonic()))
            try:
                background.poll()
            except WrongTokenError as error:
                said.append(error)
            return said

        wait_until(asked, "the client's word about its token")
        background.close()
    assert "401 a token is needed" in str(said[0])
    assert background.counts.lost == background_client.TOKEN_ATTEMPTS
