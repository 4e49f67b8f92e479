"""TlsConnection: a TLS connection to a broker; one thread may read while another writes.

    send --> ciphertext --> socket          socket --> ciphertext --> receive

An SSL object must not be used by two threads at once. So it works on buffers in memory, under a lock, and no thread
waits for the socket while it holds that lock. This file knows no command.
"""

import ssl
import threading
import time

from wakeq.client.connection import READ_BYTES, TcpConnection, broken, closed_by_peer, unreachable
from wakeq.client.route import parse_address
from wakeq.protocol.errors import BrokerUnreachable, Disconnected


class TlsConnection(TcpConnection):
    """A connected socket with TLS."""

    def __init__(self, address: str, context: ssl.SSLContext, *, timeout_s: float) -> None:
        super().__init__(address, timeout_s=timeout_s)
        # Encrypted bytes from and to the socket.
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Protects the SSL object.
        self._lock = threading.Lock()
        # Data must be sent in the order in which it was encrypted.
        self._sending = threading.Lock()
        # Decrypted data that `fault` has read.
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
            while not self._try_handshake():
                left_s = until_s - time.monotonic()
                super().send(self._outgoing.read(), timeout_s=left_s)
                data = super().receive(timeout_s=left_s)
                if not data:
                    raise BrokerUnreachable(
                        f"{self.address} did not finish the TLS handshake in time; has that port TLS?"
                    )
                self._incoming.write(data)
            super().send(self._outgoing.read(), timeout_s=until_s - time.monotonic())
        except ssl.SSLError as error:
            raise unreachable(self.address, error) from error
        except Disconnected as error:
            raise BrokerUnreachable(f"{error} in the TLS handshake; has that port TLS?") from error

    def _try_handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Write all of the data."""
        with self._sending:
            try:
                with self._lock:
                    self._tls.write(data)
                    encrypted = self._outgoing.read()
            except ssl.SSLError as error:
                raise broken(self.address, error) from error
            super().send(encrypted, timeout_s=timeout_s)

    def receive(self, *, timeout_s: float) -> bytes:
        """Wait for data and return it; empty if nothing arrives in time."""
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
        """Return the data of all complete TLS records."""
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
            raise closed_by_peer(self.address)
        return b"".join(pieces)

    def fault(self) -> Disconnected | None:
        """Return why the connection is known to have ended; None if it is not.

        The closing message of the peer is encrypted, so it has to be read. Data before it is kept for `receive`.
        """
        try:
            # `receive` returns data that was read ahead before, and only that.
            self._read_ahead = self.receive(timeout_s=0.0)
        except Disconnected as error:
            return error
        return None
