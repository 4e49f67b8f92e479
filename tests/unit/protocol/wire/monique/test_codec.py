"""Frames of MoniQue: round trip, refusals in words, garbage, and that no input grows in memory."""

import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.steps import peak_bytes, steps
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.monique.codec import decode, decode_replies, encode
from wakeq.protocol.wire.monique.commands import (
    Bad,
    Command,
    Error,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Reply,
    Subscribe,
    Subscribed,
    Tagged,
    Unsubscribe,
    Unsubscribed,
)
from wakeq.protocol.wire.monique.errors import BadFrame, BadTag, MoniqueError
from wakeq.protocol.wire.monique.exchange import SUBSCRIPTION_CHARS_MAX, SUBSCRIPTIONS_MAX, Exchange, Subscription
from wakeq.protocol.wire.monique.messages import check_for_components, decode_message
from wakeq.protocol.wire.monique.tags import read_tag

NUMBERS = st.integers(-(2**63), 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HALVES = st.sampled_from(["*", "example_clock"]) | TEXTS
SUBSCRIPTIONS = st.lists(st.builds(Subscription, HALVES, HALVES), max_size=4).map(tuple)
PACKED = st.binary(max_size=60)
FORMS = TEXTS | st.binary(max_size=20)
TAGS = st.builds("data:{}:{}::{}".format, *[st.text("abc-", max_size=9)] * 3)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Ping, NUMBERS),
    st.builds(Subscribe, SUBSCRIPTIONS),
    st.builds(Unsubscribe, SUBSCRIPTIONS),
    st.builds(PushToMq, st.builds(Tagged, PACKED, FORMS)),
)
REPLIES: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Pong, NUMBERS),
    st.builds(Subscribed, SUBSCRIPTIONS),
    st.builds(Unsubscribed, SUBSCRIPTIONS),
    st.builds(PushedToMq, FORMS),
    st.builds(PushedFromMq, st.builds(Tagged, PACKED, TEXTS)),
    st.builds(Error, TEXTS),
)
KB64 = 64 * 1024
GROWTH_MAX = 32  # times the input, of all that is made of it
ROOM_BYTES = 4096  # for an error, whatever the input


def frame(command: str, data: bytes) -> bytes:
    """Return a frame around packed data."""
    return b"".join((b"\x82\xa7command", msgpack.packb(command), b"\xa4data", data))


def refusal(raw: bytes) -> MoniqueError:
    (bad,) = decode([raw])
    assert isinstance(bad, Bad), f"was not refused: {bad}"
    return bad.error


# --- round trip ---


@given(st.lists(COMMANDS, max_size=5))
def test_commands_survive(commands: list[Command]) -> None:
    assert decode(encode(commands)) == commands


@given(st.lists(REPLIES, max_size=5))
def test_replies_survive(replies: list[Reply]) -> None:
    assert decode_replies(encode(replies)) == replies


@given(COMMANDS, st.permutations(["command", "data", "later", "more"]))
def test_order_of_keys_and_unknown_ones_mean_nothing(command: Command, order: list[str]) -> None:
    fields = msgpack.unpackb(encode([command])[0]) | {"later": [{"a": None}], "more": 1.5}

    assert decode([msgpack.packb({name: fields[name] for name in order})]) == [command]


def test_bad_frame_stands_in_its_place_and_the_others_do_not_suffer() -> None:
    first, bad, last = decode([*encode([Ping(1)]), b"\xc1", *encode([Ping(2)])])

    assert (first, last) == (Ping(1), Ping(2))
    assert isinstance(bad, Bad)


def test_form_of_a_tag_is_kept() -> None:
    text, raw = decode([frame("push_to_mq", msgpack.packb({"tag": tag, "message": b"m"})) for tag in ("t", b"t")])

    assert text == PushToMq(Tagged(b"m", "t"))
    assert raw == PushToMq(Tagged(b"m", b"t"))
    assert text != raw


