"""One line of the worker protocol, decoded: as a line and as a frame, which must be the same.

text --> one: the command; refusal: the code and the words with which it was refused
"""

from typing import Any

from wakeq.protocol.wire.worker.codec import Bad, decode, decode_frames


def one(text: str | bytes) -> Any:
    """Decode one line, and see that as a frame it is the same."""
    raw = text.encode() if isinstance(text, str) else text
    (command,) = decode(raw + b"\n")
    (framed,) = decode_frames([raw])
    assert type(command) is type(framed)
    if not isinstance(command, Bad):
        assert command == framed
    return command


def refusal(text: str | bytes) -> tuple[str, str]:
    bad = one(text)
    assert isinstance(bad, Bad), f"was not refused: {bad}"
    return bad.error.code, str(bad.error)
