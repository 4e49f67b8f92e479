"""Callers: who asks by HTTP for something that an operator may do, and whether he may.

    request --> Callers.of --> Caller: require(need, queue), sees(queue)  |  Denied

Without tokens everybody who reaches the port may do everything, but no web page of somebody else's.  It knows what is
asked for only by its need: to look at figures, to read messages, or to change something.
"""

import ipaddress
from typing import NamedTuple

from aiohttp import web

from wakeq.actors.sessions.access import Access, Gate
from wakeq.http.api.queries import Denied
from wakeq.http.authorization import token_of
from wakeq.protocol.access import Right
from wakeq.protocol.errors import BadField

LOOK = "look"  # at figures: whoever may do anything at all there
READ = "read"  # messages: whoever may fetch, or administer
ADMIN = "admin"  # change, move, delete
NEEDS = {LOOK: tuple(Right), READ: (Right.FETCH, Right.ADMIN), ADMIN: (Right.ADMIN,)}


class Caller(NamedTuple):
    """Who asks.  `access` is None where no tokens are asked for."""

    name: str
    access: Access | None

    def require(self, need: str, queue: str | None) -> None:
        """Go on only if this may be done to the queue; None stands for the node, and so for all queues."""
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
        """Whether this may be done to the queue."""
        return self.access is None or any(self.access.allows(right, queue) for right in NEEDS[need])

    @property
    def sees_node(self) -> bool:
        """Whether the figures of the node, in which all queues are, are no secret to him."""
        return self.access is None or any(self.access.may_all(right) for right in NEEDS[LOOK])

    def sees(self, queue: str) -> bool:
        """Whether the figures of a queue are no secret to him."""
        return self.access is None or self.access.may_any(queue)


class _Lasting:
    """The connection of an answer that lasts, as far as it can be ended when the token is."""

    def __init__(self, request: web.Request) -> None:
        self._transport = request.transport
        self.peer = request.remote or "?"

    def close(self, reason: str, /) -> None:
        """Break off: whoever asked must not take what he has for the whole."""
        if self._transport is not None:
            self._transport.abort()


class Callers:
    """See the head of this file."""

    def __init__(self, host: str, gate: Gate | None) -> None:
        self._host = host
        self._gate = gate
        self._is_local = _is_loopback(host)

    def of(self, request: web.Request, *, lasts: bool = False) -> Caller:
        """Return who sends a request; raise Denied, or Unauthorized, if it is nobody who may ask at all.

        An answer that lasts is broken off when his token is good for less than it was.
        A browser says where a request comes from.  Without tokens a name that leads to this machine by a trick of the
        DNS is not one of its own.
        """
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Denied("FORBIDDEN", "a page of another site may not do this")
        peer = request.remote or "?"
        if self._gate is not None:
            access = self._gate.login(token_of(request), _Lasting(request) if lasts else None, peer=peer)
            return Caller(f"{access.name} at {peer}", access)
        name = _host_of(request)
        if self._is_local and not (name in ("localhost", self._host) or _is_address(name)):
            raise Denied("FORBIDDEN", f"{name} is not a name of this broker; use its address, or localhost")
        return Caller(peer, None)


def _host_of(request: web.Request) -> str:
    """Return the name by which the sender has found this broker."""
    try:
        return request.url.host or ""
    except ValueError:
        raise BadField("the Host header of the request is not an address") from None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
