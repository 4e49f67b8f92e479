"""LogEntries: what is proposed, who asked for it, and what becomes of it.

    entries --> stamp, index, bytes --> (the log) --> committed: Committed to the queues, with the askers
                                                  --> never will be: NOT_LEADER
                                                  --> cannot be known in time: UNKNOWN

The second layer of RaftLog.  An asker is kept beside its entry, never in its bytes, and is answered once.  When a new
leader makes this node drop an entry, another node may still have it and bring it back: the entry is gone for good only
once an entry of a later term is committed.
"""

import logging
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from wakeq.actors.log.files import LogFiles, LogServices
from wakeq.actors.mail import Committed, Crowded, Item, NoopTicket, Pressure
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import BadField, NotLeader, OutcomeUnknown
from wakeq.protocol.log.entries import Ack, CreateQueue, Entry, Imported, Publish, Stash, lengthened
from wakeq.protocol.log.format import PAYLOAD_BYTES_MAX
from wakeq.protocol.log.records import ENCODERS, encode_entry
from wakeq.protocol.names import DEFAULT_QUEUE
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.core import Core

Encoded = tuple[Sequence[Proposal], list[bytes]]

UNKNOWN = Refusal(OutcomeUnknown.code, "the leader changed meanwhile: this was done, or not; look, or repeat it")
TAKEN_BACK = Refusal(NotLeader.code, "the leader changed meanwhile, and this was not done; repeat it there")

logger = logging.getLogger("wakeq.raft_log")