# --- refusals ---


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "unknown message: it is not MessagePack: Input data was truncated"),
        (b"\x82\xa7command", "unknown message: it is not MessagePack"),
        (encode([Ping(1)])[0] + b"\x00", "unknown message: it is not MessagePack: .*trailing characters"),
        (b"\x82\xa7command\xa1\xff\xa4data\x01", "unknown message: it is not MessagePack: 'utf-8' codec"),
        (b'{"command":"ping","data":1}', "unknown message: Expected `object`, got `int`; a frame is a MessagePack map"),
        (b"\x91\x01", "Expected `object`, got `array`; a frame is a MessagePack map of command and data"),
        (b"\x80", "unknown message: Object missing required field `command`"),
        (b"\x81\xa7command\xa4ping", "unknown message: Object missing required field `data`"),
        (b"\x82\x01\x02\xa4data\x01", "unknown message: Expected `str`, got `int` - at `key`"),
        (frame("ping", b"\xc3"), r"unknown message: data of ping: Expected `int`, got `bool`"),
        (frame("ping", b"\xcb" + bytes(8)), "unknown message: data of ping: Expected `int`, got `float`"),
        (frame("subscribe", b"\x80"), "unknown message: data of subscribe: Expected `array`, got `object`"),
        (frame("subscribe", b"\x91\x81\xa4spec\xa1a"), r"of subscribe: .*missing required field `type` - at `\$\[0\]`"),
        (frame("unsubscribe", b"\x91\x82\xa4spec\xa1a\xa4type\xc0"), "of unsubscribe: Expected `str`, got `None`"),
        (frame("push_to_mq", b"\x82\xa7message\xa1a\xa3tag\xa1b"), r"Expected `bytes`, got `str` - at `\$.message`"),
        (frame("push_to_mq", b"\x82\xa7message\xa1a\xa3tag\xc4\x01b"), r"Expected `bytes`, got `str` - at `\$.mess"),
        (frame("push_to_mq", b"\x81\xa3tag\xa1b"), "data of push_to_mq: Object missing required field `message`"),
        (
            frame("push_to_mq", b"\x82\xa7message\xc4\x00\xa3tag\x05"),
            "data of push_to_mq: the tag must be str, in UTF-8, or bin",
        ),
        (
            frame("push_to_mq", b"\x82\xa7message\xc4\x00\xa3tag\xa1\xff"),
            "data of push_to_mq: the tag must be str, in UTF-8, or bin",
        ),
    ],
)
def test_bad_frame_is_refused_in_words_that_begin_as_the_originals(raw: bytes, text: str) -> None:
    error = refusal(raw)

    assert str(error).startswith("unknown message: ")
    assert re.search(text, str(error))


def test_unknown_command_is_refused_in_the_originals_words() -> None:
    assert str(refusal(frame("hello" * 10_000, b"\x01"))) == "unknown message"


@pytest.mark.parametrize("command", ["pong", "subscribed", "unsubscribed", "pushed_to_mq", "pushed_from_mq"])
def test_command_of_the_other_direction_is_refused_in_the_originals_words(command: str) -> None:
    assert str(refusal(frame(command, b"\xc0"))) == f"<{command}> message could not be sent from the client"


def test_frame_of_just_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    ping = encode([Ping(1)])[0]

    assert decode([ping], frame_bytes_max=len(ping)) == [Ping(1)]
    (bad,) = decode([ping], frame_bytes_max=len(ping) - 1)
    assert isinstance(bad, Bad)
    assert str(bad.error).startswith(f"a frame of {len(ping)} bytes, the limit is {len(ping) - 1}")


@pytest.mark.parametrize("command", ["subscribe", "unsubscribe"])
def test_frame_holds_as_many_subscriptions_as_are_kept_and_not_one_more(command: str) -> None:
    def of(count: int) -> bytes:
        return frame(command, msgpack.packb([{"spec": "*", "type": "*"}] * count))

    assert not isinstance(decode([of(SUBSCRIPTIONS_MAX)])[0], Bad)
    assert f"array` of length <= {SUBSCRIPTIONS_MAX}" in str(refusal(of(SUBSCRIPTIONS_MAX + 1)))


def test_subscription_has_a_longest_text() -> None:
    def of(size: int) -> bytes:
        return frame("subscribe", msgpack.packb([{"spec": "a" * size, "type": "*"}]))

    assert not isinstance(decode([of(SUBSCRIPTION_CHARS_MAX)])[0], Bad)
    assert f"length <= {SUBSCRIPTION_CHARS_MAX}" in str(refusal(of(SUBSCRIPTION_CHARS_MAX + 1)))


# --- what a client reads ---


@given(TAGS, st.booleans())
def test_client_reads_an_old_servers_tag_wrapped_or_not(tag: str, wrapped: bool) -> None:
    raw: bytes = msgpack.packb(tag.encode()) if wrapped else tag.encode()

    (reply,) = decode_replies([frame("pushed_from_mq", msgpack.packb({"tag": raw, "message": b"m"}))])

    assert reply == PushedFromMq(Tagged(b"m", tag))


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x80", frame("ping", b"\x01"), b"\x81\xa5error\x01"])
def test_client_refuses_replies_that_no_server_sends(raw: bytes) -> None:
    with pytest.raises(BadFrame, match="the server sent what this client cannot read"):
        decode_replies([raw])


def test_client_refuses_a_pushed_tag_that_is_none() -> None:
    with pytest.raises(BadTag):
        decode_replies([frame("pushed_from_mq", msgpack.packb({"tag": b"nothing", "message": b"m"}))])


# --- garbage and bombs ---


