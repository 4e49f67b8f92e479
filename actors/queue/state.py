"""A queue's state on its way to the state store and back.  Pure: in and out go ledgers, deltas and stored queues."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Self

import msgspec
from msgspec.structs import replace

from wakeq.protocol.catalog import Policies
from wakeq.protocol.queue.bodies import Moments, Stretch
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.ledger.ledger import Ledger, Totals
from wakeq.protocol.queue.ledger.uniform import UniformBatch
from wakeq.storage.state.checkpoint import QueueDelta, StoredQueue, decoded

_encode = msgspec.msgpack.Encoder().encode


class QueueMeta(msgspec.Struct):
    """The QUEUES record of one queue."""

    name: str
    id: int
    policies: Policies
    next_number: int
    created_ms: int
    totals: Totals
    paused_until_ms: int = 0

    @classmethod
    def of(cls, ledger: Ledger, created_ms: int) -> Self:
        about = ledger.name, ledger.id, ledger.policies, ledger.columns.next_number, created_ms, ledger.totals
        return cls(*about, ledger.paused_until_ms)

    @classmethod
    def read(cls, stored: bytes) -> Self:
        """Return what was written down; raise BadRecord if it is something else."""
        meta: Self = decoded(stored, cls, "what a queue is")
        return meta


def delta_of(
    ledger: Ledger,
    fresh: Sequence[Stretch],
    moments: Moments,
    gone: Sequence[int],
    uids_of: Callable[[Sequence[int]], list[str]],
    meta: QueueMeta,
) -> QueueDelta:
    """Take from a ledger what changed since the last flush, with copies of what goes on changing."""
    delta = ledger.collect()
    records, aliased, rewrites = ledger.deliveries.records, ledger.columns.aliased, EMPTY_DICT
    if delta.touched:
        first = fresh[0].first if fresh else ledger.columns.next_number  # whatever lives from here on is fresh
        touched = [number for number in delta.touched if number < first]
        rewrites = dict(zip(uids_of(touched), [replace(records[number]) for number in touched], strict=True))
    return QueueDelta(
        ledger.name,
        ledger.id,
        fresh,
        moments,
        {number: aliased[number] for number in _numbers_of(fresh) if number in aliased} if aliased else EMPTY_DICT,
        _columns_of(ledger, fresh) if ledger.columns.has_moments else EMPTY_DICT,
        {number: replace(records[number]) for number in _numbers_of(fresh) if number in records}
        if records
        else EMPTY_DICT,
        rewrites,
        gone,
        delta,
        _encode(meta),
        ledger.columns.next_number,
    )


def _numbers_of(fresh: Sequence[Stretch]) -> Iterator[int]:
    return chain.from_iterable([stretch.numbers(0, len(stretch.drafts)) for stretch in fresh])


def _columns_of(ledger: Ledger, fresh: Sequence[Stretch]) -> dict[int, tuple[int, int]]:
    """Return due and expiry of those that have one; most have none."""
    columns = {}
    for stretch in fresh:
        if type(stretch.drafts) is UniformBatch:
            shape = stretch.drafts.shape
            numbers = stretch.numbers(0, len(stretch.drafts)) if shape.delay_ms or shape.expires_ms else ()
        else:
            numbers = [number for number, draft in stretch.rows() if draft.delay_ms or draft.expires_ms]
        for number in numbers:
            columns[number] = (ledger.columns.published_due_of(number), ledger.columns.expires_of(number))
    return columns


def restore_ledger(ledger: Ledger, stored: StoredQueue) -> QueueMeta:
    """Bring a new ledger to the state that was written down."""
    meta = QueueMeta.read(stored.meta)
    ledger.begin(meta.id, meta.policies)
    ledger.columns.next_number = meta.next_number
    ledger.totals = meta.totals
    ledger.paused_until_ms = meta.paused_until_ms
    for number, alias in stored.aliases.items():
        ledger.columns.keep_alias(number, alias)
    for chunk_id, chunk in stored.chunks:
        ledger.columns.restore_chunk(chunk_id, chunk)
    for number, record in stored.sides.items():
        ledger.deliveries.restore(number, record)
    ledger.restore_publishers(stored.ids, stored.sessions)
    ledger.restore_staging(stored.staged)
    return meta