class LogEntries(LogFiles):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices) -> None:
        super().__init__(core, services)
        self.synced_entries = 0
        self._queues: Process | None = None
        self._uncommitted: deque[Item] = deque()
        self._orphans: dict[tuple[int, int], Any] = {}  # by index and term: askers of entries that were dropped
        self._refusal: Refusal | None = None  # for entries that need room on disk, while there is none
        self._crowded: Crowded | None = None  # for entries that would create a queue, while there are too many
        self._admits_all = True  # neither

    # --- in --------------------------------------------------------------------------------------------------------

    def _append(self, items: Sequence[Proposal]) -> None:
        """Stamp entries, give them their indexes, and put them into the log's buffer."""
        if not self._admits_all:
            items = self._admitted(items)
        at_ms = self._stamp_ms()
        behind_ms = self._behind_ms()
        if behind_ms:
            items = [(lengthened(entry, behind_ms), asker) for entry, asker in items]
        taken, payloads = self._encode(items, at_ms)
        if len(payloads) == 1:
            self._enter(self.core.propose(1, len(payloads[0])), at_ms, taken, payloads)
        elif payloads:
            self._enter(self.core.propose(len(payloads), sum(map(len, payloads))), at_ms, taken, payloads)

    def _encode(self, items: Sequence[Proposal], at_ms: int) -> Encoded:
        """Return the proposals that the log can take, and their bytes; refuse the others."""
        with suppress(struct.error, OverflowError):
            payloads = [ENCODERS[type(entry)](entry, at_ms) for entry, _ in items]
            if max(map(len, payloads), default=0) <= PAYLOAD_BYTES_MAX:
                return items, payloads
        return self._encode_each(items, at_ms)

    def _encode_each(self, items: Sequence[Proposal], at_ms: int) -> Encoded:
        """The same, one by one, after one of them has failed."""
        taken, payloads = [], []
        for item in items:
            entry, asker = item
            try:
                payload = encode_entry(entry, at_ms)
                if len(payload) > PAYLOAD_BYTES_MAX:
                    raise OverflowError(f"an entry of {len(payload)} bytes, the log takes {PAYLOAD_BYTES_MAX}")
            except (struct.error, OverflowError) as error:
                logger.error("an entry for queue %r cannot be written: %s", entry.queue, error)
                answer(asker, Refusal(BadField.code, f"a number is out of range: {error}"))  # a codec let it through
                continue
            payloads.append(payload)
            taken.append(item)
        return taken, payloads

    def _enter(self, first_index: int, at_ms: int, items: Sequence[Proposal], payloads: list[bytes]) -> None:
        """Put entries of this node's term into the log's buffer, and remember who asked."""
        term, uncommitted = self.core.state.term, self._uncommitted
        self._put(first_index, term, payloads)
        for index, (entry, asker) in enumerate(items, first_index):
            uncommitted.append((index, term, at_ms, entry, asker))

    def _admitted(self, items: Sequence[Proposal]) -> list[Proposal]:
        """Refuse entries that need room on disk, or a new queue; return the others, which may make room."""
        admitted = []
        for entry, asker in items:
            if self._refusal is not None and _needs_room(entry):
                answer(asker, self._refusal)
            elif self._crowded is not None and not all(map(self._crowded.exists, _made_by(entry))):
                assert self._crowded.refusal is not None, "else it is None itself"
                answer(asker, self._crowded.refusal)
            else:
                admitted.append((entry, asker))
        return admitted

    def on_pressure(self, message: Pressure) -> None:
        self._refusal = message.refusal
        self._admits_all = self._refusal is None and self._crowded is None

    def on_crowded(self, message: Crowded) -> None:
        self._crowded = None if message.refusal is None else message
        self._admits_all = self._refusal is None and self._crowded is None

    # --- out -------------------------------------------------------------------------------------------------------

    def _hand_over(self, commit: int) -> None:
        """Hand everything up to the commit index to the queues."""
        uncommitted = self._uncommitted
        if uncommitted and uncommitted[-1][0] <= commit:
            items = list(uncommitted)
            uncommitted.clear()
        else:
            items = []
            while uncommitted and uncommitted[0][0] <= commit:
                items.append(uncommitted.popleft())
        if items:
            if self._orphans:
                self._bury(items[-1][1])
            self.synced_entries += len(items)
            assert self._queues is not None, "started first"
            self._queues.tell(Committed(items))

    def _take_back(self, index: int) -> None:
        """Entries from here on are dropped from this log; whether they are lost is not known yet."""
        while self._uncommitted and self._uncommitted[-1][0] >= index:
            at, term, _at_ms, _entry, asker = self._uncommitted.pop()
            if asker is not None:
                self._orphans[at, term] = asker

    def _bury(self, term: int) -> None:
        """An entry of this term is committed: what was dropped of earlier terms cannot come back."""
        for key in [key for key in self._orphans if key[1] < term]:
            answer(self._orphans.pop(key), TAKEN_BACK)

    def _drop_promises(self) -> None:
        """This node leads no longer: its no-ops must not make it lead, even if they are committed later."""
        self._uncommitted = deque(
            (index, term, at_ms, entry, None if type(asker) is NoopTicket else asker)
            for index, term, at_ms, entry, asker in self._uncommitted
        )

    def _give_up(self, term: int) -> None:
        """Answer UNKNOWN to the askers of a term that is over: they have waited long enough for an outcome."""
        for place, (index, of_term, at_ms, entry, asker) in enumerate(self._uncommitted):
            if asker is not None and of_term <= term:
                answer(asker, UNKNOWN)
                self._uncommitted[place] = (index, of_term, at_ms, entry, None)
        for key in [key for key in self._orphans if key[1] <= term]:
            answer(self._orphans.pop(key), UNKNOWN)


def answer(asker: Any, refusal: Refusal) -> None:
    """Refuse an entry to whoever asked for it, if anybody did."""
    if asker is not None:
        asker.tell(refusal)


def _made_by(entry: Entry) -> list[str]:
    """Return the queues that an entry creates if they are missing; dead letters and the default queue may."""
    match entry:
        case Publish(must_exist=False) | Stash() | CreateQueue() if entry.queue != DEFAULT_QUEUE:
            return [entry.queue]
        case Ack(dead=False):
            return [publish.queue for publish in entry.publishes]
    return []


def _needs_room(entry: Entry) -> bool:
    match entry:
        case Publish() | Stash() | CreateQueue() | Imported():
            return True
        case Ack():
            return bool(entry.publishes) and not entry.dead
    return False
