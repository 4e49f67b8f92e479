"""Gate: who may come in, and what each connection may do; the same for every protocol.

    token --> Gate.login --> Access of this connection --> may(right, queue)
    tokens that changed, time that went by --> Gate.renew --> connections whose token is good for less now are closed

What was found out about a queue is remembered with the connection, so that it costs a look into a set.  Must never read
a file, or say in a log or an error what a token was.
"""

import logging
from collections.abc import Callable, Set
from typing import Protocol
from weakref import WeakSet

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.protocol.access import Book, Grant, Right, digest_of
from wakeq.protocol.errors import Forbidden, TooManyQueues, Unauthorized

QUEUES_REMEMBERED_MAX = 10_000  # by one connection for one right: as many as it may know

NO_TOKEN = "a token is needed here (WAKEQ_TOKEN, or token= of a client); `wakeq token create` at the broker makes one"
BAD_TOKEN = "the token is not valid here: unknown, expired or revoked; see `wakeq token list` at the broker"
TOKEN_ENDED = "its token has expired or was revoked"
TOKEN_NARROWED = "its token is good for less than it was; connect again for what is left"

logger = logging.getLogger("wakeq.access")


class Closable(Protocol):
    """A connection, as far as it can be ended when its token is."""

    @property
    def peer(self) -> str: ...

    def close(self, reason: str, /) -> None: ...


class Making:
    """The queues that the connections of one token have made by publishing, as far as they are still there."""

    def __init__(self, name: str, exists: Callable[[str], bool], queues_max: int) -> None:
        self._name = name
        self._exists = exists
        self._queues_max = queues_max
        self._made: set[str] = set()

    def admits(self, queue: str) -> bool:
        """Whether a publish to the queue may go on; one that is not there yet is made by it, and counts."""
        if self._exists(queue) or queue in self._made:
            return True
        if len(self._made) >= self._queues_max:
            self._made = {made for made in self._made if self._exists(made)}
        if len(self._made) >= self._queues_max:
            return False
        self._made.add(queue)
        return True

    @property
    def refusal(self) -> TooManyQueues:
        return TooManyQueues(
            f"the token {self._name} has created {self._queues_max} queues that are still there, and may not create "
            "another one (queues_per_token_max); drop some"
        )


class Access:
    """What one connection may do, by the token that it showed, or by none."""

    __slots__ = ("__weakref__", "_allowed", "_connection", "_grant", "_making", "digest")

    def __init__(
        self,
        grant: Grant | None = None,
        digest: bytes = b"",
        connection: Closable | None = None,
        making: Making | None = None,
    ) -> None:
        self.digest = digest
        self._making = making  # None: no limit
        self._grant = grant
        self._connection = connection
        self._allowed: dict[Right, set[str]] = {}

    @property
    def is_known(self) -> bool:
        """Whether a valid token was shown."""
        return self._grant is not None

    @property
    def name(self) -> str:
        """The name of the token, for people."""
        return "" if self._grant is None else self._grant.name

    def covers(self, right: Right, queues: Set[str]) -> bool:
        """Whether this may be done to all of these queues, of which one read of a connection brings a few."""
        known = self._allowed.get(right)
        if known is not None and queues <= known:
            return True
        return all([self.may(right, queue) for queue in queues])

    def may(self, right: Right, queue: str) -> bool:
        """Whether this may be done to the queue, now that somebody wants to do it."""
        if not self.allows(right, queue):
            return False
        if right is Right.PUBLISH and self._making is not None and not self._making.admits(queue):
            return False
        known = self._allowed.setdefault(right, set())
        if len(known) >= QUEUES_REMEMBERED_MAX:
            known.clear()
        known.add(queue)
        return True

    def allows(self, right: Right, queue: str) -> bool:
        """Whether the token has this right for the queue."""
        return self._grant is not None and self._grant.allows(right, queue)

    def may_all(self, right: Right, prefix: str = "") -> bool:
        """Whether this may be done to every queue whose name begins so."""
        return self._grant is not None and self._grant.allows_all(right, prefix)

    def may_any(self, queue: str) -> bool:
        """Whether anything at all may be done to the queue: then its figures are no secret."""
        return any(self.allows(right, queue) for right in Right)

    def refusal(self, right: Right, queue: str) -> Forbidden | Unauthorized | TooManyQueues:
        """Why it may not be done."""
        if self._grant is None:
            return Unauthorized(NO_TOKEN)
        if self._making is not None and self.allows(right, queue):
            return self._making.refusal
        where = f"queue {queue!a}" if queue else "the default queue"
        return Forbidden(f"the token {self.name} has no right to {right.value} for {where}; ask for one that has")

    def refusal_of_all(self, right: Right) -> Forbidden | Unauthorized:
        """Why it may not be done to all queues."""
        if self._grant is None:
            return Unauthorized(NO_TOKEN)
        return Forbidden(f"the token {self.name} has no right to {right.value} for all queues; ask for one that has")

    def renew(self, grant: Grant | None) -> None:
        """Its token stands for something else now.  If that is less, or nothing, the connection ends.

        For what was allowed may be under way: a fetch that waits, a subscription, messages of MoniQue.
        """
        before, self._grant = self._grant, grant
        if grant == before:
            return
        self._allowed.clear()
        if self._connection is None or before is None:
            return
        if grant is None:
            self._connection.close(TOKEN_ENDED)
        elif not grant.includes(before):
            self._connection.close(TOKEN_NARROWED)


