"""Blocks: columns survive the way to bytes and back, frames any cut of the stream, and garbage raises a WakeqError."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeq.protocol.errors import BadField, WakeqError
from wakeq.protocol.wire.lines import LineTooLong
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.blocks import BadFrame, BlockReader, Buffers, frame, pack

bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=6)
NAMES = ["body", "priority"]


def pub_block(some: list[bytes]) -> wire.PubBlock:
    columns: list[tuple[str, list[bytes] | list[int]]] = [("body", some), ("priority", list(range(len(some))))]
    return wire.PubBlock(qname="q", rows=len(some), columns=NAMES, block=pack(columns), cmd_id=7)


@given(bodies)
def test_columns_survive_the_way_to_bytes_and_back(some: list[bytes]) -> None:
    command = pub_block(some)

    buffers = Buffers(command.block, len(some), NAMES)

    assert len(command.block) % 8 == 0
    assert buffers.texts("body") == some
    assert list(buffers.numbers("priority")) == list(range(len(some)))
    assert buffers.texts("headers") == [b""] * len(some)


def test_block_is_laid_out_as_its_page_says() -> None:
    assert pack([("body", [b"ab", b"", b"c"]), ("priority", [-1, 2, 0])]).hex(" ", 8) == " ".join(
        ["0000000002000000", "0200000003000000", "6162630000000000", "ffffffffffffffff", "0200000000000000", "00" * 8]
    )
    assert frame(b"{}", b"\x00\n*") == b"*6\n{}\n\x00\n*"


@given(st.lists(st.one_of(st.just(None), bodies), max_size=5), st.integers(1, 40))
@settings(deadline=None)
def test_lines_and_frames_survive_any_cut_of_the_stream(some: list[list[bytes] | None], step: int) -> None:
    commands: list[wire.Command] = [wire.Ping(cmd_id=1) if one is None else pub_block(one) for one in some]
    stream = wire.encode_commands(commands)
    reader = BlockReader(1000)

    got: list[wire.Command | wire.Bad] = []
    for at in range(0, len(stream), step):
        got += wire.decode(reader.receive(stream[at : at + step]))

    assert got == commands
    assert not reader.waiting_bytes


@given(bodies)
def test_replies_with_blocks_reach_the_client(some: list[bytes]) -> None:
    block = wire.Block(qname="q", rows=len(some), columns=["body"], block=pack([("body", some)]), next=3, cmd_id=9)
    stream = wire.encode([wire.Pong(cmd_id=1), wire.Framed(block), wire.Pong(cmd_id=2)])  # type: ignore[list-item]

    assert wire.decode_replies(stream) == [wire.Pong(cmd_id=1), block, wire.Pong(cmd_id=2)]
    assert wire.decode_replies(wire.encode([block])) == [block]  # in JSON it is base64


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_garbage_raises_a_wakeq_error_or_nothing(garbage: bytes, block: bytes) -> None:
    with contextlib.suppress(WakeqError):
        wire.decode(BlockReader(50).receive(b"*" + garbage + b"\n"))
    with contextlib.suppress(WakeqError):
        buffers = Buffers(block, 2, ["body", "priority", "uid"])
        buffers.texts("body"), buffers.numbers("priority"), buffers.texts("uid")


@pytest.mark.parametrize("head", [b"*x\n", b"*-1\n", b"*99999999\n", b"*" + b"1" * 12, b"*\n"])
def test_frame_without_a_fitting_size_ends_the_stream(head: bytes) -> None:
    with pytest.raises(BadFrame) as raised:
        BlockReader(100).receive(b"{}\n" + head)

    assert raised.value.lines == b"{}\n"
    assert raised.value.closes


def test_frame_that_is_not_ended_by_a_line_end_ends_the_stream() -> None:
    with pytest.raises(BadFrame, match="its size is wrong"):
        BlockReader(100).receive(b"*2\nabc\n")


def test_line_behind_frames_is_bounded_as_ever() -> None:
    with pytest.raises(LineTooLong):
        BlockReader(10).receive(b"*2\n{}\n" + b"x" * 11)


def test_commands_before_a_line_that_is_too_long_are_still_read() -> None:
    before = b"{}\n" + frame(b"{}", b"abc") + b"\n[]\n"

    with pytest.raises(LineTooLong) as raised:
        BlockReader(10).receive(before + b"x" * 20)

    assert raised.value.lines == before


@pytest.mark.parametrize(
    ("offsets", "why"),
    [([1, 1, 2], "begin with 0"), ([0, 2, 1], "do not grow"), ([0, 1, -1], "last offset is -1"), ([0, 1, 900], "need")],
)
def test_offsets_that_lie_are_refused(offsets: list[int], why: str) -> None:
    block = b"".join(offset.to_bytes(4, "little", signed=True) for offset in offsets) + bytes(4) + b"ab" + bytes(6)

    with pytest.raises(BadField, match=why):
        Buffers(block, 2, ["body"]).texts("body")


def test_command_without_a_block_that_comes_in_a_frame_is_refused_alone() -> None:
    stream = frame(b'{"cmd":"PING","cmd_id":3}', b"xx") + b'\n{"cmd":"PING"}\n'

    bad, ping = wire.decode(stream)

    assert isinstance(bad, wire.Bad)
    assert (bad.cmd_id, ping) == (3, wire.Ping())


def test_frame_whose_line_is_long_is_refused_before_anything_is_made_of_it() -> None:
    line = b'{"cmd":"PUBB","qname":"q","columns":["body"],"rows":1,"cmd_id":3,"x":[' + b"{}," * 30_000 + b"{}]}"

    bad, ping = wire.decode(frame(line, b"xx") + b'\n{"cmd":"PING"}\n')

    assert isinstance(bad, wire.Bad)
    assert "the line in a frame has" in str(bad.error)
    assert ping == wire.Ping()
