"""Sessions keep their noise; order, age, deadlines and the queue are watched."""

import gc
import itertools
import threading
import urllib.error
import urllib.request
import weakref

import numpy as np
import pytest

from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import parse_request
from lerobot_policy_quantile.serving.session import Connection, Sessions
from tests.support.fake_model import ACTION_DIM, STEPS, FakeModel, alone, request
from tests.support.running_server import running
from tests.support.waiting import wait_until


def test_seed_and_decoder_belong_to_the_session():
    with running(FakeModel()) as server, PolicyClient(server.url) as client:
        sessions = {
            (seed, decoder): client.infer({}, reset=True, new_session=True, seed=seed, decoder=decoder)[BLOCK][
                "session"
            ]
            for seed in (7, 8)
            for decoder in ("median", "shared")
        }
        got = {key: [] for key in sessions}
        for number in range(3):
            for key, session in sessions.items():  # four episodes, turn and turn about
                got[key].append(client.infer(request(number), session=session)["actions"])
    for (seed, decoder), answers in got.items():
        np.testing.assert_allclose(answers, alone(range(3), decoder=decoder, seed=seed))


def test_a_reconnect_with_the_sessions_id_continues_it():
    expected = alone(range(3))
    with running(FakeModel()) as server:
        with PolicyClient(server.url) as client:
            session = client.infer({}, reset=True, seed=7)[BLOCK]["session"]
            first = client.infer(request(0), session=session)["actions"]
        with PolicyClient(server.url) as client:
            second = client.infer(request(1), session=session)["actions"]
        with PolicyClient(server.url) as client:
            third = client.infer(request(2), session=session)["actions"]
            with pytest.raises(RequestError, match="never begun here") as unknown:
                client.infer(request(2), session="0" * 32)
    assert unknown.value.kind is ErrorKind.UNKNOWN_SESSION
    np.testing.assert_allclose([first, second, third], expected)


def test_reset_begins_an_episode_of_its_own_noise_and_the_same_session_repeats_itself():
    runs = []
    for _ in range(2):
        with running(FakeModel()) as server, PolicyClient(server.url) as client:
            client.infer({}, reset=True, seed=7, decoder="shared")
            first = client.infer(request(0), want=[])
            second = client.infer(request(0), reset=True)
            assert [a[BLOCK]["episode"] for a in (first, second)] == [0, 1]
            runs.append([first["actions"], second["actions"]])
    assert not np.allclose(runs[0][0], runs[0][1])
    np.testing.assert_array_equal(runs[0], runs[1])


def test_a_forgotten_session_is_free_at_once_without_a_collector_of_cycles():
    """An hour of visitors would otherwise leave their last answers lying about: the full collection is rare."""
    connection, now = Connection(), [0.0]
    sessions = Sessions(FakeModel(), idle=10, clock=lambda: now[0])
    session = weakref.ref(sessions.find(parse_request({BLOCK: {"reset": True}}, FakeModel().spec).options, connection))
    assert session().owner is connection.identity
    gc.disable()
    try:
        del connection
        now[0] = 11.0
        sessions.forget_idle()
        assert session() is None
    finally:
        gc.enable()


def test_an_unused_session_is_forgotten_and_a_greedy_connection_loses_its_own():
    with running(FakeModel(), idle=0.2) as server, PolicyClient(server.url) as client:
        session = client.infer({}, reset=True)[BLOCK]["session"]
        wait_until(lambda: not server.server._sessions, "forgetting")
        with pytest.raises(RequestError, match="has expired"):
            client.infer(request(), session=session)
    with (
        running(FakeModel(), sessions_per_connection=2) as server,
        PolicyClient(server.url) as quiet,
        PolicyClient(server.url) as greedy,
    ):
        kept = quiet.infer({}, reset=True)[BLOCK]["session"]
        names = [greedy.infer({}, reset=True, new_session=True)[BLOCK]["session"] for _ in range(9)]
        assert quiet.infer(request(), session=kept)
        assert greedy.infer(request(), session=names[-1])
        with pytest.raises(RequestError, match="never begun here"):
            greedy.infer(request(), session=names[0])


def test_sequence_numbers_increase_and_a_repeated_request_gets_its_answer_again():
    with running(FakeModel(), first_seed=7) as server, PolicyClient(server.url) as client:
        session = client.infer({}, reset=True, new_session=True, seed=7)[BLOCK]["session"]
        first = client.infer(request(0), session=session, sequence=5)
        again = client.infer(request(0), session=session, sequence=5)
        np.testing.assert_array_equal(first["actions"], again["actions"])
        for sequence in (5, 4):
            with pytest.raises(RequestError, match=f"must increase; got {sequence} after 5") as refused:
                client.infer(request(1), session=session, sequence=sequence)
            assert refused.value.kind is ErrorKind.OUT_OF_ORDER
        second = client.infer(request(1), session=session, sequence=6)
        np.testing.assert_allclose([first["actions"], second["actions"]], alone([0, 1]))


