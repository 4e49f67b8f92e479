"""Callers: the sender of an operator's request, and the checks of what it may do.

    request --> Callers.of --> Caller: require(need, queue), sees(queue)  |  Forbidden, Unauthorized

Without tokens everybody who reaches the port may do everything, except pages of other sites.  A request is known here
only by its need: to see statistics, to read messages, or to administer.
"""

from typing import NamedTuple

from aiohttp import web

from wakeq.actors.sessions.access import Access, Gate
from wakeq.http.authorization import token_of
from wakeq.protocol.access import Right, is_address, is_this_machine
from wakeq.protocol.errors import BadField, Forbidden

# See statistics: any right on the queue is enough.
LOOK = "look"
# Read messages: needs the right to fetch or to administer.
READ = "read"
# Change, move, delete.
ADMIN = "admin"
NEEDS = {LOOK: tuple(Right), READ: (Right.FETCH, Right.ADMIN), ADMIN: (Right.ADMIN,)}


class Caller(NamedTuple):
    """The sender of a request.  `access` is None if the broker requires no tokens."""

    name: str
    access: Access | None

    def require(self, need: str, queue: str | None) -> None:
        """Raise unless the caller may do this to the queue; None stands for the node, and so for all queues."""
        access = self.access
        if access is None:
            return
        rights = NEEDS[need]
        if queue is None:
            if not any(access.may_all(right) for right in rights):
                raise access.refusal_of_all(rights[-1])
        elif not self.may(need, queue):
            raise access.refusal(rights[-1], queue)

    def may(self, need: str, queue: str) -> bool:
        """Whether the caller may do this to the queue."""
        return self.access is None or any(self.access.allows(right, queue) for right in NEEDS[need])

    @property
    def sees_node(self) -> bool:
        """Whether the caller may see the node's metrics, which include all queues."""
        return self.access is None or any(self.access.may_all(right) for right in NEEDS[LOOK])

    def sees(self, queue: str) -> bool:
        """Whether the caller may see the statistics of a queue."""
        return self.access is None or self.access.may_any(queue)


class _StreamConnection:
    """The connection of a stream, which the gate closes when the caller's token ends."""

    def __init__(self, request: web.Request) -> None:
        self._transport = request.transport
        self.peer = request.remote or "?"

    def close(self, reason: str, /) -> None:
        """Abort: the client must not take a truncated answer for a complete one."""
        if self._transport is not None:
            self._transport.abort()


class Callers:
    """Identifies callers by token, or by the name that they use for this broker."""

    def __init__(self, host: str, gate: Gate | None) -> None:
        self._host = host
        self._gate = gate
        self._is_local = is_this_machine(host)

    def of(self, request: web.Request, *, lasts: bool = False) -> Caller:
        """Return the caller of a request; raise Forbidden or Unauthorized if it may not ask at all.

        With `lasts`, the answer is aborted as soon as the token loses a right.

        A browser says which page sent a request.  Without tokens, a foreign host name that resolves to this machine
        (DNS rebinding) is refused.
        """
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Forbidden("a page of another site may not do this")
        peer = request.remote or "?"
        if self._gate is not None:
            access = self._gate.login(token_of(request), _StreamConnection(request) if lasts else None, peer=peer)
            return Caller(f"{access.name} at {peer}", access)
        name = _host_of(request)
        if self._is_local and not (name in ("localhost", self._host) or is_address(name)):
            raise Forbidden(f"{name} is not a name of this broker; use its address, or localhost")
        return Caller(peer, None)


def _host_of(request: web.Request) -> str:
    """Return the host name that the client used for this broker."""
    try:
        return request.url.host or ""
    except ValueError:
        raise BadField("the Host header of the request is not an address") from None
