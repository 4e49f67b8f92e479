"""quiet_port: a port that accepts nobody by itself, and knows whether somebody came."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class QuietPort:
    """A port that listens."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.number: int = listener.getsockname()[1]

    @property
    def connections(self) -> int:
        """How many connections wait to be accepted; they are ended."""
        count = 0
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return count
            accepted.close()
            count += 1


@contextmanager
def quiet_port() -> Iterator[QuietPort]:
    """Listen on a port of loopback until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield QuietPort(listener)
