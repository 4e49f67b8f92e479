"""Import: turns the files of version 1 into entries of the log.  Pure.

In: what storage/version1.py read.  Out: an entry that creates each queue, then its messages in batches, then an
entry that ends the import.
"""

from collections.abc import Iterator

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import CreateQueue, Draft, Entry, Imported, Publish
from wakeq.storage.version1 import Import, ImportedQueue

# Messages in one entry.
BATCH = 1_000


def entries_of(found: Import) -> Iterator[Entry]:
    """Yield the entries; messages are accepted even beyond the limit of their queue."""
    drafts: list[Draft] = []
    queue = ""
    for item in found.items:
        if isinstance(item, ImportedQueue):
            if drafts:
                yield Publish(queue, drafts, forced=True)
            queue, drafts = item.name, []
            yield CreateQueue(item.name, _policies(item))
            continue
        drafts.append(Draft(item.payload, item.key))
        if len(drafts) == BATCH:
            yield Publish(queue, drafts, forced=True)
            drafts = []
    if drafts:
        yield Publish(queue, drafts, forced=True)
    yield Imported()


def _policies(queue: ImportedQueue) -> Policies:
    return Policies(
        max_size=queue.max_size or None,
        max_message_size=queue.max_message_size,
        priority_min=queue.priority_min,
        priority_max=queue.priority_max,
        structure="QA" if queue.structure == "QA" else "H4",
    )
