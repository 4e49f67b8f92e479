"""Keys of a terminal, one by one.

    bytes of the terminal --> keys_in --> "a", "left", "escape", ...

`raw_keys` lets a program read keys without Enter, and gives the terminal back as it was.
"""

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

# What a terminal sends for keys that are not characters, in its two modes.
SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[5~": "page up", "[6~": "page down", "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home",
    "[4~": "end",
}  # fmt: skip
CHARACTERS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}
READ_BYTES = 1024


@contextmanager
def raw_keys(descriptor: int) -> Iterator[None]:
    """Let keys be read at once and unseen; Ctrl-C still interrupts."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_keys(descriptor: int) -> list[str]:
    """Return the keys that were pressed; none at the end of the input."""
    return keys_in(os.read(descriptor, READ_BYTES).decode(errors="replace"))


def keys_in(text: str) -> list[str]:
    """Return the keys in what a terminal sent; sequences of unknown keys are left out.  Pure."""
    keys, at = [], 0
    while at < len(text):
        if text[at] != "\x1b":
            keys.append(CHARACTERS.get(text[at], text[at]))
            at += 1
            continue
        if text[at + 1 : at + 2] not in ("[", "O"):
            keys.append("escape")
            at += 1
            continue
        # A sequence ends with a letter or a tilde.
        end = at + 2
        while end < len(text) and not (text[end].isalpha() or text[end] == "~"):
            end += 1
        if key := SEQUENCES.get(text[at + 1 : end + 1]):
            keys.append(key)
        at = end + 1
    return keys
