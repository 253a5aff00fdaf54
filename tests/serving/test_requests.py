"""What the server refuses before it costs anything."""

import json
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from lerobot_policy_quantile.contract import PromptLimit
from lerobot_policy_quantile.serving.client import PolicyClient
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError, parse_error
from lerobot_policy_quantile.serving.request import parse_request
from lerobot_policy_quantile.serving.wire import Limits, pack
from scripts.serve_fuzz import FAULTS
from scripts.serve_fuzz import run as fuzz
from tests.support.fake_model import ACTION_DIM, CAMERAS, STATE_DIM, STEPS, FakeModel, request
from tests.support.running_server import running

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
    "thin image": ({CAMERAS[0]: np.zeros((8, 2048, 3), np.uint8)}, "at most 8 times as long as wide"),
    "empty image of a huge shape": (
        {CAMERAS[0]: {b"__ndarray__": True, b"data": b"", b"dtype": "|u1", b"shape": [2**20, 0, 3]}},
        "8 to 2048 pixels a side",
    ),
    "left-over of another robot": (
        {BLOCK: {"left_over": np.zeros((4, 6))}},
        r"must have shape \(1..10, 7\); got \(4, 6\)",
    ),
    "left-over beyond the chunk": ({BLOCK: {"left_over": np.zeros((11, 7))}}, r"qhead.left_over must have shape"),
    "left-over with NaN": ({BLOCK: {"left_over": np.full((4, 7), np.nan)}}, "qhead.left_over must be finite"),
    "left-over in degrees": (
        {BLOCK: {"left_over": np.full((4, 7), 57.3)}},
        "within -20 to 20; got 57.3: were they made",
    ),
    "left-over as text": ({BLOCK: {"left_over": "rest"}}, "qhead.left_over must be an array of numbers; got str"),
    "delay beyond the chunk": (
        {BLOCK: {"left_over": np.zeros((4, 7)), "delay": 10}},
        r"qhead.delay must lie in 0\.\.9, inside the chunk; got 10",
    ),
    "delay of nothing": ({BLOCK: {"delay": 2}}, "qhead.delay must be left out without left_over"),
    "no deadline at all": ({BLOCK: {"deadline": 0}}, "deadline must be positive; got 0"),
    "image as a list": ({CAMERAS[0]: [[0]]}, "must be an array of uint8; got list"),
    "missing prompt": ({"prompt": None}, "prompt is missing"),
    "empty prompt": ({"prompt": "  "}, "must have 1 to 1000 characters; got 0"),
    "endless prompt": ({"prompt": "x" * 1001}, "must have 1 to 1000 characters; got 1001"),
    "prompt with a bell": ({"prompt": "put\a"}, r"no control characters; got '\\x07'"),
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


@pytest.mark.parametrize(
    "text", ["put\u00a0it there", "放\u3000下", "wave \U0001f469\u200d\U0001f680", "one\r\ntwo\rthree", "tab\there\n"]
)
def test_spaces_joiners_and_line_ends_of_any_script_are_text(text):
    seen = parse_request(request(prompt=text), FakeModel().spec).observation.instruction
    assert seen == text.replace("\r\n", "\n").replace("\r", "\n")


def test_a_prompt_is_measured_in_the_policys_tokens():
    spec = replace(FakeModel().spec, prompt_limit=PromptLimit(4, lambda text: len(text.split())))
    assert parse_request(request(prompt="put the can down"), spec)
    with pytest.raises(RequestError, match="prompt must take at most 4 tokens of this policy's tokenizer; got 5") as no:
        parse_request(request(prompt="put the can down now"), spec)
    assert (no.value.kind, no.value.field) == (ErrorKind.INVALID, "prompt")


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
