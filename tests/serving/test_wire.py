"""The wire format: openpi's, to the byte, and nothing that was not asked for."""

import pickle

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpi_client import msgpack_numpy

from lerobot_policy_quantile.serving.wire import DTYPES, Limits, WireError, pack, require_bounded, unpack

MESSAGE = {
    "observation/image": np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3),
    "observation/state": np.linspace(-1, 1, 8, dtype=np.float32),
    "prompt": "räume auf",
    "nested": {"list": [1, 2.5, None, True], "scalar": np.float32(0.5), "flag": np.bool_(True)},
}


def same(a, b):
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    return type(a) is type(b) and a == b


def test_frames_are_openpis_to_the_byte_in_both_directions():
    assert pack(MESSAGE) == msgpack_numpy.packb(MESSAGE)
    assert same(unpack(msgpack_numpy.packb(MESSAGE)), MESSAGE)
    assert same(msgpack_numpy.unpackb(pack(MESSAGE)), MESSAGE)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (1, 2, 3)])
def test_every_allowed_dtype_and_shape_goes_round(dtype, shape):
    array = np.zeros(shape, dtype)
    assert same(unpack(pack({"a": array})), {"a": array})


def array(**changes):
    entry = {b"__ndarray__": True, b"data": b"\0" * 12, b"dtype": "|u1", b"shape": [2, 2, 3]}
    return msgpack.packb({"a": {**entry, **{key.encode(): value for key, value in changes.items()}}})


REFUSED = {
    "object dtype": (array(dtype="|O"), "dtype must be one of"),
    "structured dtype": (array(dtype="i4,f8"), "dtype must be one of"),
    "dtype that is a list": (array(dtype=["|u1"]), "dtype must be one of"),
    "big endian": (array(dtype=">f4"), "dtype must be one of"),
    "text dtype": (array(dtype="<U3"), "dtype must be one of"),
    "complex": (array(dtype="<c8"), "dtype must be one of"),
    "huge shape": (array(shape=[2**40, 2**40]), "may have 16777216 elements"),
    "shape times zero": (array(shape=[2**12, 0]), "needs other bytes"),
    "nothing in a huge shape": (array(shape=[2**62, 0], data=b""), "may have 16777216 elements"),
    "nothing in several huge axes": (array(shape=[0, 2**31, 2**31], data=b""), "may have 16777216 elements"),
    "array with another key": (array(more=1), "map may hold __ndarray__, data, dtype, shape; got b'more'"),
    "scalar with another key": (
        msgpack.packb({b"__npgeneric__": True, b"data": 1, b"dtype": "|u1", b"shape": []}),
        "map may hold __npgeneric__, data, dtype",
    ),
    "key given twice": (b"\x82\xa1a\x01\xa1a\x02", "every key once; got 'a' again"),
    "array's key given twice": (
        msgpack.packb({b"__ndarray__": True})[:-1].replace(b"\x81", b"\x82")
        + b"\xc3"
        + msgpack.packb(b"__ndarray__")
        + b"\xc3",
        "every key once",
    ),
    "map as key": (b"\x81\x80\x01", "frame|keys"),
    "negative size": (array(shape=[-1, 12]), "list of sizes"),
    "fractional size": (array(shape=[12.0]), "list of sizes"),
    "boolean size": (array(shape=[True] * 2), "list of sizes"),
    "shape is a text": (array(shape="12"), "list of sizes"),
    "too many axes": (array(shape=[1] * 5 + [12]), "may have 5 axes; got 6"),
    "too few bytes": (array(data=b"\0" * 11), "needs other bytes than the 11"),
    "data is a text": (array(data="x" * 12), "data must be bytes; got str"),
    "scalar of text": (msgpack.packb({b"__npgeneric__": True, b"data": "1", b"dtype": "|u1"}), "must be a number"),
    "scalar too large": (msgpack.packb({b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"}), "must fit"),
    "deep lists": (b"\x91" * 10_000 + b"\xc0", "nested at most 8 deep"),
    "deep maps": (b"\x81\xa1a" * 10_000 + b"\xc0", "nested at most 8 deep"),
    "many objects": (msgpack.packb([[[]] * 2000] * 3), "at most 4096 objects"),
    "list with a lie": (b"\xdd\xff\xff\xff\xff", "ends in the middle"),
    "map with a lie": (b"\xdf\xff\xff\xff\xff", "ends in the middle"),
    "bytes with a lie": (b"\xc6\xff\xff\xff\xff", "ends in the middle"),
    "extension type": (msgpack.packb(msgpack.ExtType(4, b"x")), "no extension types"),
    "timestamp": (msgpack.packb(msgpack.Timestamp(1, 1)), "no extension types"),
    "unused byte": (b"\xc1", "no extension types"),
    "pickle": (pickle.dumps({"a": 1}), "frame"),
    "nothing": (b"", "ends in the middle"),
    "two messages": (b"\xc0\xc0", "1 bytes follow"),
    "number as key": (msgpack.packb({1: 2}), "must be msgpack"),
    "bytes as key": (msgpack.packb({b"a": 2}), "keys must be texts"),
    "bad utf-8": (b"\xa2\xff\xfe", "must be msgpack"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_forbids_is_refused_in_a_sentence(name):
    frame, said = REFUSED[name]
    with pytest.raises(WireError, match=said) as caught:
        unpack(frame)
    assert len(str(caught.value)) < 400


def test_a_frame_over_the_size_limit_is_not_looked_at():
    with pytest.raises(WireError, match="at most 100 bytes; got 101"):
        unpack(b"\xc1" * 101, Limits(size=100))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(frame):
    try:
        unpack(frame)
    except WireError:
        return
    require_bounded(frame)


leaf = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=40)
tree = st.recursive(
    leaf, lambda x: st.lists(x, max_size=20) | st.dictionaries(st.text(), x, max_size=20), max_leaves=40
)


@settings(max_examples=60, deadline=None)
@given(tree)
def test_the_walk_lets_through_whatever_msgpack_writes_within_the_limits(message):
    """The oracle is msgpack itself: the walk must know every header that it can write."""
    assert unpack(pack(message), Limits(depth=100)) == message


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_frame_cut_short_is_refused(data):
    frame = pack(MESSAGE)
    with pytest.raises(WireError, match="ends in the middle"):
        unpack(frame[: data.draw(st.integers(0, len(frame) - 1))])


def test_what_cannot_be_sent_is_named():
    with pytest.raises(WireError, match=r"got dtype \|O"):
        pack({"a": np.array([object()])})
    with pytest.raises(WireError, match="got set"):
        pack({"a": {1}})
