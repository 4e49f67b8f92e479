"""The worker codec under any input: round trip, any cut of the stream, and garbage."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker.blocks import BadFrame, BlockReader
from wakeq.protocol.wire.worker.codec import (
    Ack,
    Bad,
    Command,
    CommandBase,
    Fet,
    Followup,
    Item,
    LineReader,
    LineTooLong,
    Msg,
    Nack,
    Nok,
    Ok,
    Okack,
    Pub,
    Reply,
    body_of,
    bytes_of,
    decode,
    decode_frames,
    decode_replies,
    encode,
    encode_commands,
    encode_frames,
    text_of,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
UIDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=18)
INT64 = st.integers(-(2**63), 2**63 - 1)
CMD_IDS = st.one_of(
    TEXTS,
    INT64,
    st.booleans(),
    st.none(),
    st.just(msgspec.UNSET),
    st.floats(allow_nan=False, allow_infinity=False),
)
HEADERS = st.one_of(st.none(), st.dictionaries(TEXTS, TEXTS, max_size=3))
ITEMS = st.one_of(TEXTS, st.builds(Item, message=TEXTS, delay=st.one_of(st.none(), st.integers(0, 31536000))))

PUBS = st.builds(
    Pub, NAMES, TEXTS, timeout=st.one_of(st.none(), st.integers(5, 31536000)), delay=st.integers(0, 31536000),
    expires=st.integers(0, 31536000), priority=INT64, headers=HEADERS, cmd_id=CMD_IDS,
)  # fmt: skip
BATCHES = st.builds(Pub, NAMES, messages=st.lists(ITEMS, min_size=1, max_size=4), cmd_id=CMD_IDS)
FETS = st.builds(Fet, NAMES, st.one_of(st.none(), st.integers(1, 1000)), st.integers(0, 3600), cmd_id=CMD_IDS)
ACKS = st.builds(
    Ack, NAMES, UIDS, cmd_id=CMD_IDS,
    publish=st.one_of(st.none(), st.lists(st.builds(Followup, NAMES, TEXTS), min_size=1, max_size=2)),
)  # fmt: skip
NACKS = st.builds(
    Nack,
    NAMES,
    uids=st.lists(UIDS, min_size=1, max_size=3),
    error=st.one_of(st.none(), TEXTS),
    failed=st.booleans(),
)
COMMANDS = st.one_of(PUBS, BATCHES, FETS, ACKS, NACKS)

REPLIES = st.one_of(
    st.builds(Ok, NAMES, UIDS, cmd_id=CMD_IDS),
    st.builds(Okack, uid=UIDS, qname=NAMES, known=st.booleans(), cmd_id=CMD_IDS),
    st.builds(Msg, NAMES, UIDS, st.integers(0, 2**31), TEXTS, priority=INT64, headers=HEADERS, cmd_id=CMD_IDS),
    st.builds(Nok, st.just("BUSY"), TEXTS, cmd_id=CMD_IDS),
)

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["qname", "message", "msg", "messages", "delay", "timeout", "expires", "priority", "headers", "enc",
     "count",
     "wait", "uid", "uids", "lease", "leases", "publish", "cmd_id", "retry", "id", "n", "session", "state",
     "error"]
)  # fmt: skip
KINDS = st.sampled_from(["PUB", "FET", "ACK", "NACK", "TOUCH", "CREATE", "UPDATE", "PEEK", "HELLO", "STATS", "?"])
NEARLY = st.builds(
    lambda kind, fields: json.dumps({"cmd": kind, **fields}).encode(),
    KINDS,
    st.dictionaries(FIELDS, st.one_of(JSON, NAMES, st.lists(st.dictionaries(FIELDS, JSON, max_size=3)))),
)


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(wire), *(place % (len(wire) + 1) for place in places)})
    return [wire[start:end] for start, end in pairwise(edges)]


def seen(commands: list[Command | Bad]) -> list[Any]:
    """Commands, and refusals by what a client would be told."""
    return [(c.error.code, str(c.error), c.cmd_id) if isinstance(c, Bad) else c for c in commands]


@given(st.lists(COMMANDS, max_size=8))
def test_commands_are_decoded_as_they_were_encoded(commands: list[Command]) -> None:
    assert decode(encode_commands(commands)) == commands


@given(st.lists(REPLIES, max_size=8))
def test_replies_are_decoded_as_they_were_encoded(replies: list[Reply]) -> None:
    wire = encode(replies)

    assert decode_replies(wire) == replies
    assert b"".join(frame + b"\n" for frame in encode_frames(replies)) == wire


@given(st.binary(max_size=60))
def test_body_is_decoded_as_it_was_encoded(body: bytes) -> None:
    msg, enc = text_of(body)

    (command,) = decode(encode_commands([Pub("q", msg, enc=enc)]))
    (reply,) = decode_replies(encode([Msg("q", "u", 0, msg, enc)]))

    assert isinstance(command, Pub)
    assert isinstance(reply, Msg)
    assert body_of(command) == bytes_of(reply) == body


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(
    lines=st.lists(st.one_of(COMMANDS.map(lambda c: encode_commands([c])[:-1]), NEARLY, st.just(b"x"), st.just(b""))),
    places=st.lists(st.integers(0, 10_000), max_size=6),
)
def test_stream_cut_anywhere_gives_the_same_commands(lines: list[bytes], places: list[int]) -> None:
    wire = b"".join(line + b"\n" for line in lines)
    reader = LineReader(100_000)

    got: list[Any] = []
    for piece in cut(wire, places):
        got += seen(decode(reader.receive(piece)))

    assert got == seen(decode(wire))


@given(wire=st.binary(max_size=200), places=st.lists(st.integers(0, 200), max_size=4))
def test_garbage_is_refused_and_raises_nothing_else(wire: bytes, places: list[int]) -> None:
    reader = BlockReader(50)  # what begins like a frame and is none ends here, and never comes to the codec

    with suppress(LineTooLong, BadFrame):
        for piece in cut(wire, places):
            for command in decode(reader.receive(piece)):
                assert isinstance(command, Bad | CommandBase)  # garbage may happen to be a command


@pytest.mark.long
@settings(max_examples=examples(400))
@given(text=NEARLY)
def test_damaged_command_is_obeyed_or_refused_in_words(text: bytes) -> None:
    (together,) = seen(decode(text + b"\n"))
    (framed,) = seen(decode_frames([text]))

    assert together == framed
    if isinstance(together, tuple):
        assert "`" not in together[1]


@given(st.lists(st.one_of(st.sampled_from([b"[", b"{", b"]", b"}", b'"', b",", b":", b"\n", b"1", b'"a"']))))
def test_brackets_of_all_kinds_never_raise(parts: list[bytes]) -> None:
    decode(b"".join(parts) + b"\n")


@given(st.binary(max_size=80))
def test_client_decoder_raises_only_our_own_errors(lines: bytes) -> None:
    with suppress(WakeqError):
        decode_replies(lines)
