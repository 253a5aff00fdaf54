"""The server as clients see it, in one process, behind a fake model."""

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
import weakref

import msgpack
import numpy as np
import pytest
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from lerobot_policy_quantile.evaluation.contract import Observation
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.guard import Guard
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError, parse_error
from lerobot_policy_quantile.serving.request import parse_request
from lerobot_policy_quantile.serving.server import PolicyServer, Settings, is_loopback
from lerobot_policy_quantile.serving.session import Connection, Sessions
from lerobot_policy_quantile.serving.wire import Limits, pack
from scripts.serve_fuzz import FAULTS
from scripts.serve_fuzz import run as fuzz
from tests.support.fake_model import ACTION_DIM, CAMERAS, LEVELS, STATE_DIM, STEPS, FakeModel, request
from tests.support.running_server import running

TOKEN = "a token of some length"


def alone(seeds, *, decoder=None, seed=7):
    """What the model gives to one episode, asked alone."""
    model, answers = FakeModel(), []
    memory = model.begin(seed, decoder)
    for number in seeds:
        wire = request(number)
        seen = Observation({name: wire[name] for name in CAMERAS}, wire["observation/state"], wire["prompt"])
        answers.append(model.predict([seen], [memory])[0].actions)
    return answers


# --- the genuine client ---


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
    with running(FakeModel(), token=TOKEN) as server:
        assert WebsocketClientPolicy("127.0.0.1", server.server.port, api_key=TOKEN).infer(request())


# --- the door ---


@pytest.mark.parametrize("header", [None, "Api-Key wrong", f"Bearer {TOKEN}", f"Api-Key {TOKEN}x", "Api-Key ", TOKEN])
def test_without_the_token_nobody_gets_in(header):
    with running(FakeModel(), token=TOKEN, host="0.0.0.0") as server:
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
    from lerobot_policy_quantile.serving import server as module

    real = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or real(a, b))
    with running(FakeModel(), token=TOKEN) as server:
        for token in ("x", "x" * 5000, TOKEN):
            with contextlib.suppress(ServerGoneError):
                PolicyClient(server.url, token=token).close()
    assert compared == [(32, 32)] * 3


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "gpu-box"])
def test_an_address_that_others_can_reach_needs_a_token(host):
    with pytest.raises(ValueError, match="a token is needed"):
        Settings(host=host)
    assert Settings(host=host, token=TOKEN).host == host
    with pytest.raises(ValueError, match="at least 16 characters"):
        Settings(host=host, token="short")