STRANGER = Access()  # nobody has said who is there


class Gate:
    """See the head of this file.  A node that wants no tokens has no gate."""

    def __init__(self, book: Book, now_ms: Callable[[], int]) -> None:
        self._book = book
        self._now_ms = now_ms
        self._inside: WeakSet[Access] = WeakSet()
        self._refused, self._without = RateLimitedLog(logger, now_ms), RateLimitedLog(logger, now_ms)
        self._next_end_ms = book.next_end_ms(now_ms())
        self.refused = 0  # logins, for the figures
        self._exists: Callable[[str], bool] | None = None
        self._queues_max = 0  # that a token may make
        self._making: dict[str, Making] = {}  # by the name of a token

    def login(self, token: str | None, connection: Closable | None = None, *, peer: str = "") -> Access:
        """Return what a token is good for; the connection is closed when that ends.  Raise Unauthorized."""
        if token is None:
            if connection is not None:  # who looks at a page may have none yet
                self.miss_token(connection.peer)
            raise Unauthorized(NO_TOKEN)
        digest = digest_of(token)
        grant = self._book.find(digest, self._now_ms())
        if grant is None:
            self.refused += 1
            where = peer if connection is None else connection.peer
            self._refused.log(f"a login from {where} was refused: its token is not valid")
            raise Unauthorized(BAD_TOKEN)
        access = Access(grant, digest, connection, self._making_of(grant.name))
        if connection is not None:
            self._inside.add(access)
        return access

    def limit_queues(self, queues_max: int, exists: Callable[[str], bool]) -> None:
        """Let the clients of a token make so many queues; 0 is no limit.  Before anybody comes in."""
        self._queues_max, self._exists = queues_max, exists

    def _making_of(self, name: str) -> Making | None:
        if self._exists is None or not self._queues_max:
            return None
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = Making(name, self._exists, self._queues_max)
        return making

    def miss_token(self, peer: str) -> None:
        """Say that somebody asks for something and shows no token: most likely a worker that was not given one."""
        self._without.log(f"{peer} was refused: it shows no token")

    def renew(self, book: Book) -> None:
        """These are the tokens now."""
        self._book = book
        self._check_all()

    def tick(self) -> None:
        """Find out whether a token has expired meanwhile, and log the last lines that were left out."""
        self._refused.tick()
        self._without.tick()
        if self._next_end_ms <= self._now_ms():
            self._check_all()

    def _check_all(self) -> None:
        now_ms = self._now_ms()
        self._next_end_ms = self._book.next_end_ms(now_ms)
        for access in list(self._inside):
            access.renew(self._book.find(access.digest, now_ms))
