"""QueueCatalog: what committed entries change of the catalog, and what the next flush writes down of it.

    CreateQueue, UpdateQueue, DeleteQueue, PurgeQueue, PauseQueue, Members --> change --> None: its queue applies it
                                                                                   or Declined: why no queue does
    take_graves, take_members --> the state store

Pure but for `created`, which gives a new queue its process.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.actors.mail import LogItem
from wakeq.protocol.catalog import Catalog, Policies, changed, check
from wakeq.protocol.errors import BadField
from wakeq.protocol.log.entries import (
    CreateQueue,
    DeleteQueue,
    Members,
    PauseQueue,
    PurgeQueue,
    Result,
    UpdateQueue,
)
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.raft.membership import Config
from wakeq.storage.state.checkpoint import Grave

DEFAULT_QUEUE = ""


class Declined(msgspec.Struct, frozen=True, gc=False):
    """Why no queue applies an entry."""

    # What whoever asked is answered.
    answer: Any
    # What readers of the log are told: a Result, 0 if the entry has done what it asks for.
    code: int = 0


class QueueCatalog:
    """Which queues exist.  Only committed entries change it."""

    def __init__(self, catalog: Catalog, created: Callable[[str], None]) -> None:
        # The names, ids and policies of all queues.
        self.catalog = catalog
        # Hears the name of each queue that an entry creates.
        self._created = created
        # The id of the queue that was created last.
        self._newest_id = 0
        # Incarnations that ended since the last flush; the state store has to remove them.
        self._graves: list[Grave] = []
        # The members of the cluster, each with the entry that named them, as far back as the log reaches.
        self._members: list[tuple[int, Config]] = []
        # Whether the members have changed since the last flush.
        self._members_changed = False

    def restore_members(self, members: Sequence[tuple[int, Config]]) -> None:
        """Take the members of the cluster from the state store; only before any entry."""
        self._members = list(members)

    def create(self, name: str, policies: Policies, item: LogItem) -> None:
        """Create a queue; the index of the entry becomes its id."""
        assert item.index > self._newest_id, f"entry {item.index} makes a second queue, {name!r}, and has an id for one"
        self._newest_id = item.index
        self.catalog.put(name, item.index, policies, item.at_ms)
        self._created(name)

    def change(self, item: LogItem) -> Declined | None:
        """Make the change of an entry; return None if its queue has to apply it, too."""
        entry, queues = item.entry, self.catalog.queues
        match entry:
            case CreateQueue():
                if entry.queue in queues:
                    return _declined(entry.queue, Result.EXISTS)
                self.create(entry.queue, entry.policies, item)
                return None
            case Members():
                # A part of the state: once the log is cut, a start finds the members nowhere else.
                self._members.append((item.index, entry.config))
                self._members_changed = True
                return Declined({"members": [member.node_id for member in entry.config.members]})
        assert isinstance(entry, UpdateQueue | DeleteQueue | PurgeQueue | PauseQueue), (
            "nothing else changes the catalog"
        )
        record = queues.get(entry.queue)
        if record is None:
            return _declined(entry.queue, Result.NO_QUEUE)
        match entry:
            case UpdateQueue():
                try:
                    policies = changed(record.policies, entry.changes)
                    check(entry.queue, policies)
                except BadField as error:
                    return Declined(Refusal(error.code, str(error)), int(Result.REJECTED))
                self.catalog.put(entry.queue, record.id, policies, record.created_ms)
            case DeleteQueue():
                if entry.queue == DEFAULT_QUEUE:
                    return _declined(entry.queue, Result.DEFAULT_QUEUE)
                self._graves.append(Grave(entry.queue, record.id))
                self.catalog.remove(entry.queue)
            case PurgeQueue():
                self._graves.append(Grave(entry.queue, record.id))
                self.catalog.put(entry.queue, item.index, record.policies, record.created_ms)
        return None

    # --- what a flush writes down ------------------------------------------------------------------------------------

    @property
    def has_graves(self) -> bool:
        return bool(self._graves)

    def take_graves(self) -> list[Grave]:
        """Return the incarnations that ended since the last call."""
        graves, self._graves = self._graves, []
        return graves

    def take_members(self, first_index: int) -> list[tuple[int, Config]]:
        """Return the members since the first entry of the log, if they have changed: peers may need each of them."""
        if not self._members_changed:
            return []
        self._members_changed = False
        while len(self._members) > 1 and self._members[1][0] < first_index:
            del self._members[0]
        return list(self._members)


def _declined(queue: str, result: Result) -> Declined:
    return Declined(Outcome(queue, 0, [result]), int(result))
