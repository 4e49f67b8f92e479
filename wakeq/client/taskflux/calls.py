"""The calls of both TaskFlux clients: arguments are turned into packets here, once.

Pure. A call is a function that makes its request, because a request that is sent again has to be a new one.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from wakeq.client.taskflux.records import Cluster, QueueInfo, Record
from wakeq.client.taskflux.requests import (
    EnqueueRequest,
    Request,
    SingleRequest,
    cluster_in,
    count_in,
    is_ok,
    queues_in,
    record_in,
)
from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.taskflux import commands as wire
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, Dialect

T = TypeVar("T")
Call: TypeAlias = Callable[[], Request[T]]

DIALECT_NAMES = ("spec", "csharp")
IMPLEMENTATIONS = {"H4": wire.H4, "QA": wire.QA}
TIMEOUT_MS_MAX = 2**32 - 1


def dialect_named(name: str) -> Dialect:
    """Return the dialect with this name, or raise BadField."""
    if name not in DIALECT_NAMES:
        raise BadField(f"dialect {name!r} is not known; use one of {', '.join(DIALECT_NAMES)}")
    return DIALECTS[name]


def payload_of(payload: bytes | str) -> bytes:
    """Return text as UTF-8, and bytes as they are."""
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def enqueues(queue: str, records: Iterable[tuple[int, bytes | str]], dialect: Dialect) -> Call[None]:
    """Store records, each with its key."""
    batch = [(key, payload_of(payload)) for key, payload in records]
    requests: list[EnqueueRequest] = []

    def make() -> EnqueueRequest:
        requests.append(requests[-1].rest() if requests else EnqueueRequest(queue, batch, dialect))
        return requests[-1]

    return make


def dequeue(queue: str, wait_s: float, dialect: Dialect) -> Call[Record | bool]:
    """Take the record with the smallest key; False if there is none."""
    wait_ms = round(wait_s * 1000)
    if not 0 <= wait_ms <= TIMEOUT_MS_MAX:
        raise BadField(f"wait is {wait_s} seconds, it must be 0 to {TIMEOUT_MS_MAX // 1000}")
    packet = wire.Dequeue(queue, wait_ms)
    return lambda: SingleRequest(packet, record_in, queue, dialect, wait_s=wait_s)


def end_record(queue: str, *, ack: bool, dialect: Dialect) -> Request[bool]:
    """Acknowledge a record, or return it to the queue."""
    return SingleRequest(wire.ACK if ack else wire.NACK, is_ok, queue, dialect, may_repeat=False)


def create(
    queue: str,
    implementation: str,
    max_size: int | None,
    max_payload: int | None,
    key_range: tuple[int, int] | None,
    dialect: Dialect,
) -> Call[bool]:
    """Create a queue."""
    if implementation not in IMPLEMENTATIONS:
        raise BadField(f"implementation {implementation!r} is not known; use H4 or QA")
    size = wire.UNLIMITED if max_size is None else max_size
    payload = wire.UNLIMITED if max_payload is None else max_payload
    packet = wire.CreateQueue(queue, IMPLEMENTATIONS[implementation], size, payload, key_range)
    return lambda: SingleRequest(packet, is_ok, queue, dialect, may_repeat=False)


def delete(queue: str, dialect: Dialect) -> Call[bool]:
    return lambda: SingleRequest(wire.DeleteQueue(queue), is_ok, queue, dialect, may_repeat=False)


def count(queue: str, dialect: Dialect) -> Call[int]:
    return lambda: SingleRequest(wire.Count(queue), count_in, queue, dialect)


def queues(dialect: Dialect) -> Call[dict[str, QueueInfo]]:
    return lambda: SingleRequest(wire.ListQueues(), queues_in, "", dialect)


def cluster(dialect: Dialect) -> Call[Cluster]:
    return lambda: SingleRequest(wire.ClusterMetadataRequest(), cluster_in, "", dialect)
