"""QueueReads: what a queue process is made of, and how it reads bodies that are not in memory.

    numbers, what to do with their bodies --> the reader thread --Loaded--> that is done, unless nobody waits any more

The lowest layer of a queue process.  It never touches a file, and leaves nobody waiting for a read that is over.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from wakeq.actors.mail import Asker, Loaded, Refusal
from wakeq.actors.runtime import Process, Timers
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.outcomes import Note
from wakeq.protocol.queue.bodies import Bodies, Found, read_from
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.leases.audience import Waiter
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger import Ledger
from wakeq.protocol.queue.publishers import Limits
from wakeq.protocol.uid import UidMaker
from wakeq.storage.state.cut import key_of, keys_of

BODIES_AHEAD = 256  # bodies to read ahead at first ...
BODIES_AHEAD_MAX = 1_024  # ... and at most, on a queue that is emptied fast: each read is a hand-over to a thread
READ_AHEAD_BYTES_MAX = 1 << 20


class QueueProcessServices(NamedTuple):
    """What a queue process is given to work with."""

    raft_log: Process
    timers: Timers
    now_ms: Callable[[], int]
    due_ms: Callable[[int], int]  # the moment from which on a delay of so many milliseconds is surely over
    load: Callable[[Process, list[int], list[bytes], Any], None]  # read bodies; the answer is a Loaded
    later: Callable[[float, Callable[[], None]], Any]
    chance: Callable[[], float]
    refusal: Callable[[], Refusal | None]  # why nothing may be handed out at this moment
    waits_since_ms: Callable[[], int]  # since when the log has waited for the oldest of what is not committed
    free_bytes: Callable[[], int]  # of the disk


class Turn(msgspec.Struct, gc=False, eq=False):
    """A FET whose messages were taken out of the line, but wait for a read, their own or that of an earlier FET."""

    numbers: list[int]
    waiter: Waiter  # the FET; one without `wait` has a time that is already over
    is_read_for: bool  # its own bodies are being read


class Look(msgspec.Struct, gc=False, eq=False):
    """Something to do with messages once they are read, and whom to refuse if that does not happen."""

    step: Callable[[Found], None]
    asker: Asker | None


Ticket = Turn | Look | None  # what a read is for; None: it was read ahead


class QueueReads(Process):
    """A queue's state, and what is read of it."""

    def __init__(self, name: str, services: QueueProcessServices, limits: Limits, supervisor: Process) -> None:
        super().__init__()
        self.name = name
        self.ledger = Ledger(name, 0, Policies(), limits)
        self.created_ms = 0
        self.bodies = Bodies()
        self.leases: Leases | None = None
        self.term = 0
        self.wakes = 0
        self._counted_from = (0, 0)  # wakes and sequence of leases when this node began to lead
        self._uids: UidMaker | None = None  # of this incarnation, made when needed
        self._services = services
        self._now_ms = services.now_ms
        self._supervisor = supervisor
        self._raft_log = services.raft_log
        self._alarm_ms = 0
        self._stored_gone: list[int] | tuple[()] = ()  # numbers that the state store has to remove
        self._unchanged: list[Note] | tuple[()] = ()  # what changed nothing, for readers of the log
        self._applying = 0  # index of the entry that is being applied, 0 for none
        self._handling: Any = None  # the message that is being handled
        self._since_read = 0  # messages handed out since bodies were last read ahead
        self._ahead = BODIES_AHEAD
        self._reading = False  # ahead
        self._looks: dict[int, Look] = EMPTY_DICT  # that wait for a read, by their identity

    @property
    def exists(self) -> bool:
        return self.ledger.id > 0

    def _note(self, notes: list[Note]) -> None:
        """Note what did not do what its entry asks for, for readers of the log."""
        if self._unchanged:
            self._unchanged += notes
        else:
            self._unchanged = notes

    def _uids_of(self, numbers: Sequence[int]) -> list[str]:
        maker, aliased = self._uids, self.ledger.aliased
        if maker is None:
            maker = self._uids = UidMaker(self.ledger.id)
        if not aliased:
            return maker.uids(numbers)
        return [aliased.get(number) or maker.uid(number) for number in numbers]

    def _keys_of(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the keys of these messages in the state store."""
        if self.ledger.aliased:
            return [key_of(self.name, uid) for uid in self._uids_of(numbers)]
        return keys_of(self.name, self._uids_of(numbers))

    @abstractmethod
    def _has_come(self, turn: Turn) -> None:
        """Go on with a FET: what was read for it is in memory."""

    def _read(self, numbers: list[int], ticket: Ticket) -> None:
        self._services.load(self, numbers, self._keys_of(numbers), (self.ledger.id, ticket))

    def _handed_out(self, count: int) -> None:
        """Count messages that left, and read on before what was read ahead is used up."""
        self._since_read += count
        if self._since_read >= self._ahead // 2 and len(self.bodies) < self.ledger.living:
            self._ahead = min(2 * self._ahead, BODIES_AHEAD_MAX)
            self._read_ahead()

    def _read_ahead(self) -> None:
        """Have the bodies of the next in line read before somebody asks for them."""
        self._since_read = 0
        if self._reading or self.leases is None:
            return
        living = self.ledger.living_among(self.leases.next_numbers(self._ahead))
        ahead = self.bodies.missing(living[: self.ledger.count_within(living, READ_AHEAD_BYTES_MAX)])
        if ahead:
            self._reading = True
            self._read(ahead, None)

    def on_loaded(self, message: Loaded) -> None:
        queue_id, ticket = message.ticket
        if ticket is None:
            self._reading = False
        if queue_id != self.ledger.id:  # of an earlier incarnation; whoever waited for it has an answer
            return
        read = read_from(message.numbers, message.values, self.ledger, self.name)
        if type(ticket) is Look:
            if self._looks and self._looks.pop(id(ticket), None) is not None:  # else it was refused meanwhile
                ticket.step(read)
            return
        self.bodies.load(read)
        if type(ticket) is Turn:
            self._has_come(ticket)

    def _with_found(self, numbers: Sequence[int], asker: Asker | None, step: Callable[[Found], None]) -> None:
        """Do a step with these messages, at once or when they are read; what is read for it is not kept in memory."""
        kept = ((number, self.bodies.kept(number)) for number in numbers)
        found = {number: one for number, one in kept if one is not None}  # they may be dropped while the rest is read
        missing = [number for number in numbers if number not in found]
        if missing:
            look = Look(lambda read: step(found | read), asker)
            if self._looks is EMPTY_DICT:
                self._looks = {}
            self._looks[id(look)] = look
            self._read(missing, look)
        else:
            step(found)

    def _refuse_looks(self, refusal: Refusal) -> None:
        """Refuse everything that waits for a look at bodies: its answer might no longer be true when they arrive."""
        looks, self._looks = self._looks, EMPTY_DICT
        for look in looks.values():
            if look.asker is not None:
                look.asker.tell(refusal)
