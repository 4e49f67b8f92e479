"""Cutting a stream at its line ends."""

import json

import pytest

from tests.helpers.steps import peak_bytes
from wakeq.protocol.wire.lines import LineReader, LineTooLong, line_bytes_max


def test_rest_waits_for_its_line_end() -> None:
    reader = LineReader(100)

    assert reader.receive(b"ab") == b""
    assert reader.receive(b"c\nde") == b"abc\n"
    assert reader.waiting_bytes == 2
    assert reader.receive(b"\n") == b"de\n"
    assert reader.waiting_bytes == 0


def test_line_of_just_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    assert LineReader(4).receive(b"abcd\n") == b"abcd\n"
    with pytest.raises(LineTooLong):
        LineReader(4).receive(b"abcde\n")


def test_line_without_end_is_refused_as_soon_as_it_passes_the_limit() -> None:
    reader = LineReader(4)
    reader.receive(b"abcd")

    with pytest.raises(LineTooLong):
        reader.receive(b"e")


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_lines_before_one_that_is_too_long_are_not_lost(step: int) -> None:
    wire = b"a\nb\n" + b"x" * 20 + b"\nc\n"
    reader = LineReader(10)

    got: list[bytes] = []
    with pytest.raises(LineTooLong) as refused:
        got.extend(reader.receive(wire[start : start + step]) for start in range(0, len(wire), step))

    assert b"".join(got) + refused.value.lines == b"a\nb\n"
    assert refused.value.closes


def test_lines_together_may_be_longer_than_the_limit() -> None:
    assert LineReader(4).receive(b"abcd\n" * 10) == b"abcd\n" * 10


def test_long_line_in_small_pieces_is_not_copied_for_each_piece() -> None:
    size, piece = 1 << 18, b"x" * 64

    def read() -> None:
        reader = LineReader(size)
        for _ in range(size // len(piece)):
            reader.receive(piece)

    assert peak_bytes(read) < 1.5 * size, "a copy for each piece would make it two"


@pytest.mark.parametrize("letter", ["ж", "語", "🐇", '"'])
def test_message_of_any_letters_fits_however_they_are_escaped(letter: str) -> None:
    text = letter * ((1 << 20) // len(letter.encode()))

    assert len(json.dumps({"cmd": "PUB", "qname": "q", "message": text})) < line_bytes_max(1 << 20)