def test_loopback_is_known():
    assert [is_loopback(h) for h in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert Settings().host == "127.0.0.1"


def test_a_web_page_may_not_speak_to_the_server():
    with (
        running(FakeModel()) as server,
        pytest.raises(InvalidStatus) as refused,
        connect(server.url, origin="https://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403


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
        Settings(certificate=files[1])
    with pytest.raises((ssl.SSLError, OSError)):
        Settings(certificate=files[0], key=files[0]).tls()


# --- validation ---

WRONG = {
    "nan state": ({"observation/state": np.full(STATE_DIM, np.nan)}, "must be finite"),
    "infinite state": ({"observation/state": np.array([np.inf] + [0.0] * 7)}, "must be finite"),
    "huge state": ({"observation/state": np.full(STATE_DIM, 1e9)}, "must lie within"),
    "short state": ({"observation/state": np.zeros(7)}, r"must have shape \(8,\); got \(7,\)"),
    "long state": ({"observation/state": np.zeros(9)}, r"must have shape \(8,\)"),
    "empty state": ({"observation/state": np.zeros(0)}, r"must have shape \(8,\)"),
    "state in two axes": ({"observation/state": np.zeros((1, 8))}, r"must have shape \(8,\)"),
    "boolean state": ({"observation/state": np.zeros(8, bool)}, "must be an array of numbers; got bool"),
    "text state": ({"observation/state": "zero"}, "must be an array of numbers; got str"),
    "state of lists": ({"observation/state": [[0.0]] * 8}, "must be an array of numbers; got list"),
    "state with a hole": ({"observation/state": [0.0] * 7 + [None]}, "must be an array of numbers"),
    "missing state": ({"observation/state": None}, "observation/state is missing"),
    "missing camera": ({CAMERAS[0]: None}, "observation/image is missing"),
    "missing wrist": ({CAMERAS[1]: None}, "observation/wrist_image is missing"),
    "misspelled camera": ({CAMERAS[0]: None, "observation/imagee": np.zeros(1)}, "did you mean 'observation/image'"),
    "third camera": ({"observation/third": np.zeros((8, 8, 3), np.uint8)}, "is not read by this policy"),
    "float image": ({CAMERAS[0]: np.zeros((8, 8, 3), np.float32)}, "must be an array of uint8; got float32"),
    "signed image": ({CAMERAS[0]: np.zeros((8, 8, 3), np.int8)}, "must be an array of uint8"),
    "image in channels first": ({CAMERAS[0]: np.zeros((3, 8, 8), np.uint8)}, r"must have shape \(height, width, 3\)"),
    "grey image": ({CAMERAS[0]: np.zeros((8, 8), np.uint8)}, r"must have shape \(height, width, 3\)"),
    "image with alpha": ({CAMERAS[0]: np.zeros((8, 8, 4), np.uint8)}, r"must have shape \(height, width, 3\)"),
    "batch of images": ({CAMERAS[0]: np.zeros((1, 8, 8, 3), np.uint8)}, r"must have shape \(height, width, 3\)"),
    "image without pixels": ({CAMERAS[0]: np.zeros((0, 8, 3), np.uint8)}, "8 to 2048 pixels a side"),
    "wide image": ({CAMERAS[0]: np.zeros((8, 2049, 3), np.uint8)}, "8 to 2048 pixels a side"),
    "image as a list": ({CAMERAS[0]: [[0]]}, "must be an array of uint8; got list"),
    "missing prompt": ({"prompt": None}, "prompt is missing"),
    "empty prompt": ({"prompt": "  "}, "must have 1 to 1000 characters; got 0"),
    "endless prompt": ({"prompt": "x" * 1001}, "must have 1 to 1000 characters; got 1001"),
    "prompt with a bell": ({"prompt": "put\a"}, "no control characters"),
    "prompt as a number": ({"prompt": 3}, "must be a text; got int"),
    "unknown wish": ({BLOCK: {"sequenc": 1}}, "did you mean 'sequence'"),
    "negative seed": ({BLOCK: {"reset": True, "seed": -1}}, "must be a whole number"),
    "seed without reset": ({BLOCK: {"seed": 1}}, "must be true with seed"),
    "unknown decoder": ({BLOCK: {"reset": True, "decoder": "shraed"}}, "decoder must be one of median, shared"),
    "unknown extra": ({BLOCK: {"want": ["logits"]}}, "must be a list of quantiles, spread, ranks"),
    "endless age": ({BLOCK: {"age": float("inf")}}, "must be a finite number of seconds"),
    "session as a number": ({BLOCK: {"session": 3}}, "must be a text"),
    "reset as a number": ({BLOCK: {"reset": 1}}, "must be true or false"),
}


def test_thirty_wrong_requests_are_refused_by_field_and_the_next_is_fine():
    assert len(WRONG) >= 30
    model = FakeModel()
    with running(model) as server, PolicyClient(server.url) as client:
        for name, (changes, said) in WRONG.items():
            wrong = request(**changes)
            wrong.setdefault(BLOCK, {"want": []})  # who speaks our part keeps the connection
            asked = len(model.batches)
            with pytest.raises(RequestError, match=said) as refused:
                client.infer(wrong)
            assert refused.value.kind is ErrorKind.INVALID, name
            assert refused.value.field, name
            assert len(model.batches) == asked, f"{name} cost an inference"
            assert client.infer(request(), want=[])["actions"].shape == (STEPS, ACTION_DIM), name
        assert client.connected


@pytest.mark.parametrize("changes", [{"observation/state": np.full(8, np.nan)}, {CAMERAS[0]: None}, {"prompt": 3}])
def test_a_plain_client_comes_back_after_an_error(changes):
    with running(FakeModel()) as server:
        with connect(server.url) as plain:
            plain.recv()
            plain.send(pack(request(**changes)))
            assert parse_error(plain.recv()).kind is ErrorKind.INVALID
            with pytest.raises(ConnectionClosed):
                plain.recv()
        assert PolicyClient(server.url).infer(request())["actions"].shape == (STEPS, ACTION_DIM)


def test_a_message_over_the_limit_is_not_read():
    with running(FakeModel(), limits=Limits(size=10_000)) as server:
        with connect(server.url) as client:
            client.recv()
            client.send(b"\0" * 10_001)
            with pytest.raises(ConnectionClosed) as closed:
                client.recv()
        assert closed.value.rcvd.code == 1009
        assert PolicyClient(server.url).infer(request(size=8))


def test_two_thousand_malformed_frames_change_nothing(tmp_path):
    with running(FakeModel()) as server:
        seen = fuzz(server.url, 2000, 4, tmp_path / "executed")
        assert PolicyClient(server.url).infer(request())["actions"].shape == (STEPS, ACTION_DIM)
    assert seen["refused with a sentence"] > 1500
    assert not [fault for fault in FAULTS if seen[fault]], seen
    assert seen["broken"]
    assert not (tmp_path / "executed").exists()


def test_the_bait_would_bite(tmp_path):
    """The twin: the same frames do run code where somebody unpickles them."""
    import pickle

    from scripts.serve_fuzz import Bait

    pickle.loads(pickle.dumps(Bait(str(tmp_path / "executed"))))
    assert (tmp_path / "executed").exists()


def test_a_frame_nested_ten_thousand_deep_is_refused():
    with running(FakeModel()) as server, connect(server.url) as client:
        client.recv()
        client.send(b"\x91" * 10_000 + msgpack.packb(None))
        assert json.loads(client.recv())["error"] == "malformed"


# --- sessions ---


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
    session = weakref.ref(sessions.find(parse_request({BLOCK: {"reset": True}}, FakeModel().spec).wishes, connection))
    assert session().owner is connection.badge
    gc.disable()
    try:
        del connection
        now[0] = 11.0
        sessions.forget_idle()
        assert session() is None
    finally:
        gc.enable()


def test_an_unused_session_is_forgotten_and_a_greedy_connection_loses_its_own():
    with running(FakeModel(), idle=0.2, message_timeout=0.4) as server, PolicyClient(server.url) as client:
        session = client.infer({}, reset=True)[BLOCK]["session"]
        time.sleep(0.2)
        while server.server._sessions:
            time.sleep(0.05)
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


# --- order, age, deadline, queue ---


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


def test_an_old_observation_is_refused_by_the_clients_word_or_by_its_way():
    with running(FakeModel(), max_age=5.0) as server, PolicyClient(server.url) as client:
        with pytest.raises(RequestError, match=r"is 5.100 s old; at most 5 s") as refused:
            client.infer(request(), age=5.1)
        assert refused.value.kind is ErrorKind.STALE
        clock = -1000.0  # the client's clock may stand anywhere
        assert client.infer(request(), sent=clock)
        with pytest.raises(RequestError, match="s old; at most 5 s"):
            client.infer(request(), sent=clock - 60)  # sent a minute before, arrived now


def test_a_request_that_cannot_be_answered_in_time_is_told_so_and_the_next_is_fine():
    with running(FakeModel(cost=0.5)) as server, PolicyClient(server.url) as client:
        with pytest.raises(RequestError, match=r"no answer within 0\.0\d+ s|the deadline passed") as refused:
            client.infer(request(), deadline=0.05)
        assert refused.value.kind is ErrorKind.DEADLINE
        assert client.infer(request(), want=[])["actions"].shape == (STEPS, ACTION_DIM)


def ask_many(url, clients, requests, pause=lambda: None):
    """Outcomes of many clients at once: client -> list of actions or error kinds."""
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
                pause()

    threads = [threading.Thread(target=life, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_ten_clients_are_computed_together_and_hear_only_their_own_answers():
    model = FakeModel(cost=0.01)
    with running(model) as server:
        outcomes = ask_many(server.url, 10, 10)
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
    model = FakeModel(cost=0.2)
    with running(model, max_queue=2, max_batch=1) as server:
        outcomes = [outcome for answers in ask_many(server.url, 8, 1).values() for outcome in answers]
        busy = [outcome for outcome in outcomes if isinstance(outcome, ErrorKind)]
        assert 1 <= len(busy) <= 6
        assert set(busy) == {ErrorKind.BUSY}
        assert PolicyClient(server.url).infer(request())
    assert sum(model.batches) == 8 - len(busy) + 1


def test_a_row_that_fails_costs_the_others_nothing_and_says_no_secret():
    model = FakeModel(cost=0.05)
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


# --- the guard ---


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
    return PolicyServer(FakeModel(), Settings(guard=guard))


# --- slow clients, stopping ---


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


def test_a_client_that_is_idle_or_pings_is_not_slow():
    with running(FakeModel(), message_timeout=0.4) as server, PolicyClient(server.url) as client:
        client.infer(request())
        for _ in range(4):
            client._socket.ping().wait()
            time.sleep(0.3)
        assert client.infer(request())


def test_an_unfinished_handshake_is_dropped():
    with (
        running(FakeModel(), message_timeout=0.5) as server,
        socket.create_connection(("127.0.0.1", server.server.port)) as raw,
    ):
        raw.sendall(b"GET / HTTP/1.1\r\n")
        raw.settimeout(20)
        assert raw.recv(1000) == b""


def test_stopping_finishes_what_is_under_way_and_refuses_the_rest():
    model = FakeModel(cost=0.6)
    with running(model) as server, PolicyClient(server.url) as client, PolicyClient(server.url) as second:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(client.infer(request())))
        thread.start()
        while not model.batches:
            time.sleep(0.01)
        server.stop()
        time.sleep(0.1)
        with pytest.raises(RequestError, match="the server is stopping") as refused:
            second.infer(request(), want=[])
        assert refused.value.kind is ErrorKind.STOPPING
        with pytest.raises(ServerGoneError):
            PolicyClient(server.url)
        thread.join()
        assert answers[0]["actions"].shape == (STEPS, ACTION_DIM)
