"""RawTaskFlux: a TaskFlux client of bytes, for tests of what a real listener answers.

    packets --> bytes --> socket        socket --> bytes, packets, or the end of the stream

It knows no order of things: it sends what a test wants.
"""

import socket
from types import TracebackType
from typing import Self

from wakeq.protocol.wire.taskflux.codec import ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import AuthorizationRequest, Bad, BootstrapRequest, Packet
from wakeq.protocol.wire.taskflux.dialects import LEGACY, SPEC, Dialect

ANSWER_S_MAX = 10.0
READ_BYTES = 65536


class RawTaskFlux:
    """One connection; `end` tells how it was closed by the server."""

    def __init__(self, address: tuple[str, int], dialect: Dialect = SPEC, *, greets: bool = True) -> None:
        self.dialect = dialect
        self.socket = socket.create_connection(address, timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = ResponseReader(dialect)
        self._packets: list[Packet | Bad] = []
        if greets:
            version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
            self.say(AuthorizationRequest(), version)
            self.take(2)

    def say(self, *packets: Packet) -> None:
        """Send packets."""
        self.send(encode(packets, self.dialect))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def take(self, count: int = 1) -> list[Packet | Bad]:
        """Return the next answers."""
        while len(self._packets) < count:
            data = self.socket.recv(READ_BYTES)
            assert data, f"closed after {self._packets}, {count} were to come"
            self._packets += self._reader.receive(data)
        taken, self._packets = self._packets[:count], self._packets[count:]
        return taken

    def ask(self, *packets: Packet) -> Packet | Bad:
        """Send packets and return their one answer."""
        self.say(*packets)
        return self.take()[0]

    def read(self, count: int) -> bytes:
        """Return so many bytes, or fewer if the stream ends before."""
        data = b""
        while len(data) < count and (more := self.socket.recv(count - len(data))):
            data += more
        return data

    def rest(self) -> list[Packet | Bad]:
        """Return everything up to the end of the stream, which the server has to make."""
        while data := self.socket.recv(READ_BYTES):
            self._packets += self._reader.receive(data)
        return self._packets

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
