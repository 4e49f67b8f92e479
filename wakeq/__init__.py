"""wakeq: a durable task broker. `import wakeq` is the client side only and loads no server code.

The names below are imported on their first use, so that a program that needs only the version, or an error to catch,
pays for nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wakeq.client import Client, Message
    from wakeq.client.aio import AsyncClient, AsyncMessage
    from wakeq.client.taskflux.aio import AsyncTaskFluxClient
    from wakeq.client.taskflux.blocking import TaskFluxClient
    from wakeq.protocol import errors
    from wakeq.protocol.errors import (
        BrokerUnreachable,
        Busy,
        Disconnected,
        NotLeader,
        QueueExists,
        QueueFull,
        QueueNotFound,
        Refused,
        StaleLease,
        TooLarge,
        WakeqError,
    )
    from wakeq.protocol.wire.worker.commands import Followup
    from wakeq.worker import Reject, Retry, Snooze, Worker, current, resource

HOMES = {
    "AsyncClient": "wakeq.client.aio",
    "AsyncMessage": "wakeq.client.aio",
    "AsyncTaskFluxClient": "wakeq.client.taskflux.aio",
    "Client": "wakeq.client",
    "Message": "wakeq.client",
    "errors": "wakeq.protocol",
    "BrokerUnreachable": "wakeq.protocol.errors",
    "Disconnected": "wakeq.protocol.errors",
    "Followup": "wakeq.protocol.wire.worker.commands",
    "NotLeader": "wakeq.protocol.errors",
    "Busy": "wakeq.protocol.errors",
    "QueueExists": "wakeq.protocol.errors",
    "QueueFull": "wakeq.protocol.errors",
    "TooLarge": "wakeq.protocol.errors",
    "QueueNotFound": "wakeq.protocol.errors",
    "Refused": "wakeq.protocol.errors",
    "StaleLease": "wakeq.protocol.errors",
    "TaskFluxClient": "wakeq.client.taskflux.blocking",
    "WakeqError": "wakeq.protocol.errors",
    "Reject": "wakeq.worker",
    "Retry": "wakeq.worker",
    "Snooze": "wakeq.worker",
    "Worker": "wakeq.worker",
    "current": "wakeq.worker",
    "resource": "wakeq.worker",
}

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "AsyncTaskFluxClient",
    "BrokerUnreachable",
    "Busy",
    "Client",
    "Disconnected",
    "Followup",
    "Message",
    "NotLeader",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "Refused",
    "Reject",
    "Retry",
    "Snooze",
    "StaleLease",
    "TaskFluxClient",
    "TooLarge",
    "WakeqError",
    "Worker",
    "__version__",
    "current",
    "errors",
    "resource",
]


# A type checker that saw this function would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name on its first use."""
        if name not in HOMES:
            raise AttributeError(f"module 'wakeq' has no attribute {name!r}")
        if name == "errors":
            return import_module("wakeq.protocol.errors")
        value = getattr(import_module(HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
