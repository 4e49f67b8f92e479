"""current(): what a handler may ask about the message it works on, and the place for what it publishes with its ack.

Kept in a context variable, so it is right in threads, in coroutines and in processes, and in whatever they call.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, overload

from wakeq.client.message import Body, Received
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker.outcome import DONE, Done

if TYPE_CHECKING:
    from wakeq.worker.task import Publisher

P = ParamSpec("P")


class NoHandler(WakeqError, LookupError):
    """current() was called where no handler runs."""

    code = "NO_HANDLER"


class Current:
    """The message that is being handled."""

    __slots__ = ("_message", "_then")

    def __init__(self, message: Received) -> None:
        self._message = message
        self._then: list[wire.Followup] = []

    @property
    def queue(self) -> str:
        return self._message.queue

    @property
    def uid(self) -> str:
        return self._message.uid

    @property
    def delivery(self) -> int:
        """1 for the first one, 2 for the second ..."""
        return self._message.delivery

    @property
    def failures(self) -> int:
        """How many deliveries of this message failed before."""
        return self._message.failures

    @property
    def headers(self) -> Mapping[str, str]:
        return self._message.headers

    @property
    def priority(self) -> int:
        return self._message.priority

    @property
    def lease(self) -> str | None:
        """The fencing token of this delivery: a store that keeps the last one it saw can refuse an older worker."""
        return self._message.lease

    @overload
    def then(self, target: "Publisher[P]", /, *args: P.args, **kwargs: P.kwargs) -> None: ...

    @overload
    def then(self, target: str, body: Body, /) -> None: ...

    def then(self, target: "Publisher[Any] | str", /, *args: Any, **kwargs: Any) -> None:
        """Publish this in the same step as the acknowledgement: both happen or neither.

        Of a handler that does not return nothing is published.  For a task: its arguments, as in
        `current().then(audit, uid=uid)` or `current().then(audit.options(delay=60), uid=uid)`; for the name of a
        queue: a body.
        """
        from wakeq.worker.task import followup_of

        self._then.append(followup_of(target, args, kwargs))

    def done(self) -> Done:
        """The outcome on a handler that returned."""
        return Done(tuple(self._then)) if self._then else DONE


CURRENT: ContextVar[Current] = ContextVar("wakeq.current")


def current() -> Current:
    """The message that the calling handler works on."""
    try:
        return CURRENT.get()
    except LookupError:
        raise NoHandler("no handler runs here; current() is for code that a Worker called") from None


class LogContext(logging.Filter):
    """Gives every record `queue`, `uid` and `delivery` of the message that is being handled, or "-".

    Attach it to a logging handler (`handler.addFilter(LogContext())`) and name the fields in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        found = CURRENT.get(None)
        record.queue, record.uid, record.delivery = (found.queue, found.uid, found.delivery) if found else ("-",) * 3
        return True
