"""Transfers between components: two frames, unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wakeq.protocol.wire.monique.errors import BadMessage, BadTag, BadTransfer, MoniqueError
from wakeq.protocol.wire.monique.messages import Message, decode_message
from wakeq.protocol.wire.monique.transfers import read_transfer, transfer_of

MESSAGE = Message(
    created_at_ms=1,
    creator="c",
    data=b"",
    encoding="JSON",
    expires_at_ms=0,
    id="i",
    pid="",
    spec="a_b",
    type="data",
)


@given(st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=20), st.binary(max_size=60))
def test_transfer_is_sent_on_unchanged_whatever_is_in_its_message(creator: str, message: bytes) -> None:
    frames = f"data:a_b:i::{creator}".encode(), message

    assert read_transfer(frames).frames == frames


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_garbage_is_a_transfer_or_refused(frames: list[bytes]) -> None:
    try:
        transfer = read_transfer(frames)
    except MoniqueError:
        return

    assert list(transfer.frames) == frames


@pytest.mark.parametrize("count", [0, 1, 3])
def test_transfer_of_other_than_two_frames_is_refused(count: int) -> None:
    with pytest.raises(BadTransfer, match=f"a transfer of {count} frames") as refused:
        read_transfer([b"data:a_b:i::c"] * count)

    assert refused.value.number == 200


def test_message_of_just_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    assert read_transfer([b"data:a_b:i::c", b"abcd"], message_bytes_max=4).message == b"abcd"
    with pytest.raises(BadTransfer, match="a message of 5 bytes, the limit is 4") as refused:
        read_transfer([b"data:a_b:i::c", b"abcde"], message_bytes_max=4)

    assert refused.value.number == 200


def test_tag_that_is_wrapped_in_messagepack_is_refused() -> None:
    with pytest.raises(BadTag, match="it is sent as text, not as MessagePack"):
        read_transfer([b"\xc4\x0ddata:a_b:i::c", b""])


def test_message_that_is_sent_from_here_has_its_own_tag() -> None:
    transfer = transfer_of(MESSAGE)

    assert transfer.tag.text == "data:a_b:i::c"
    assert decode_message(transfer.message) == MESSAGE


def test_message_that_cannot_be_sent_makes_no_transfer() -> None:
    with pytest.raises(BadMessage):
        transfer_of(replace(MESSAGE, creator="a:b"))
