"""Counts the bodies of all messages of a queue, whatever their state, without changing anything."""

from collections import Counter

from wakeq.client.bulk import BulkClient
from wakeq.protocol.wire.worker.blocks import Buffers


def bodies_of(client: BulkClient, queue: str) -> Counter[str]:
    """Return how often each body is in a queue."""
    found, after = Counter[str](), 0
    while True:
        block = client.peek_block(queue, after=after, count=10_000)
        if block.rows:
            bodies = Buffers(block.block, block.rows, block.columns).texts("body")
            found.update(bytes(body).decode() for body in bodies)
        if not block.next:
            return found
        after = block.next
