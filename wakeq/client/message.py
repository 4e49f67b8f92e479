"""Message and AsyncMessage: one delivery in the hands of a worker, and the bodies that a publisher gives.

What was delivered, with short ways back to the client that fetched it.  The two differ in nothing but that the
second one's answers are awaited.  A message holds no connection; what becomes of it is said by its settler.
"""

from collections.abc import Awaitable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias
from uuid import UUID

import msgspec

from wakeq.client.core.encoding import json_of, text_of_reason
from wakeq.protocol.errors import BadField, WakeqError
from wakeq.protocol.wire.worker.codec import Followup


class Dataclass(Protocol):
    """An instance of any dataclass, to a type checker."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Scalar: TypeAlias = int | float | bool | Decimal | date | time | timedelta | UUID | Enum | None
Collection: TypeAlias = Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
Body: TypeAlias = str | bytes | bytearray | memoryview | Scalar | Collection | Dataclass | msgspec.Struct
Reason: TypeAlias = str | BaseException
Then: TypeAlias = Iterable[tuple[str, Body] | Followup]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Settler(Protocol):
    """Who tells the broker what became of a Message, and waits for the answer."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool: ...

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
    ) -> bool: ...

    def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> bool: ...


class AsyncSettler(Protocol):
    """Who tells the broker what became of an AsyncMessage."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> Awaitable[bool]: ...

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
    ) -> Awaitable[bool]: ...

    def touch(
        self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None
    ) -> Awaitable[bool]: ...


class Received(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """What both kinds of message hold.  `settled` is true once it was said what became of it."""

    queue: str
    uid: str
    body: bytes
    lease: str | None
    delivery: int  # 1 for the first one
    failures: int = 0  # deliveries before this one that failed
    priority: int = 0
    headers: Mapping[str, str] = NO_HEADERS
    settled: bool = False

    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """What the body, read as JSON, says."""
        return msgspec.json.decode(self.body)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(queue={self.queue!r}, uid={self.uid!r}, delivery={self.delivery})"


class Message(Received, kw_only=True, gc=False, eq=False):
    """A message that is ours until its timeout.  `with message:` acknowledges it, or gives it back."""

    settler: Settler

    def ack(self, then: Then = ()) -> bool:
        """It is done with; `then`, (queue, body) pairs, is published in the same step.  False: it was gone."""
        self.settled = True
        return self.settler.ack(self.queue, self.uid, lease=self.lease, then=then)

    def nack(self, delay: int | None = None, *, error: Reason | None = None) -> bool:
        """It failed: deliver it again after `delay` seconds, or as the queue's retry policy says.  False: gone."""
        self.settled = True
        return self.settler.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    def release(self, delay: int = 0) -> bool:
        """Give it back untried, for `delay` seconds later: this delivery counts as no failure.  False: gone."""
        self.settled = True
        return self.settler.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    def reject(self, reason: Reason) -> bool:
        """It will never succeed: put it into the dead-letter queue now, with the reason.  False: it was gone."""
        self.settled = True
        return self.settler.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    def touch(self, seconds: int | None = None) -> bool:
        """Keep it for `seconds` from now, or for the timeout it was delivered with.  False: it was gone."""
        return self.settler.touch(self.queue, self.uid, timeout=seconds, lease=self.lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Acknowledge; after an error give it back, unless the block has said already what became of it."""
        if self.settled:
            return
        if error is None:
            self.ack()
            return
        try:
            self.nack(error=error) if isinstance(error, Exception) else self.release()
        except WakeqError as unheard:  # it comes back after its timeout; the block's own error is the news
            error.add_note(f"the message was not given back: {unheard}")


class AsyncMessage(Received, kw_only=True, gc=False, eq=False):
    """A message that is ours until its timeout.  `async with message:` acknowledges it, or gives it back."""

    settler: AsyncSettler

    async def ack(self, then: Then = ()) -> bool:
        """It is done with; `then`, (queue, body) pairs, is published in the same step.  False: it was gone."""
        self.settled = True
        return await self.settler.ack(self.queue, self.uid, lease=self.lease, then=then)

    async def nack(self, delay: int | None = None, *, error: Reason | None = None) -> bool:
        """It failed: deliver it again after `delay` seconds, or as the queue's retry policy says.  False: gone."""
        self.settled = True
        return await self.settler.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    async def release(self, delay: int = 0) -> bool:
        """Give it back untried, for `delay` seconds later: this delivery counts as no failure.  False: gone."""
        self.settled = True
        return await self.settler.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    async def reject(self, reason: Reason) -> bool:
        """It will never succeed: put it into the dead-letter queue now, with the reason.  False: it was gone."""
        self.settled = True
        return await self.settler.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    async def touch(self, seconds: int | None = None) -> bool:
        """Keep it for `seconds` from now, or for the timeout it was delivered with.  False: it was gone."""
        return await self.settler.touch(self.queue, self.uid, timeout=seconds, lease=self.lease)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Acknowledge; after an error give it back, unless the block has said already what became of it."""
        if self.settled:
            return
        if error is None:
            await self.ack()
            return
        try:
            await (self.nack(error=error) if isinstance(error, Exception) else self.release())
        except WakeqError as unheard:  # it comes back after its timeout; the block's own error is the news
            error.add_note(f"the message was not given back: {unheard}")


def _text(reason: Reason | None) -> str | None:
    return None if reason is None else text_of_reason(reason)


def bytes_of_body(body: Body) -> bytes:
    """Text and bytes as they are, everything else as JSON."""
    match body:
        case str():
            try:
                return body.encode()
            except UnicodeEncodeError as error:
                raise BadField(f"this text cannot be sent as UTF-8 ({error}); publish bytes instead") from None
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case Received():
            raise BadField(f"{body!r} is a message; publish its body, and say which of its headers go along")
        case _:
            return json_of(body)
