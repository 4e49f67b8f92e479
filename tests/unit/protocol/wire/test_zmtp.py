"""The PUSH end of ZeroMQ: golden bytes, any cut of the stream, and peers that are none."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.zmtp import COMMAND_BYTES_MAX, GREETING, BadPeer, Pusher, encode

# What libzmq 4.3.5 sent as a PULL socket: its greeting (version 3.1) and READY.
PEER_GREETING = bytes.fromhex("ff00000000000000017f" + "0301" + "4e554c4c".ljust(40, "0") + "00" * 32)
PEER_READY = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL"
OUR_READY = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
SAID_BYTES_MAX = len(b"\4\0\4PONG") + 16  # in answer to one read, however long


def opened() -> Pusher:
    pusher = Pusher()
    pusher.receive(PEER_GREETING + PEER_READY)
    pusher.bytes_to_send()
    return pusher


def command(name: bytes, data: bytes = b"") -> bytes:
    body = bytes((len(name),)) + name + data
    return bytes((4, len(body))) + body


def test_greeting_is_that_of_zmtp_3_without_security() -> None:
    assert GREETING.hex() == "ff00000000000000017f" + "0300" + "4e554c4c".ljust(40, "0") + "00" * 32


def test_connection_is_open_when_both_sides_are_ready() -> None:
    pusher = Pusher()

    pusher.receive(PEER_GREETING)
    assert (pusher.bytes_to_send(), pusher.is_open) == (OUR_READY, False)
    pusher.receive(PEER_READY)

    assert (pusher.bytes_to_send(), pusher.is_open) == (b"", True)


@given(st.lists(st.integers(0, 200), max_size=8))
def test_peers_words_may_be_cut_anywhere(cuts: list[int]) -> None:
    stream = PEER_GREETING + PEER_READY + command(b"PING", b"\0\1context") + command(b"NEWS", b"x")
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pusher, said = Pusher(), b""

    for start, end in pairwise(places):
        pusher.receive(stream[start:end])
        said += pusher.bytes_to_send()

    assert pusher.is_open
    assert said == OUR_READY + command(b"PONG", b"context")


def test_message_is_frames_with_their_sizes() -> None:
    assert encode([b"tag", b"x" * 255]) == b"\x01\x03tag" + b"\x00\xff" + b"x" * 255
    assert encode([b"t", b"x" * 256]) == b"\x01\x01t" + b"\x02" + (256).to_bytes(8, "big") + b"x" * 256


def test_long_command_is_read_and_too_long_a_one_refused_before_it_is_here() -> None:
    pusher = opened()
    body = b"\x04PING\0\0" + b"c" * 300

    pusher.receive(b"\x06" + len(body).to_bytes(8, "big") + body)

    assert pusher.bytes_to_send() == command(b"PONG", b"c" * 16)
    with pytest.raises(BadPeer, match=str(COMMAND_BYTES_MAX)):
        pusher.receive(b"\x06" + (1 << 40).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "wrong port"),
        (b"\xff" + bytes(9), "wrong port"),
        (PEER_GREETING[:10] + b"\x01", "before version 4"),
        (PEER_GREETING.replace(b"NULL\0", b"CURVE"), "mechanism"),
        (PEER_GREETING + PEER_READY.replace(b"PULL", b"PUSH"), "not a PULL socket"),
        (PEER_GREETING + command(b"READY"), "not a PULL socket"),
        (PEER_GREETING + command(b"READY", b"\x0bSocket-Type\x00\x00\x01\x00PULL"), "metadata is incomplete"),
        (PEER_GREETING + command(b"READY", b"\xff"), "metadata is incomplete"),
        (PEER_GREETING + command(b"ERROR", b"\x07no such"), "refuses this broker"),
        (PEER_GREETING + command(b"PING", b"\0\0"), "in place of READY"),
        (PEER_GREETING + b"\x04\x00", "in place of READY"),
        (PEER_GREETING + PEER_READY + b"\x00\x01x", "sends messages"),
        (PEER_GREETING + PEER_READY + b"\x05\x01x", "not a ZeroMQ frame"),
        (PEER_GREETING + PEER_READY + b"\x0c\x01x", "not a ZeroMQ frame"),
        (PEER_GREETING + b"\x04\x06\x06READY", "middle of its name"),
        (PEER_GREETING + PEER_READY + command(b"PING", b"\0\0") * 1_001, "nothing but pings"),
    ],
)
def test_peer_that_is_no_component_is_refused_with_the_reason(said: bytes, why: str) -> None:
    with pytest.raises(BadPeer, match=why):
        Pusher().receive(said)


@given(st.binary(max_size=200), st.sampled_from([b"", PEER_GREETING, PEER_GREETING + PEER_READY]))
def test_garbage_is_refused_or_nothing(garbage: bytes, before: bytes) -> None:
    pusher = Pusher()
    try:
        pusher.receive(before + garbage)
    except WakeqError:
        return

    assert len(pusher.bytes_to_send()) <= len(OUR_READY) + SAID_BYTES_MAX


def test_last_ping_of_one_read_is_answered() -> None:
    pusher = opened()

    pusher.receive(command(b"PING", b"\0\1first") + command(b"PING", b"\0\1last") * 900)

    assert pusher.bytes_to_send() == command(b"PONG", b"last")
    assert pusher.bytes_to_send() == b""