@settings(max_examples=examples(300))
@given(
    COMMANDS | REPLIES,
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
    st.binary(max_size=9),
)
def test_garbage_is_a_frame_or_a_stated_error(
    begun: Any, changes: list[tuple[int, int]], cut: int, rest: bytes
) -> None:
    raw = bytearray(encode([begun])[0][:cut] + rest)
    for place, byte in changes:
        if place < len(raw):
            raw[place] = byte

    (command,) = decode([bytes(raw)])
    if isinstance(command, Bad):
        assert not command.error.closes
        assert 0 < len(str(command.error)) < 300
    with contextlib.suppress(BadFrame, BadTag):
        decode_replies([bytes(raw)])


@given(COMMANDS, st.floats(0, 1, exclude_max=True))
def test_frame_that_is_cut_off_is_refused(command: Command, share: float) -> None:
    (whole,) = encode([command])

    assert isinstance(decode([whole[: int(share * len(whole))]])[0], Bad)


def filled(head: bytes, unit: bytes, tail: bytes = b"") -> bytes:
    """Return an input of 64 KiB, most of it one unit again and again."""
    return head + unit * ((KB64 - len(head) - len(tail)) // len(unit)) + tail


def array_of(unit: bytes) -> bytes:
    count = KB64 // len(unit)
    return b"\xdd" + count.to_bytes(4, "big") + unit * count


BOMBS = {
    "a claim of four thousand million subscriptions": frame("subscribe", b"\xdd\xff\xff\xff\xff"),
    "a claim of four thousand million keys": b"\xdf\xff\xff\xff\xff",
    "a claim of four gigabytes of message": frame("push_to_mq", b"\x82\xa7message\xc6\xff\xff\xff\xff"),
    "a claim of four gigabytes of tag": frame("push_to_mq", b"\x82\xa3tag\xdb\xff\xff\xff\xff"),
    "empty maps as subscriptions": frame("subscribe", array_of(b"\x80")),
    "empty maps as a time": frame("ping", array_of(b"\x80")),
    "empty maps as a tag": frame("push_to_mq", b"\x82\xa7message\xc4\x00\xa3tag" + array_of(b"\x80")),
    "empty maps in what is not known": b"\x83\xa1x" + array_of(b"\x80") + frame("ping", b"\x01")[1:],
    "numbers in what is not known": b"\x83\xa1x" + array_of(b"\x01") + frame("ping", b"\x01")[1:],
    "arrays in arrays": filled(b"", b"\x91"),
    "arrays in arrays as data": filled(b"\x82\xa7command\xa4ping\xa4data", b"\x91"),
    "arrays in arrays in what is not known": filled(b"\x83\xa1x", b"\x91", frame("ping", b"\x01")[1:]),
    "maps in maps": filled(b"", b"\x81\xa1a"),
    "the same key again and again": b"\xde\xff\xff" + b"\xa4data\x01" * 9000,
    "a long command": frame("x" * KB64, b"\x01"),
    "as many subscriptions as may be": frame(
        "subscribe", msgpack.packb([{"spec": f"é{n}", "type": "ъ"} for n in range(SUBSCRIPTIONS_MAX)])
    ),
    "more subscriptions than may be": frame("subscribe", array_of(b"\x82\xa4spec\xa2ab\xa4type\xa2cd")),
    "a message of 64 KiB": frame("push_to_mq", msgpack.packb({"message": bytes(KB64), "tag": "data:a:b::c"})),
    "a tag of colons": frame("push_to_mq", msgpack.packb({"message": b"", "tag": ":" * KB64})),
}


@pytest.mark.parametrize("raw", BOMBS.values(), ids=BOMBS)
def test_input_takes_at_most_32_times_its_size_in_memory(raw: bytes) -> None:
    def read_all() -> object:
        (command,) = decode([raw])
        return command, read_tag(command.data.tag) if isinstance(command, PushToMq) else None

    def survive(read: Callable[[], object]) -> object:
        try:
            return read()
        except WakeqError as error:
            return error

    readers: list[Callable[[], object]] = [
        read_all,
        lambda: decode_replies([raw]),
        lambda: decode_message(raw),
        lambda: check_for_components(raw),
    ]
    for reader in readers:
        survive(reader)  # what is made once, is made before it is measured

        assert peak_bytes(partial(survive, reader)) <= GROWTH_MAX * len(raw) + ROOM_BYTES


def test_subscriptions_take_at_most_32_times_their_frame_in_the_exchange() -> None:
    raw = frame("subscribe", msgpack.packb([{"spec": f"{n}", "type": "a"} for n in range(SUBSCRIPTIONS_MAX)]))
    exchange = Exchange[int]()

    def subscribe() -> None:
        (command,) = decode([raw])
        assert isinstance(command, Subscribe)
        exchange.subscribe(1, command.data)

    assert peak_bytes(subscribe) <= GROWTH_MAX * len(raw) + ROOM_BYTES


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_costs_a_few_steps_however_much_it_claims(name: str) -> None:
    assert steps(lambda: decode([BOMBS[name]])) < 100
