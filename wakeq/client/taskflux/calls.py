"""What both TaskFlux clients can be asked for, as requests: the arguments of users become packets here, once.

Pure.  A call is a function that makes its request, because a request is used up by being said.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from wakeq.client.taskflux.records import Cluster, QueueInfo, Record
from wakeq.client.taskflux.requests import (
    Enqueues,
    Request,
    Single,
    cluster_in,
    count_in,
    done,
    queues_in,
    taken,
)
from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.taskflux import packets as wire
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, Dialect

T = TypeVar("T")
Call: TypeAlias = Callable[[], Request[T]]

DIALECT_NAMES = ("spec", "csharp")
IMPLEMENTATIONS = {"H4": wire.H4, "QA": wire.QA}
TIMEOUT_MS_MAX = 2**32 - 1


def dialect_named(name: str) -> Dialect:
    """Return what a client may speak."""
    if name not in DIALECT_NAMES:
        raise BadField(f"dialect {name!r} is not known; use one of {', '.join(DIALECT_NAMES)}")
    return DIALECTS[name]


def payload_of(payload: bytes | str) -> bytes:
    """Return text as UTF-8, and bytes as they are."""
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def enqueues(queue: str, records: Iterable[tuple[int, bytes | str]], dialect: Dialect) -> Call[None]:
    """Records for one queue, each with its key."""
    together = [(key, payload_of(payload)) for key, payload in records]
    said: list[Enqueues] = []

    def make() -> Enqueues:
        said.append(said[-1].rest() if said else Enqueues(queue, together, dialect))
        return said[-1]

    return make


def dequeue(queue: str, wait_s: float, dialect: Dialect) -> Call[Record | bool]:
    """The record with the smallest key, or False."""
    wait_ms = round(wait_s * 1000)
    if not 0 <= wait_ms <= TIMEOUT_MS_MAX:
        raise BadField(f"wait is {wait_s} seconds, it must be 0 to {TIMEOUT_MS_MAX // 1000}")
    packet = wire.Dequeue(queue, wait_ms)
    return lambda: Single(packet, taken, queue, dialect, wait_s=wait_s)


def settle(queue: str, *, ack: bool, dialect: Dialect) -> Request[bool]:
    """What becomes of the record that was taken."""
    return Single(wire.ACK if ack else wire.NACK, done, queue, dialect, may_repeat=False)


def create(
    queue: str,
    implementation: str,
    max_size: int | None,
    max_payload: int | None,
    key_range: tuple[int, int] | None,
    dialect: Dialect,
) -> Call[bool]:
    """A new queue."""
    if implementation not in IMPLEMENTATIONS:
        raise BadField(f"implementation {implementation!r} is not known; use H4 or QA")
    size = wire.UNLIMITED if max_size is None else max_size
    payload = wire.UNLIMITED if max_payload is None else max_payload
    packet = wire.CreateQueue(queue, IMPLEMENTATIONS[implementation], size, payload, key_range)
    return lambda: Single(packet, done, queue, dialect, may_repeat=False)


def delete(queue: str, dialect: Dialect) -> Call[bool]:
    return lambda: Single(wire.DeleteQueue(queue), done, queue, dialect, may_repeat=False)


def count(queue: str, dialect: Dialect) -> Call[int]:
    return lambda: Single(wire.Count(queue), count_in, queue, dialect)


def queues(dialect: Dialect) -> Call[dict[str, QueueInfo]]:
    return lambda: Single(wire.ListQueues(), queues_in, "", dialect)


def cluster(dialect: Dialect) -> Call[Cluster]:
    return lambda: Single(wire.ClusterMetadataRequest(), cluster_in, "", dialect)
