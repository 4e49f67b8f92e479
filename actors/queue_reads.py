"""QueueReads: what one queue process is made of, and the bodies that it has read because they are not in memory.

    numbers, what to do with them --> the reader --Loaded--> that is done; or nobody waits for it any more

The lowest part of a queue process.  It never touches a file, and never lets anybody wait for a read that is over.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from wakeq.actors.audience import Waiter
from wakeq.actors.bodies import Bodies, Found, read_from
from wakeq.actors.leases import Leases
from wakeq.actors.messages import Asker, Loaded, Refusal
from wakeq.actors.runtime import Process, Timers
from wakeq.protocol.catalog import Policies
from wakeq.protocol.empty import EMPTY_DICT
from wakeq.protocol.ledger import Ledger
from wakeq.protocol.outcomes import Note
from wakeq.protocol.publishers import Limits
from wakeq.protocol.uid import UidMaker
from wakeq.storage.flush import key_of, keys_of

BODIES_AHEAD = 256  # bodies to have at hand when they have to be read ...
BODIES_AHEAD_MAX = 1_024  # ... and of a queue that is emptied fast, since every read is a hand-over to another thread
READ_AHEAD_BYTES_MAX = 1 << 20


class Services(NamedTuple):
    """What a queue process is given to work with."""

    raft_log: Process
    timers: Timers
    now_ms: Callable[[], int]
    due_ms: Callable[[int], int]  # when so much true time will have passed
    load: Callable[[Process, list[int], list[bytes], Any], None]  # read bodies; Loaded comes by mail
    later: Callable[[float, Callable[[], None]], Any]
    chance: Callable[[], float]
    refusal: Callable[[], Refusal | None]  # why nothing may be handed out at this moment
    held_back: Callable[[int], Refusal | None]  # why nothing of a level may be proposed yet


class Turn(msgspec.Struct, gc=False, eq=False):
    """A FET whose messages were taken out of the line, and not handed out yet."""

    numbers: list[int]
    waiter: Waiter  # whose time is over at once, if it does not wait
    is_read_for: bool


class Look(msgspec.Struct, gc=False, eq=False):
    """Something to be done with messages once they are read, and who is to hear of it if it never is."""

    step: Callable[[Found], None]
    asker: Asker | None


Ticket = Turn | Look | None  # of what is read ahead nobody waits


class QueueReads(Process):
    """A queue's state, and what is read of it."""

    def __init__(self, name: str, services: Services, limits: Limits, supervisor: Process) -> None:
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
        self._stored_gone: list[int] | tuple[()] = ()  # what the state store is to forget
        self._unchanged: list[Note] | tuple[()] = ()  # what the readers of the log are to be told
        self._applying = 0
        self._handling: Any = None
        self._since_read = 0
        self._ahead = BODIES_AHEAD
        self._reading = False
        self._looks: dict[int, Look] = EMPTY_DICT  # what waits for a read, but for FETs

    @property
    def exists(self) -> bool:
        return self.ledger.id > 0

    def _note(self, notes: list[Note]) -> None:
        """Remember for the readers of the log what did not do what an entry asks for."""
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
        """Return under which keys the state store has these messages."""
        if self.ledger.aliased:
            return [key_of(self.name, uid) for uid in self._uids_of(numbers)]
        return keys_of(self.name, self._uids_of(numbers))

    @abstractmethod
    def _has_come(self, turn: Turn) -> None:
        """What was read for this FET is in memory."""

    def _read(self, numbers: list[int], ticket: Ticket) -> None:
        self._services.load(self, numbers, self._keys_of(numbers), (self.ledger.id, ticket))

    def _handed_out(self, count: int) -> None:
        """Read on in time."""
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
        if queue_id != self.ledger.id:  # whoever waited has heard so
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
        """Do a step with these messages, perhaps later; what has to be read for that is not kept."""
        kept = ((number, self.bodies.kept(number)) for number in numbers)
        found = {number: one for number, one in kept if one is not None}  # while the rest is read it may be dropped
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
        """Answer at once who waits for a look at bodies: when they come, what it would say may hold no longer."""
        looks, self._looks = self._looks, EMPTY_DICT
        for look in looks.values():
            if look.asker is not None:
                look.asker.tell(refusal)
