"""What a handler sees of its message: the message itself, and current(), with follow-ups for its acknowledgement.

`current()` is kept in a context variable, so it is correct in threads, coroutines and processes, and in all code they
call. A handler never acknowledges its message: the Worker reports its outcome.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, overload

from wakeq.client.message import Body, Message, Received
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker.outcome import DONE, Done

if TYPE_CHECKING:
    from wakeq.worker.task import Publisher

P = ParamSpec("P")


class SettledByWorker(WakeqError):
    """A handler tried to acknowledge or return its message itself."""

    code = "SETTLED_BY_WORKER"


class _RefusingClient:
    """Stands where a message has its client: the Worker reports the outcome of a message, and reports it once."""

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise SettledByWorker("the Worker settles this message: return, or raise Retry, Snooze or Reject")

    ack = nack = touch = _refuse


_REFUSING_CLIENT = _RefusingClient()


def message_of(delivery: Received) -> Message:
    """Return the message for a handler that takes the raw message."""
    return Message(**_fields(delivery), headers=delivery.headers, client=_REFUSING_CLIENT)


def picklable(delivery: Received) -> Received:
    """Return a copy that can be pickled."""
    return Received(**_fields(delivery), headers=dict(delivery.headers))


def _fields(delivery: Received) -> dict[str, Any]:
    return {
        "queue": delivery.queue,
        "uid": delivery.uid,
        "body": delivery.body,
        "lease": delivery.lease,
        "delivery": delivery.delivery,
        "failures": delivery.failures,
        "priority": delivery.priority,
    }


class NoHandler(WakeqError, LookupError):
    """current() was called outside of a handler."""

    code = "NO_HANDLER"


class Current:
    """The message that a handler works on."""

    __slots__ = ("_message", "_then")

    def __init__(self, message: Received) -> None:
        self._message = message
        # Follow-ups.
        self._then: list[wire.Followup] = []

    @property
    def queue(self) -> str:
        return self._message.queue

    @property
    def uid(self) -> str:
        return self._message.uid

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def delivery(self) -> int:
        """The number of this delivery of the message, from 1."""
        return self._message.delivery

    @property
    def failures(self) -> int:
        """How many earlier deliveries of this message failed."""
        return self._message.failures

    @property
    def headers(self) -> Mapping[str, str]:
        return self._message.headers

    @property
    def priority(self) -> int:
        return self._message.priority

    @property
    def lease(self) -> str | None:
        """The fencing token of this delivery: a store that remembers the newest one can refuse an older worker."""
        return self._message.lease

    @overload
    def then(self, target: "Publisher[P]", /, *args: P.args, **kwargs: P.kwargs) -> None: ...

    @overload
    def then(self, target: str, body: Body, /) -> None: ...

    def then(self, target: "Publisher[Any] | str", /, *args: Any, **kwargs: Any) -> None:
        """Publish a follow-up in the same step as the acknowledgement: both happen or neither.

        If the handler does not return, nothing is published. For a task, pass its arguments, as in
        `current().then(audit, uid=uid)` or `current().then(audit.options(delay=60), uid=uid)`. For the name of a queue,
        pass a body.
        """
        from wakeq.worker.task import followup_of

        self._then.append(followup_of(target, args, kwargs))

    def done(self) -> Done:
        """Return the outcome for a handler that returned."""
        return Done(tuple(self._then)) if self._then else DONE


CURRENT: ContextVar[Current] = ContextVar("wakeq.current")


def current() -> Current:
    """Return the message that the calling handler works on."""
    try:
        return CURRENT.get()
    except LookupError:
        raise NoHandler("no handler runs here; current() is for code that a Worker called") from None


class LogContext(logging.Filter):
    """Adds `queue`, `uid` and `delivery` of the message that is being handled to each record, or "-".

    Attach it to a logging handler (`handler.addFilter(LogContext())`) and name the fields in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        found = CURRENT.get(None)
        record.queue, record.uid, record.delivery = (found.queue, found.uid, found.delivery) if found else ("-",) * 3
        return True
