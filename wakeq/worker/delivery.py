"""The message that a handler receives, and the form in which a delivery is sent to another process.

A delivery is a `Received` of the client. A handler never acknowledges it: the Worker reports its Outcome.
"""

from typing import Any, NoReturn

from wakeq.client.message import Message, Received
from wakeq.protocol.errors import WakeqError


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
