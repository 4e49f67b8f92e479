"""Connector: where and when both clients of MoniQue connect, and the session on that connection.

    address, token, TLS, timeouts --> the next address, the first bytes to send, the pause before the next attempt

It opens no connection and waits for nothing; only in that do the two clients differ.
"""

import time
from collections.abc import Mapping

from wakeq.client.core.route import Route
from wakeq.client.core.timeouts import Timeouts, ended_before_greeting, no_greeting
from wakeq.client.credentials import Tls, tls_context, token_source
from wakeq.client.monique.session import Session, split_url
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, WakeqError


class Connector:
    """One session with one server, at any of its addresses."""

    def __init__(
        self, address: str, timeouts: Timeouts, *, token: str | None, tls: Tls, cookies: Mapping[str, str] | None
    ) -> None:
        addresses, path, is_secure = split_url(address)
        self._token = token_source(token)
        self.context = tls_context(True if tls is None and is_secure else tls)
        self.timeouts = timeouts
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self.session = Session(path, cookies=cookies or {})

    @property
    def address(self) -> str:
        """The address of the server, or the one to try next."""
        return self._route.address

    def begin(self) -> None:
        """Begin on a new connection; `session.bytes_to_send` then has the handshake."""
        self.session.connected(self.address, self._token())

    def connected(self) -> None:
        """Note that the server has accepted the handshake."""
        self._route.connected(time.monotonic())

    def failed(self, error: WakeqError | TimeoutError) -> float:
        """Note a failed attempt. Return the seconds until the next one, or raise an error that lists all of them."""
        if isinstance(error, TimeoutError):
            error = no_greeting(self.address)
        if not isinstance(error, BrokerUnreachable | Disconnected):
            raise error
        return self._route.failed(ended_before_greeting(error, "MoniQue"), time.monotonic())

    def lost(self, error: Disconnected) -> float:
        """Note that the connection ended. Return and raise as `failed` does."""
        return self._route.lost(error, time.monotonic())
