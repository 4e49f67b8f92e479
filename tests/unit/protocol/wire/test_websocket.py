"""The head of a frame, at each size where it changes (RFC 6455, 5.2)."""

import pytest

from wakeq.protocol.wire.websocket import BINARY, frame


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "8200"),
        (125, "827d"),
        (126, "827e007e"),
        (65_535, "827effff"),
        (65_536, "827f0000000000010000"),
    ],
)
def test_frame_is_its_head_and_its_payload(size: int, head: str) -> None:
    payload = b"x" * size

    assert frame(BINARY, payload) == bytes.fromhex(head) + payload
