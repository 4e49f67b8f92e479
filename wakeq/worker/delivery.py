"""What a handler gets of a delivery, and how one is made fit to be sent to another process.

A delivery is a `Received` of the client, whoever brought it.  A handler never settles it: how it ends is a Outcome.
"""

from typing import Any, NoReturn

from wakeq.client.message import Message, Received
from wakeq.protocol.errors import WakeqError


class SettledByWorker(WakeqError):
    """A handler tried to settle its message itself."""

    code = "SETTLED_BY_WORKER"


class _NotYours:
    """Stands where a message has its client: the Worker settles what a handler gets, and once."""

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise SettledByWorker("the Worker settles this message: return, or raise Retry, Snooze or Reject")

    ack = nack = touch = _refuse


_NOT_YOURS = _NotYours()


def message_of(delivery: Received) -> Message:
    """The message for a handler that takes it raw."""
    return Message(**_facts(delivery), headers=delivery.headers, client=_NOT_YOURS)


def parcel_of(delivery: Received) -> Received:
    """The same as plain data that can be pickled."""
    return Received(**_facts(delivery), headers=dict(delivery.headers))


def _facts(delivery: Received) -> dict[str, Any]:
    return {
        "queue": delivery.queue,
        "uid": delivery.uid,
        "body": delivery.body,
        "lease": delivery.lease,
        "delivery": delivery.delivery,
        "failures": delivery.failures,
        "priority": delivery.priority,
    }
