"""Admission: which entries the log takes while the disk is full, or there are too many queues.

    Pressure, Crowded --> what is refused from now on        proposals --> those that are admitted

A part of RaftLog, and the only one that looks inside an entry.  What makes room is always admitted.
"""

from collections.abc import Sequence

from wakeq.actors.log.pending import refuse
from wakeq.actors.mail import Crowded, Pressure
from wakeq.protocol.log.entries import Ack, CreateQueue, Entry, Imported, Publish, Stash, Unstash, makes_queue
from wakeq.protocol.names import DEFAULT_QUEUE
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal


class Admission:
    """`takes_all` is what is asked for every write; nearly always it is true."""

    def __init__(self) -> None:
        self.takes_all = True  # neither of the two refuses anything
        self._no_room: Refusal | None = None  # for entries that need room on disk, while there is none
        self._crowded: Crowded | None = None  # for entries that would create a queue, while there are too many

    def on_pressure(self, message: Pressure) -> None:
        self._no_room = message.refusal
        self.takes_all = self._no_room is None and self._crowded is None

    def on_crowded(self, message: Crowded) -> None:
        self._crowded = None if message.refusal is None else message
        self.takes_all = self._no_room is None and self._crowded is None

    def admitted(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Refuse entries that need room on disk, or a new queue; return the others, which may make room."""
        admitted = []
        for proposal in proposals:
            if self._no_room is not None and _needs_room(proposal.entry):
                refuse(proposal.reply_to, self._no_room)
            elif self._crowded is not None and not all(map(self._crowded.exists, _made_by(proposal.entry))):
                assert self._crowded.refusal is not None, "else it is None itself"
                refuse(proposal.reply_to, self._crowded.refusal)
            else:
                admitted.append(proposal)
        return admitted


def _made_by(entry: Entry) -> list[str]:
    """Return the queues that an entry creates if they are missing; dead letters and the default queue may."""
    match entry:
        case Unstash() if makes_queue(entry) and entry.queue != DEFAULT_QUEUE:
            return [entry.queue]
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