def test_an_old_observation_is_refused_by_the_clients_word():
    with running(FakeModel(), max_age=5.0) as server, PolicyClient(server.url) as client:
        with pytest.raises(RequestError, match=r"is 5.100 s old; at most 5 s") as refused:
            client.infer(request(), age=5.1)
        assert refused.value.kind is ErrorKind.STALE


def test_a_request_that_cannot_be_answered_in_time_is_told_so_and_the_next_is_fine():
    model = FakeModel(shut=True)
    with running(model) as server, PolicyClient(server.url) as client:
        with pytest.raises(RequestError, match=r"no answer within 0\.0\d+ s|the deadline passed") as refused:
            client.infer(request(), deadline=0.05)
        assert refused.value.kind is ErrorKind.DEADLINE
        model.gate.set()
        assert client.infer(request(), want=[])["actions"].shape == (STEPS, ACTION_DIM)


def ask_many(url, clients, requests, heard=lambda: None):
    """Outcomes of many clients at once: client -> list of actions or error kinds; `heard` is called after each."""
    outcomes = {number: [] for number in range(clients)}
    barrier = threading.Barrier(clients)

    def life(number):
        with PolicyClient(url, timeout=60) as client:
            client.infer({}, reset=True, seed=1000 + number, decoder="shared")
            barrier.wait()
            for turn in range(requests):
                try:
                    outcomes[number].append(client.infer(request(100 * number + turn), want=[])["actions"])
                except RequestError as error:
                    outcomes[number].append(error.kind)
                heard()

    threads = [threading.Thread(target=life, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_ten_clients_are_computed_together_and_hear_only_their_own_answers():
    model = FakeModel(shut=True)
    with running(model) as server:
        queue = server.server._batcher._queue
        all_here = lambda: sum(model.batches) + len(queue) == 10  # noqa: E731  the first batch, and who gathers meanwhile
        gatekeeper = threading.Thread(target=lambda: (wait_until(all_here, "ten requests"), model.gate.set()))
        gatekeeper.start()
        outcomes = ask_many(server.url, 10, 10)
        gatekeeper.join()
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    for number, answers in outcomes.items():
        expected = alone([100 * number + turn for turn in range(10)], decoder="shared", seed=1000 + number)
        np.testing.assert_allclose(answers, expected, atol=1e-5)
    assert sum(model.batches) == 100
    assert max(model.batches) > 3
    assert 'qhead_requests_total{outcome="answered"} 110.0' in page
    for name in ("qhead_request_seconds_bucket", "qhead_queue_length", "qhead_batch_size_sum", "qhead_spread_count"):
        assert name in page
    assert "qhead_sessions 10.0" in page


def test_who_comes_when_the_queue_is_full_is_told_busy_at_once():
    """One is computed, two wait; the five others hear at once, before anything is computed."""
    model, heard = FakeModel(shut=True), itertools.count(1)
    with running(model, max_queue=2, max_batch=1) as server:
        answers = ask_many(server.url, 8, 1, heard=lambda: next(heard) == 5 and model.gate.set())
        outcomes = [outcome for each in answers.values() for outcome in each]
        busy = [outcome for outcome in outcomes if isinstance(outcome, ErrorKind)]
        assert len(busy) in (5, 6), "six if the first was still in the queue"
        assert set(busy) == {ErrorKind.BUSY}
        assert PolicyClient(server.url).infer(request())
    assert sum(model.batches) == 8 - len(busy) + 1


def test_a_row_that_fails_costs_the_others_nothing_and_says_no_secret():
    model = FakeModel()
    bad = request(**{"observation/state": np.array([666.0] + [0.0] * 7)})
    with running(model, window=0.2) as server, PolicyClient(server.url) as good, PolicyClient(server.url) as evil:
        good.infer({}, reset=True, seed=7)
        refused = []

        def fail():
            try:
                evil.infer(bad, want=[])
            except RequestError as error:
                refused.append(error)

        thread = threading.Thread(target=fail)
        thread.start()
        assert good.infer(request(0), want=[])["actions"].shape == (STEPS, ACTION_DIM)
        thread.join()
        assert evil.infer(request(0), want=[])
    (error,) = refused
    assert error.kind is ErrorKind.INFERENCE
    assert "RuntimeError" in error.message
    assert "secret" not in error.text()
    assert "Traceback" not in error.text()


def test_the_metrics_page_counts_requests_errors_latency_queue_batches_and_spread():
    with running(FakeModel()) as server, PolicyClient(server.url) as client:
        for number in range(3):
            client.infer(request(number), want=["spread"])
        with pytest.raises(RequestError):
            client.infer(request(prompt=3), want=[])
        page = urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics").read().decode()
    for line in (
        'qhead_requests_total{outcome="answered"} 3.0',
        'qhead_errors_total{kind="invalid"} 1.0',
        "qhead_request_seconds_count 4.0",
        "qhead_batch_size_sum 3.0",
        "qhead_spread_count 3.0",
        "qhead_queue_length 0.0",
        "qhead_connections 1.0",
    ):
        assert line in page, line
