"""Secured: a TLS connection to a broker, for threads of which one reads while another writes.

    send --> ciphertext --> socket          socket --> ciphertext --> receive

The SSL object is no affair of two threads at once, so it works in memory under a lock, and nobody waits for the socket
while holding that one.  Knows no command.
"""

import ssl
import threading
import time

from wakeq.client.core.route import parse_address
from wakeq.client.transport import READ_BYTES, Transport, broken, closed, unreachable
from wakeq.protocol.errors import BrokerUnreachable, Disconnected


class Secured(Transport):
    """See the head of this file."""

    def __init__(self, address: str, context: ssl.SSLContext, *, timeout_s: float) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._lock = threading.Lock()  # of the SSL object
        self._sending = threading.Lock()  # what is encrypted first is sent first
        self._read_ahead = b""
        host, _ = parse_address(address)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        try:
            self._shake_hands(time.monotonic() + timeout_s)
        except BaseException:
            self.close()
            raise

    def _shake_hands(self, until_s: float) -> None:
        try:
            while not self._has_shaken():
                left_s = until_s - time.monotonic()
                super().send(self._outgoing.read(), timeout_s=left_s)
                data = super().receive(timeout_s=left_s)
                if not data:
                    raise BrokerUnreachable(f"{self.address} makes no TLS handshake in time; has that port TLS?")
                self._incoming.write(data)
            super().send(self._outgoing.read(), timeout_s=until_s - time.monotonic())
        except ssl.SSLError as error:
            raise unreachable(self.address, error) from error
        except Disconnected as error:
            raise BrokerUnreachable(f"{error} in the TLS handshake; has that port TLS?") from error

    def _has_shaken(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of it."""
        with self._sending:
            try:
                with self._lock:
                    self._tls.write(data)
                    encrypted = self._outgoing.read()
            except ssl.SSLError as error:
                raise broken(self.address, error) from error
            super().send(encrypted, timeout_s=timeout_s)

    def receive(self, *, timeout_s: float) -> bytes:
        """Whatever has come, once something has; empty if nothing came in time."""
        until_s = time.monotonic() + timeout_s
        if self._read_ahead:
            data, self._read_ahead = self._read_ahead, b""
            return data
        while True:
            if data := self._decrypted():
                return data
            encrypted = super().receive(timeout_s=until_s - time.monotonic())
            if not encrypted:
                return b""
            with self._lock:
                self._incoming.write(encrypted)

    def _decrypted(self) -> bytes:
        """Return what is whole by now."""
        pieces: list[bytes] = []
        with self._lock:
            try:
                while piece := self._tls.read(READ_BYTES):
                    pieces.append(piece)
            except ssl.SSLWantReadError:
                return b"".join(pieces)
            except ssl.SSLError as error:
                if not pieces and not isinstance(error, ssl.SSLZeroReturnError):
                    raise broken(self.address, error) from error
        if not pieces:
            raise closed(self.address)
        return b"".join(pieces)

    def fault(self) -> Disconnected | None:
        """Why the connection is known to have ended.  The peer's goodbye is encrypted: only who reads it knows."""
        try:
            self._read_ahead = self.receive(timeout_s=0.0)  # what was there before comes first, and alone
        except Disconnected as error:
            return error
        return None
