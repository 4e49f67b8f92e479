"""Message and AsyncMessage: one delivery of a message; and the bodies that a publisher may pass, as bytes.

    a fetched message  -->  ack, nack, release, reject, touch  -->  the client that fetched it
    a body  -->  bytes_of_body, json_of          a reason, perhaps an exception  -->  text_of_reason

The two classes differ only in that the methods of AsyncMessage are awaited. A message holds no connection of its own.
A subclass of a type that JSON knows is written as that type, because readers expect that type: a frozen or a localised
datetime becomes a datetime. BadField names a value that cannot be written.
"""

from collections.abc import Awaitable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from wakeq.client.arguments.models import Model, is_model, written, written_in_order
from wakeq.client.arguments.spans import Span
from wakeq.protocol.errors import BadField, WakeqError
from wakeq.protocol.wire.worker.codec import Followup
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX


def json_of(value: object) -> bytes:
    """Return the value as JSON, or raise BadField."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise BadField(f"a text in the value cannot be sent as UTF-8 ({error}); send bytes instead") from None
    except RecursionError:
        raise BadField("the value is nested too deeply for JSON; does it contain itself?") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadField(f"the value cannot be written as JSON ({error})") from None


def canonical_json_of(value: object) -> bytes:
    """Return JSON that is the same in every process: mappings and sets are sorted.

    Raise BadField for a set that cannot be sorted.
    """
    try:
        plain = msgspec.to_builtins(value, enc_hook=_written_in_order_as, order="deterministic", str_keys=True)
        return _ENCODER.encode(plain)
    # What zip raises for a model that pydantic writes in two shapes is a ValueError.
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField(f"the value has no order that is the same everywhere ({error}); use a list, not a set") from None


def text_of_reason(reason: object) -> str:
    """Return why something failed as text that can be sent: lone surrogates are escaped, and long text is cut."""
    kind = type(reason).__name__
    try:
        text = str(reason)
    except Exception as error:
        # `__str__` is code of the program and may fail, too.
        text = f"(its text is not available: {type(error).__name__})"
    text = f"{kind}: {text}" if isinstance(reason, BaseException) else text
    return text[:ERROR_CHARS_MAX].encode("utf-8", "backslashreplace").decode()[:ERROR_CHARS_MAX]


def plain_text(text: str) -> str:
    """Return a plain str for an instance of str or a subclass."""
    return str.__str__(text)


def _written_as(value: Any) -> Any:
    """Return the value that stands in JSON for a value of a type that msgspec does not know."""
    match value:
        case str():
            return plain_text(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes(memoryview(value))
        # A datetime is a date, too.
        case date() | time():
            return value.isoformat()
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case Decimal():
            return str(value)
        case Mapping():
            return dict(value)
        case _:
            kind = type(value)
            if is_model(kind):
                return written(value)
            raise BadField(
                f"{kind.__module__}.{kind.__qualname__} is not JSON-serializable, or not as a key; "
                "pass text, numbers, lists and dicts instead"
            )


def _written_in_order_as(value: Any) -> Any:
    """Return the same as `_written_as`, with sorted sets."""
    return written_in_order(value) if is_model(type(value)) else _written_as(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_written_as)


class Dataclass(Protocol):
    """An instance of any dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Scalar: TypeAlias = int | float | bool | Decimal | date | time | timedelta | UUID | Enum | None
Collection: TypeAlias = Mapping[Any, Any] | list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
Body: TypeAlias = str | bytes | bytearray | memoryview | Scalar | Collection | Dataclass | msgspec.Struct | Model
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
        delay: Span | None = None,
        lease: str | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
    ) -> T_co: ...

    def touch(self, queue: str, *uids: str, timeout: Span | None = None, lease: str | None = None) -> T_co: ...


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

    def nack(self, delay: Span | None = None, *, error: Reason | None = None) -> bool:
        """Report a failure: redeliver after `delay` seconds, or by the queue's retry policy. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    def release(self, delay: Span = 0) -> bool:
        """Return the message to the queue for `delay` seconds later; this counts as no failure. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    def reject(self, reason: Reason) -> bool:
        """Make the message a dead letter now: it will never succeed. False: it was gone."""
        self.settled = True
        return self.client.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    def touch(self, seconds: Span | None = None) -> bool:
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

    async def nack(self, delay: Span | None = None, *, error: Reason | None = None) -> bool:
        """Report a failure: redeliver after `delay` seconds, or by the queue's retry policy. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=_text(error))

    async def release(self, delay: Span = 0) -> bool:
        """Return the message to the queue for `delay` seconds later; this counts as no failure. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, delay=delay, lease=self.lease, failed=False)

    async def reject(self, reason: Reason) -> bool:
        """Make the message a dead letter now: it will never succeed. False: it was gone."""
        self.settled = True
        return await self.client.nack(self.queue, self.uid, lease=self.lease, error=_text(reason), dead=True)

    async def touch(self, seconds: Span | None = None) -> bool:
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
