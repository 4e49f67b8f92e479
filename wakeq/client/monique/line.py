"""Line: what both clients of MoniQue know of their connection, whoever carries its bytes.

    address, token, TLS, timeouts --> where to connect, what to say first, how long until the next attempt

It opens no connection and waits for nothing; how to do that is all in which the clients differ.
"""

import time
from collections.abc import Mapping

from wakeq.client.core.route import Route
from wakeq.client.core.timeouts import Timeouts, mute, ungreeted
from wakeq.client.credentials import Tls, context_of, token_source
from wakeq.client.monique.session import Session, split_url
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, WakeqError


class Line:
    """One conversation with one server, wherever it is."""

    def __init__(
        self, address: str, timeouts: Timeouts, *, token: str | None, tls: Tls, cookies: Mapping[str, str] | None
    ) -> None:
        addresses, path, is_secure = split_url(address)
        self._token = token_source(token)
        self.context = context_of(True if tls is None and is_secure else tls)
        self.timeouts = timeouts
        self._route = Route(addresses, reconnect_for_s=timeouts.reconnect_for_s)
        self.session = Session(path, cookies=cookies or {})

    @property
    def address(self) -> str:
        """Where the server is, or is to be tried next."""
        return self._route.address

    def begin(self) -> None:
        """There is a connection: what the server has to hear first is in `session.bytes_to_send`."""
        self.session.connected(self.address, self._token())

    def found(self) -> None:
        """The server has agreed."""
        self._route.found(time.monotonic())

    def failed(self, error: WakeqError | TimeoutError) -> float:
        """Return the seconds until the next attempt, or raise what became of all of them."""
        if isinstance(error, TimeoutError):
            error = mute(self.address)
        if not isinstance(error, BrokerUnreachable | Disconnected):
            raise error
        return self._route.failed(ungreeted(error, "MoniQue"), time.monotonic())

    def lost(self, error: Disconnected) -> float:
        """The same, for a connection that has ended."""
        return self._route.lost(error, time.monotonic())
