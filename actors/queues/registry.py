"""QueueRegistry: which queues exist, with which policies, and the process of each.

    entries that create, change and delete queues --> catalog, processes, graves
    what is filed for a queue without a process --> a new process;  mail for it --> an answer, if nobody will wait

The lowest layer of Queues.  Only committed entries change the catalog.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from wakeq.actors.mail import Crowded, Follow, Gone, Item, Propose, ReplyByMail, Staying, Unsent
from wakeq.actors.queue.fetching import Lead
from wakeq.actors.queue.process import ASKED, QueueProcess, refuse_order
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queue.state import QueueMeta
from wakeq.actors.queues.listing import Listing
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.actors.runtime import Process
from wakeq.protocol.catalog import Catalog, Policies, QueueRecord, changed, check
from wakeq.protocol.errors import BadField
from wakeq.protocol.log.entries import (
    CreateQueue,
    DeleteQueue,
    Imported,
    Members,
    PauseQueue,
    PurgeQueue,
    Result,
    SetAside,
    UpdateQueue,
)
from wakeq.protocol.log.outcomes import WHOLE, Note
from wakeq.protocol.queue.lanes import AckTickets, AnswerOnCommit, SharesOnCommit, Tickets
from wakeq.protocol.queue.lanes import Filed as FiledCommands
from wakeq.protocol.queue.orders import Nack, Stats, Touch
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.queue.publishers import Limits
from wakeq.protocol.raft.membership import Config
from wakeq.storage.state.cut import Grave, StoredQueue

FLUSH_AFTER_MS = 1_000
FLUSH_BYTES = 16 << 20  # written to the log since the last cut

DEFAULT_QUEUE = ""


class Settings(msgspec.Struct, frozen=True):
    """The settings of Queues."""

    limits: Limits = Limits()
    flush_after_ms: int = FLUSH_AFTER_MS
    flush_bytes: int = FLUSH_BYTES
    defaults: Policies = Policies()  # of the default queue
    created: Policies | None = None  # of a queue that a publish creates; None: the built-in ones


class CrowdedOut(msgspec.Struct, frozen=True, gc=False):
    """To itself: something is being filed for a queue that may not be made."""

    queue: str


class QueueRegistry(Process):
    """The catalog, and a process for each queue in it and for each name that somebody waits for."""

    def __init__(self, services: QueueProcessServices, settings: Settings) -> None:
        super().__init__()
        self.catalog = Catalog()
        self.term = 0
        self._followed_term = 0  # the last term in which this node led, once it no longer does
        self._services = services
        self._settings = settings
        self._processes: dict[str, QueueProcess] = {}
        self._graves: list[Grave] = []  # incarnations that the state store has to remove
        self._newest_id = 0  # of the queue that was created last
        self._noops: list[Item] = []  # with which this node begins to lead, once the queues know what stands before
        self._notes: list[Note] = []  # entries since the last cut that did not do what they ask for
        self._rebuilding: set[str] = set()
        self._unled: set[str] = set()  # rebuilt, and not handing out yet
        self._members: list[tuple[int, Config]] = []  # of the cluster, from which entry on; as far back as the log goes
        self._members_changed = False  # since the last cut
        self._crowd: Refusal | None = None  # for whoever waits for a queue that is not there, while there are too many
        self._halted: dict[str, SetAside] = {}  # queues that wait for an entry to be set aside
        services.lobby.open(self, self.open_queue)

    @property
    def held_bytes(self) -> int:
        """Bytes of all messages in all queues."""
        return sum(process.ledger.bytes for process in self._processes.values())

    @property
    def queues_count(self) -> int:
        """How many queues there are."""
        return len(self.catalog.queues)

    def on_crowded(self, message: Crowded) -> None:
        self._crowd = message.refusal

    def exists(self, name: str) -> bool:
        return name in self.catalog.queues

    def restore(self, stored: StoredQueue) -> None:
        """Take a queue from the state store; only before any mail."""
        meta = QueueMeta.read(stored.meta)
        self.catalog.put(meta.name, meta.id, meta.policies, meta.created_ms)
        self._spawn(meta.name).restore(stored)

    def restore_members(self, members: Sequence[tuple[int, Config]]) -> None:
        """Take the members of the cluster from the state store; only before any mail."""
        self._members = list(members)

    def _lead(self, term: int) -> None:
        """Lead: have every queue build its leases, and create the default queue if it is missing."""
        self.term = term
        for process in self._processes.values():
            process.tell(Lead(term))
        if DEFAULT_QUEUE not in self.catalog.queues:
            create = CreateQueue(DEFAULT_QUEUE, self._settings.defaults)
            self._services.raft_log.tell(Propose([(create, None)]))

    def on_follow(self, message: Follow) -> None:
        """This node leads no longer: no queue hands out any more."""
        self.term, self._followed_term = 0, message.term
        for lanes in self._services.lobby.all_filed():
            if self._serving(lanes.name) is None:  # else its process refuses what was filed
                _refuse_filed(lanes.take(), message.refusal)
        for process in self._processes.values():
            process.tell(message)
        for name in self._unled:  # they waited for entries that their predecessors proposed as leader
            if name in self._processes:
                self.runtime.register(("queue", name), self._processes[name])
        self._unled.clear()

    def _spawn(self, name: str) -> QueueProcess:
        process = self.runtime.spawn(QueueProcess, name, self._services, self._settings.limits, self)
        self._processes[name] = process
        self.runtime.register(("queue", name), process)
        return process

    def _create(self, name: str, policies: Policies, item: Item) -> None:
        assert item[0] > self._newest_id, f"entry {item[0]} makes a second queue, {name!r}, and has an id for one"
        self._newest_id = item[0]
        self.catalog.put(name, item[0], policies, item[2])
        if name not in self._halted and name not in self._rebuilding:  # else its process comes with the rebuild
            self._process(name)

    def _process(self, name: str) -> QueueProcess:
        """Return the process of a queue, which need not exist yet."""
        process = self._processes.get(name)
        if process is None:
            process = self._spawn(name)
            if self.term:
                process.tell(Lead(self.term))
        return process

    def _serving(self, name: str) -> QueueProcess | None:
        """Return the process of a queue, unless it has just crashed and nothing that it is told is heard."""
        process = self._processes.get(name)
        return process if process is not None and process.alive else None

    def _answer(self, asker: Any, outcome: Any) -> None:
        """Answer for a queue that does not exist, or that an entry was not given to."""
        if asker is None:
            return
        if isinstance(asker, Tickets | AckTickets) and type(outcome) is Outcome:
            for slot, code in zip(asker.slots, outcome.results, strict=True):
                slot.tell(int(code))
            return
        if type(asker) is AnswerOnCommit:
            asker.tell(asker.if_void)
        else:
            asker.tell(None if type(asker) is SharesOnCommit else outcome)

    def _answer_unknown(self, entry: Any, asker: Any) -> None:
        count = len(getattr(entry, "numbers", ())) or 1
        self._answer(asker, Outcome(entry.queue, 0, [Result.UNKNOWN] * count))

    def _note_refused(self, item: Item, code: int) -> None:
        """Remember for the readers of the log that an entry changed nothing."""
        self._notes.append((item[0], WHOLE, int(code)))

    # --- entries that name one queue -------------------------------------------------------------------------------

    def _route_create(self, entry: CreateQueue, item: Item) -> bool:
        if entry.queue in self.catalog.queues:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.EXISTS]))
            self._note_refused(item, Result.EXISTS)
            return False
        self._create(entry.queue, entry.policies, item)
        return True

    def _route_update(self, entry: UpdateQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        try:
            policies = changed(record.policies, entry.changes)
            check(entry.queue, policies)
        except BadField as error:
            self._answer(item[4], Refusal(error.code, str(error)))
            self._note_refused(item, Result.REJECTED)
            return False
        self.catalog.put(entry.queue, record.id, policies, record.created_ms)
        return True

    def _route_delete(self, entry: DeleteQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        if entry.queue == DEFAULT_QUEUE:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.DEFAULT_QUEUE]))
            self._note_refused(item, Result.DEFAULT_QUEUE)
            return False
        self._graves.append(Grave(entry.queue, record.id))
        self.catalog.remove(entry.queue)
        return True

    def _route_purge(self, entry: PurgeQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        self._graves.append(Grave(entry.queue, record.id))
        self.catalog.put(entry.queue, item[0], record.policies, record.created_ms)
        return True

    def _route_pause(self, entry: PauseQueue, item: Item) -> bool:
        return self._existing(entry, item) is not None

    def _existing(self, entry: UpdateQueue | DeleteQueue | PurgeQueue | PauseQueue, item: Item) -> QueueRecord | None:
        record = self.catalog.find(entry.queue)
        if record is None:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.NO_QUEUE]))
            self._note_refused(item, Result.NO_QUEUE)
        return record

    def _route_members(self, entry: Members, item: Item) -> bool:
        """Keep the cluster's members as part of the state: once the log is cut, a start finds them nowhere else."""
        self._members.append((item[0], entry.config))
        self._members_changed = True
        self._answer(item[4], {"members": [member.node_id for member in entry.config.members]})
        return False

    def _route_imported(self, entry: Imported, item: Item) -> bool:
        return False

    # --- what is asked of queues that have no process yet ------------------------------------------------------------

    def open_queue(self, name: str) -> None:
        """Something was filed for a queue without a process that serves: one that is being rebuilt finds it later."""
        if name in self._processes or name in self._rebuilding or name in self._halted or name in self._unled:
            if self._is_serving(name):
                self._processes[name].tell(TAKE_TURN)
            return
        if self._crowd is not None and name not in self.catalog.queues:
            self.tell(CrowdedOut(name))  # later in this round: nothing is filed yet
            return
        self._process(name).tell(TAKE_TURN)

    def _is_serving(self, name: str) -> bool:
        """Whether what is told to a queue is heard, and acted on."""
        is_away = name in self._rebuilding or name in self._halted or name in self._unled
        return not is_away and self._serving(name) is not None

    def on_crowded_out(self, message: CrowdedOut) -> None:
        """There are too many queues: nobody may make this one, or wait for it."""
        name, lobby, crowd = message.queue, self._services.lobby, self._crowd
        if crowd is None or name in self._processes:
            self.open_queue(name)  # there is room by now
            return
        _refuse_filed(lobby.lanes_of(name).take(), self._services.refusal() or crowd)
        lobby.forget(name)

    def _forward(self, message: Any) -> None:
        name = message.queue
        process = self._processes.get(name)
        has_crashed = process is not None and not process.alive  # and its Crashed is still in the mailbox
        if has_crashed or name in self._rebuilding or name in self._halted or name in self._unled:
            self._put_off(message)
            return
        if process is None:
            self._refuse(message)
            return
        process.tell(message)

    def _put_off(self, message: Any) -> None:
        """The queue is being rebuilt: a FET gets nothing, a sleeper is woken to try again, the others hear BUSY."""
        refusal = self._services.refusal()
        if isinstance(message, ASKED):
            busy = Refusal("BUSY", f"queue {message.queue} is being rebuilt; try again")
            self._answer(message.asker, refusal or busy)

    def _refuse(self, message: Any) -> None:
        """Say that there is no such queue, or, if this node may not serve and so cannot know, who does."""
        elsewhere = self._services.refusal()
        missing = Refusal("Q_NOT_FOUND", f"queue {message.queue} does not exist; publish to it or subscribe first")
        if isinstance(message, Touch | Nack) and elsewhere is None:
            outcome = Outcome(message.queue, 0, [Result.UNKNOWN] * len(message.uids))
            message.asker.tell(outcome)
        else:
            self._answer(message.asker, elsewhere or missing)

    def on_stats(self, message: Stats) -> None:
        if not message.all_queues:
            self._forward(message)
            return
        refusal = self._services.refusal()
        if refusal is not None:
            self._answer(message.asker, refusal)
            return
        after, sees = message.after, message.sees
        names = sorted(name for name in self.catalog.queues if name.startswith(message.prefix))
        behind = (name for name in names if after is None or name > after)
        seen = (name for name in behind if sees is None or sees(name))  # before `limit` counts them
        self._ask_figures(Listing(message.asker, list(islice(seen, message.limit or None)), brief=message.brief))

    def _ask_figures(self, listing: Listing) -> None:
        """Ask the next slice of a listing, skipping slices of which no queue is left."""
        while names := listing.next_slice():
            asked = [(place, self._serving(name)) for place, name in names]
            complete = [listing.add(place, None) for place, process in asked if process is None]
            for place, process in asked:
                if process is not None:
                    asker = ReplyByMail(self, partial(self._take_figures, listing, place))
                    process.tell(Stats(asker, process.name, brief=listing.brief))
            if not any(complete):
                return
        self._answer(listing.asker, listing.rows)

    def _take_figures(self, listing: Listing, place: int, figures: Any) -> None:
        if listing.add(place, figures):
            self._ask_figures(listing)

    def on_nothing(self, message: Gone | Staying | Unsent) -> None:
        """Pass mail on that was sent here because its queue had no process; it may have one by now."""
        process = self._processes.get(message.queue)
        if process is not None:
            process.tell(message)


def _refuse_filed(filed: FiledCommands | None, refusal: Refusal) -> None:
    """Refuse everything that was filed in a queue's lanes."""
    if filed is None:
        return
    for slot in filed.slots():
        slot.tell(refusal)
    for order in filed.orders:
        refuse_order(order, refusal)
