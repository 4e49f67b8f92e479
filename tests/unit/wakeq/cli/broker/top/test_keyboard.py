"""Keys in the bytes of a terminal."""

import os
import pty
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.cli.broker.top.keyboard import keys_in, raw_keys, read_keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        ("ab", ["a", "b"]),
        ("\x1b[A\x1bOBq", ["up", "down", "q"]),
        ("\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page up", "page down", "home", "end"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b", ["escape", "escape"]),
        ("\r\x7f", ["enter", "backspace"]),
        # Unknown ones, such as Ctrl-left and F5, and one that is cut off.
        ("\x1b[1;5Dx\x1b[15~y\x1b[", ["x", "y"]),
        ("é", ["é"]),
    ],
)
def test_sequences_become_keys(text: str, keys: list[str]) -> None:
    assert keys_in(text) == keys


@given(st.text())
def test_any_text_becomes_keys_or_nothing(text: str) -> None:
    assert len(keys_in(text)) <= len(text)


def test_keys_are_read_without_enter_and_the_terminal_is_given_back() -> None:
    ours, theirs = pty.openpty()
    try:
        before = termios.tcgetattr(theirs)
        with raw_keys(theirs):
            os.write(ours, b"q")
            assert read_keys(theirs) == ["q"]
        assert termios.tcgetattr(theirs) == before
    finally:
        os.close(ours)
        os.close(theirs)
