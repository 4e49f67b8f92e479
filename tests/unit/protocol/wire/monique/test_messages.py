"""Messages: nine fields, strict when written, both forms of ids when read, and what components survive."""

import random
import string

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wakeq.protocol.wire.monique.errors import BadEncoding, BadMessage, ErrorCode, MoniqueError
from wakeq.protocol.wire.monique.messages import (
    ID_CHARS,
    MESSAGE_BYTES_MAX,
    Message,
    check_for_components,
    decode_message,
    encode_message,
    error_data,
    expires_after_ms,
    ids_as_bytes,
    make_id,
    tag_of,
)

NAMES = ("created_at", "creator", "data", "encoding", "expires_at", "id", "pid", "spec", "type")
MESSAGE = Message(
    created_at_ms=1528138732079,
    creator="0000-tester",
    data=b'{"answer":1.2}',
    encoding="JSON",
    expires_at_ms=0,
    id="a" * 40,
    pid="",
    spec="example_clock",
    type="config",
)
TEXTS = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=20)
MOMENTS = st.integers(0, 2**64 - 1)
MESSAGES = st.builds(
    Message,
    created_at_ms=MOMENTS,
    creator=TEXTS,
    data=st.binary(max_size=60),
    encoding=st.sampled_from(["JSON", "MessagePack"]),
    expires_at_ms=MOMENTS,
    id=TEXTS.filter(bool),
    pid=TEXTS,
    spec=st.from_regex(r"[a-z0-9-]{1,9}(_[a-z0-9-]{1,9})?", fullmatch=True),
    type=st.sampled_from(["config", "result", "error", "data"]),
)


def fields_of(message: Message) -> dict[str, object]:
    """Return the map that is packed."""
    fields: dict[str, object] = msgpack.unpackb(encode_message(message))
    return fields


@given(MESSAGES, st.randoms())
def test_message_survives_in_any_order_of_its_keys_and_with_unknown_ones(
    message: Message, chance: random.Random
) -> None:
    pairs = [*fields_of(message).items(), ("later", {"a": [1, None]})]
    chance.shuffle(pairs)

    assert decode_message(msgpack.packb(dict(pairs))) == message
    assert decode_message(encode_message(message)) == message


@given(MESSAGES)
def test_keys_are_written_in_the_order_of_the_printed_examples(message: Message) -> None:
    assert tuple(fields_of(message)) == NAMES


@pytest.mark.parametrize("kinds", [("id",), ("pid",), ("id", "pid")], ids="-".join)
def test_ids_as_bytes_are_read_as_text_each_for_itself(kinds: tuple[str, ...]) -> None:
    fields = fields_of(replace(MESSAGE, pid="b" * 28))
    for name in kinds:
        fields[name] = str(fields[name]).encode()

    packed = msgpack.packb(fields)

    assert decode_message(packed) == replace(MESSAGE, pid="b" * 28)
    assert ids_as_bytes(packed) == list(kinds)
    check_for_components(packed)
    with pytest.raises(BadMessage, match="unknown field `later`"):
        check_for_components(msgpack.packb(fields | {"later": 1}))


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_a_message_are_all_required(name: str) -> None:
    fields = fields_of(MESSAGE)
    del fields[name]

    for read in (decode_message, check_for_components):
        with pytest.raises(BadMessage, match=f"missing required field `{name}`") as refused:
            read(msgpack.packb(fields))
        assert refused.value.number == 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("created_at", "1528138732079"),
        ("created_at", 1.5),
        ("creator", b"bytes"),
        ("data", "text"),
        ("data", {"a": 1}),
        ("encoding", "json"),
        ("encoding", "x" * 5000),
        ("expires_at", None),
        ("id", 5),
        ("id", b"\xff"),
        ("pid", None),
        ("spec", b"example_clock"),
        ("type", "Config"),
        ("type", "*"),
    ],
)
def test_field_of_another_kind_is_refused_by_its_name(name: str, value: object) -> None:
    packed = msgpack.packb(fields_of(MESSAGE) | {name: value})

    for read in (decode_message, check_for_components):
        with pytest.raises(MoniqueError) as refused:
            read(packed)
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize("packed", [b"", b"\x09", b"\x89", b"\xc1", b"\x93\x01\x02\x03", b"\x91" * 100_000, b"{}"])
def test_message_that_is_no_packed_map_is_refused(packed: bytes) -> None:
    for read in (decode_message, check_for_components):
        with pytest.raises((BadMessage, BadEncoding)):
            read(packed)


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), st.binary(max_size=3))
def test_message_that_passes_the_check_is_unpacked_by_a_python_component(
    message: Message, changes: list[tuple[int, int]], rest: bytes
) -> None:
    packed = bytearray(encode_message(message) + rest)
    for place, byte in changes:
        packed[place % len(packed)] = byte
    try:
        check_for_components(bytes(packed))
    except MoniqueError:
        return

    unpacked = msgpack.unpackb(bytes(packed), raw=False)  # as the component does it

    assert sorted(unpacked) == sorted(NAMES)
    assert all(isinstance(unpacked[name], str | bytes) for name in ("id", "pid"))
    assert isinstance(unpacked["data"], bytes)


