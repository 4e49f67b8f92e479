"""MessagePack of strangers: exact where it is good, a ValueError within bounds where it is not."""

import struct
import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.wire import messagepack
from wakeq.protocol.wire.messagepack import decode, encode

Ext = msgspec.msgpack.Ext

TIMESTAMPS = st.builds(msgpack.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.binary(max_size=9),
    TIMESTAMPS,
)
EXTENSIONS = st.builds(Ext, st.integers(-128, 127).filter(lambda code: code != -1), st.binary(max_size=20))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | EXTENSIONS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(SCALARS, inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_value_is_decoded_as_it_was_encoded(value: Any) -> None:
    assert decode(encode(value)) == value


@given(st.dictionaries(SCALARS, SCALARS | st.lists(SCALARS, max_size=3), max_size=5))
def test_value_of_a_component_is_read_as_its_own_library_wrote_it(value: Any) -> None:
    assert decode(msgpack.packb(value)) == value
    assert msgpack.unpackb(encode(value), strict_map_key=False) == value


@pytest.mark.parametrize(
    ("packed", "seconds", "nanoseconds"),
    [
        ("d6ff00000001", 1, 0),
        ("d7ffee6b27fc00000001", 1, 999_999_999),
        ("d7ff1d6f345400000001", 1, 123_456_789),
        ("c70cff00000001ffffffffffffffff", -1, 1),
        ("c70cff075bcd154000000000000000", 2**62, 123_456_789),  # no datetime goes so far
    ],
)
def test_timestamp_keeps_its_nanoseconds(packed: str, seconds: int, nanoseconds: int) -> None:
    found = decode(bytes.fromhex(packed))

    assert found == msgpack.Timestamp(seconds, nanoseconds)
    assert encode(found).hex() == packed


def test_extension_keeps_its_type_and_bytes_also_of_a_reserved_type() -> None:
    found = decode(bytes.fromhex("93d405aac70380010203c7007f"))

    assert [(one.code, one.data) for one in found] == [(5, b"\xaa"), (-128, b"\1\2\3"), (127, b"")]


def test_text_and_bytes_stay_apart() -> None:
    assert decode(b"\x92\xa1a\xc4\x01a") == ["a", b"a"]


def test_map_keys_may_be_anything_that_can_be_a_key() -> None:
    keys = (1, -1.5, None, True, b"x", "x", msgpack.Timestamp(1, 5))

    assert decode(b"\x87" + b"".join(msgpack.packb(key) + b"\x01" for key in keys)) == dict.fromkeys(keys, 1)
    assert decode(bytes.fromhex("8192010203")) == {(1, 2): 3}


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x01\x01",  # something behind it
        b"\xa1\xff",  # a text that is not UTF-8
        b"\x81\x80\x01",  # a map as a key
        b"\x81\xd4\x05\xaa\x01",  # an extension as a key
        b"\xc7\x05\xff12345",  # a timestamp of no size that it may have
        b"\xd7\xff" + struct.pack("!Q", 10**9 << 34),  # a second of nanoseconds
        b"\x91" * 100_000 + b"\x01",
        b"\x81\x01" * 100_000 + b"\x01",
    ],
)
def test_bad_value_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError):
        decode(packed)


@given(st.binary(max_size=60) | VALUES.map(encode).flatmap(lambda packed: st.sampled_from([packed[:-1], packed[1:]])))
def test_arbitrary_bytes_are_decoded_or_raise_a_value_error(packed: bytes) -> None:
    try:
        value = decode(packed)
    except ValueError:
        return
    encode(value)


@pytest.mark.parametrize(
    "packed",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x05",
        b"\xdd\x00\x00\xff\xff" * 100 + bytes(0xFFFF),  # each claims no more than there are bytes, all of them do
    ],
    ids=["array", "map", "text", "bytes", "extension", "nested"],
)
def test_claimed_length_takes_no_memory(packed: bytes) -> None:
    decode(b"\x90")  # what the first call loads is not counted
    tracemalloc.start()

    with pytest.raises(ValueError):
        decode(packed)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("item", [b"\x80", b"\x90", b"\x01"], ids=["maps", "arrays", "numbers"])
def test_value_of_too_many_parts_is_refused(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messagepack, "NODES_MAX", 1000)
    half = b"\xdc" + (400).to_bytes(2, "big") + item * 400

    assert decode(b"\x91" + half) == [[decode(item)] * 400]
    with pytest.raises(ValueError, match="1000"):
        decode(b"\x93" + half * 3)


def test_map_of_many_keys_is_read_if_they_are_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messagepack, "ODD_KEYS_MAX", 10)
    texts = {str(number): number for number in range(11)}

    assert decode(encode(texts)) == texts
    assert len(decode(encode({number: number for number in range(10)}))) == 10
    with pytest.raises(ValueError, match="at most 10 are read"):
        decode(encode({number: number for number in range(11)}))
