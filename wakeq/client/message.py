"""Message and AsyncMessage: one delivery of a message; and the bodies that a publisher may pass.

Their methods `ack`, `nack`, `release`, `reject` and `touch` go to the client that fetched the message. The two classes
differ only in that the methods of AsyncMessage are awaited. A message holds no connection of its own.
"""

from collections.abc import Awaitable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from wakeq.client.core.encoding import json_of, text_of_reason
from wakeq.protocol.errors import BadField, WakeqError
from wakeq.protocol.wire.worker.codec import Followup


class Dataclass(Protocol):
    """An instance of any dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Scalar: TypeAlias = int | float | bool | Decimal | date | time | timedelta | UUID | Enum | None
Collection: TypeAlias = Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
Body: TypeAlias = str | bytes | bytearray | memoryview | Scalar | Collection | Dataclass | msgspec.Struct
Reason: TypeAlias = str | BaseException
T_co = TypeVar("T_co", covariant=True)
Then: TypeAlias = Iterable[tuple[str, Body] | Followup]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class MessageClient(Protocol[T_co]):
    """The methods of a client that a message needs. They return a bool, or those of AsyncClient an awaitable bool."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> T_co: ...

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
    ) -> T_co: ...

    def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> T_co: ...


class Received(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """The fields of both kinds of message."""

    queue: str
    uid: str
    body: bytes
    lease: str | None
    # 1 for the first delivery.
    delivery: int
    # How many earlier deliveries failed.
    failures: int = 0
    priority: int = 0
    headers: Mapping[str, str] = NO_HEADERS
    # The program called `ack`, `nack`, `release` or `reject`.
    settled: bool = False

    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the value of a JSON body."""
        return msgspec.json.decode(self.body)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(queue={self.queue!r}, uid={self.uid!r}, delivery={self.delivery})"


class Message(Received, kw_only=True, gc=False, eq=False):
    """A message leased to this client. `with message:` acknowledges it, or returns it to the queue after an error."""

    client: MessageClient[bool]

    def ack(self, then: Then = ()) -> bool:
        """Acknowledge the message, and publish `then`, pairs of (queue, body), in the same step. False: it was gone."""
        self.settled = True
        return self.client.ack(self.queue, self.uid, lease=self.lease, then=then)

    def nack(self, delay: int | None = None, *, error: Reason | None = None) -> bool:
        """Report a failure: redeliver after `delay` seconds, or by the queue's retry policy. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    def release(self, delay: int = 0) -> bool:
        """Return the message to the queue for `delay` seconds later; this counts as no failure. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    def reject(self, reason: Reason) -> bool:
        """Make the message a dead letter now: it will never succeed. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    def touch(self, seconds: int | None = None) -> bool:
        """Extend the lease to `seconds` from now, or by the timeout of the delivery. False: it was gone."""
        return self.client.touch(self.queue, self.uid, timeout=seconds, lease=self.lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Acknowledge, or return the message after an error, unless the block has already done one or the other."""
        if self.settled:
            return
        if error is None:
            self.ack()
            return
        try:
            self.nack(error=error) if isinstance(error, Exception) else self.release()
        except WakeqError as refusal:
            # The message is redelivered after its timeout; the error of the block matters more.
            error.add_note(f"the message was not returned to the queue: {refusal}")


class AsyncMessage(Received, kw_only=True, gc=False, eq=False):
    """A message leased to this client. `async with message:` acknowledges it, or returns it after an error."""

    client: MessageClient[Awaitable[bool]]

    async def ack(self, then: Then = ()) -> bool:
        """Acknowledge the message, and publish `then`, pairs of (queue, body), in the same step. False: it was gone."""
        self.settled = True
        return await self.client.ack(self.queue, self.uid, lease=self.lease, then=then)

    async def nack(self, delay: int | None = None, *, error: Reason | None = None) -> bool:
        """Report a failure: redeliver after `delay` seconds, or by the queue's retry policy. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    async def release(self, delay: int = 0) -> bool:
        """Return the message to the queue for `delay` seconds later; this counts as no failure. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    async def reject(self, reason: Reason) -> bool:
        """Make the message a dead letter now: it will never succeed. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    async def touch(self, seconds: int | None = None) -> bool:
        """Extend the lease to `seconds` from now, or by the timeout of the delivery. False: it was gone."""
        return await self.client.touch(self.queue, self.uid, timeout=seconds, lease=self.lease)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Acknowledge, or return the message after an error, unless the block has already done one or the other."""
        if self.settled:
            return
        if error is None:
            await self.ack()
            return
        try:
            await (self.nack(error=error) if isinstance(error, Exception) else self.release())
        except WakeqError as refusal:
            # The message is redelivered after its timeout; the error of the block matters more.
            error.add_note(f"the message was not returned to the queue: {refusal}")


def _text(reason: Reason | None) -> str | None:
    return None if reason is None else text_of_reason(reason)


def bytes_of_body(body: Body) -> bytes:
    """Return text and bytes as they are, and everything else as JSON."""
    match body:
        case str():
            try:
                return body.encode()
            except UnicodeEncodeError as error:
                raise BadField(f"this text cannot be sent as UTF-8 ({error}); publish bytes instead") from None
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case Received():
            raise BadField(f"{body!r} is a message; publish its body, and pass the headers that you want to keep")
        case _:
            return json_of(body)