@pytest.mark.parametrize("extra", [{1: 2}, {"later": b""}, {"later": "\udc00"}])
def test_message_of_more_than_nine_fields_is_kept_from_components(extra: dict[object, object]) -> None:
    packed = msgpack.packb(fields_of(MESSAGE) | extra, unicode_errors="surrogatepass")

    with pytest.raises((BadMessage, BadEncoding)):
        check_for_components(packed)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"spec": "Example_clock"}, "spec"),
        ({"spec": "example_clock_radio"}, "spec"),
        ({"spec": ""}, "spec"),
        ({"spec": "a_b\n"}, "spec"),
        ({"spec": "*"}, "spec"),
        ({"type": "Config"}, "type"),
        ({"encoding": "json"}, "encoding"),
        ({"id": ""}, "id"),
        ({"created_at_ms": -1}, "created_at"),
        ({"expires_at_ms": 2**64}, "expires_at"),
        ({"creator": "a:b"}, "creator"),
        ({"id": "a:b"}, "id"),
        ({"pid": ":"}, "pid"),
        ({"creator": "x" * 5000}, "creator"),
        ({"creator": "\udc80"}, "creator"),
    ],
)
def test_message_that_others_could_not_take_is_not_written(changed: dict[str, object], name: str) -> None:
    with pytest.raises(BadMessage, match=name):
        encode_message(replace(MESSAGE, **changed))


def test_message_beyond_the_limit_is_not_written() -> None:
    room = MESSAGE_BYTES_MAX - len(encode_message(replace(MESSAGE, data=bytes(70_000)))) + 70_000

    assert len(encode_message(replace(MESSAGE, data=bytes(room)))) == MESSAGE_BYTES_MAX
    with pytest.raises(BadMessage, match=f"{MESSAGE_BYTES_MAX + 1} bytes"):
        encode_message(replace(MESSAGE, data=bytes(room + 1)))


def test_tag_of_a_message() -> None:
    assert tag_of(MESSAGE).text == f"config:example_clock:{'a' * 40}::0000-tester"


def test_fresh_id_has_forty_letters_and_digits() -> None:
    drawn = make_id(random.Random(7).randrange)

    assert len(drawn) == ID_CHARS
    assert set(drawn) <= set(string.ascii_letters + string.digits)
    assert drawn != make_id(random.Random(8).randrange)


@pytest.mark.parametrize(
    ("expires_at_ms", "left_ms"), [(0, 0), (1001, 1), (5000, 4000), (1000, None), (999, None), (-1, None)]
)
def test_remaining_time_of_a_message_counts_from_now(expires_at_ms: int, left_ms: int | None) -> None:
    assert expires_after_ms(replace(MESSAGE, expires_at_ms=expires_at_ms), now_ms=1000) == left_ms


def test_data_of_an_error() -> None:
    assert error_data(ErrorCode.INPUT, 'no "x"') == b'{"code":502,"message":"no \\"x\\""}'


def test_codes_of_the_protocol() -> None:
    assert [int(code) for code in ErrorCode] == [100, 101, 200, 201, 300, 301, 500, 501, 502]
