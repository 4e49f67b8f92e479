"""Proves which of the system's errors mean that a peer has vanished, and which that it ended the connection."""

import errno

import pytest

from wakeq.client.session import Silent
from wakeq.client.transport import broken
from wakeq.protocol.errors import Disconnected


@pytest.mark.parametrize(
    ("number", "is_silence"), [(errno.ETIMEDOUT, True), (errno.ECONNRESET, False), (errno.EPIPE, False)]
)
def test_connection_that_the_system_gave_up_broke_by_silence(number: int, is_silence: bool) -> None:
    error = broken("a:1", OSError(number, "it broke"))

    assert type(error) is (Silent if is_silence else Disconnected)
