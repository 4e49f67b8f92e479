"""Lanes and sessions of the worker protocol by hand: what was filed can be looked at, and a test gives the outcomes.

    session.say({...}) --> bytes --> codec --> Conversation --> HandLobby.filed(name)
    slot.tell(outcome) --> session.hear() --> bytes --> JSON

No queue, no log and no actor is here, and nothing is ever answered but by the test.
"""

import json
from collections.abc import Iterator
from typing import Any

from wakeq.protocol.errors import Refused, Unauthorized
from wakeq.protocol.queue.lanes import Acks, Filed, Lanes, Run
from wakeq.protocol.queue.outcomes import Delivery, Outcome, Refusal
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.blocks import parts_of
from wakeq.protocol.wire.worker.conversation import Conversation, Limits

Json = dict[str, Any]

DOOR_TCP = 1
MESSAGE_BYTES_MAX = 100
TERM = 3
TOKEN = "good"


class HandLobby:
    """The lanes of all queues, and which queues were woken for them."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lanes] = {}
        self.woken: list[str] = []

    def lanes_of(self, name: str) -> Lanes:
        if name not in self.lanes:
            self.lanes[name] = Lanes(name)
        return self.lanes[name]

    def filed(self, name: str) -> Filed:
        """Return where to file; the first to file has the queue woken."""
        lanes = self.lanes_of(name)
        if lanes.filed is None:
            lanes.filed = Filed()
            self.woken.append(name)
        return lanes.filed

    def take(self, name: str) -> Filed:
        """Take what was filed for a queue, as its turn does; it may be nothing."""
        return self.lanes_of(name).take() or Filed()


class HandSession:
    """A session that keeps what its conversation wants of it."""

    alive = True
    sends_frames = True
    needs_permission = True

    def __init__(self, lobby: HandLobby | None = None, number: int = 1, door_kind: int = DOOR_TCP) -> None:
        self.number, self.door_kind = number, door_kind
        self.lobby = lobby or HandLobby()
        self.filed = self.lobby.filed
        self.is_dirty = False
        self.dirtied = 0  # how often it was to be flushed
        self.refused: Refusal | None = None  # what this node says to whoever wants something of it
        self.forbidden: dict[type, Refused] = {}  # by kind of command
        self.withdrawn: dict[int, Refusal] = {}  # by term
        self.subscribed: set[str] = set()
        self.asked: list[Any] = []  # what was asked of the leader
        self.administered: list[tuple[Slot, Any]] = []
        self.changes: list[Any] = []
        self.unsent: list[tuple[str, list[Delivery]]] = []
        self.conversation = Conversation(self, Limits(message_bytes_max=MESSAGE_BYTES_MAX, version="1"))

    # --- what the conversation needs -------------------------------------------------------------------------------

    def note_dirty(self) -> None:
        assert not self.is_dirty, "it is flushed once"
        self.is_dirty = True
        self.dirtied += 1

    def refusal(self) -> Refusal | None:
        return self.refused

    def withdrawal(self, term: int) -> Refusal | None:
        return self.withdrawn.get(term)

    def permit(self, command: Any) -> Refused | None:
        return self.forbidden.get(type(command))

    def denial_of_fetch(self, queue: str) -> Refused | None:
        return None

    def log_in(self, token: str | None) -> None:
        if token not in (None, TOKEN):
            raise Unauthorized("the token is not valid")

    def subscribe(self, name: str) -> None:
        self.subscribed.add(name)

    def unsubscribe(self, name: str) -> None:
        self.subscribed.discard(name)

    def ask_leader(self, question: Any) -> None:
        self.asked.append(question)

    def administer(self, slot: Slot, command: Any) -> None:
        self.administered.append((slot, command))

    def note_change(self, command: Any) -> None:
        self.changes.append(command)

    def return_unsent(self, name: str, deliveries: list[Delivery]) -> None:
        self.unsent.append((name, deliveries))

    # --- what a client says and hears ------------------------------------------------------------------------------

    def say(self, *commands: Json | bytes) -> None:
        """Let one read of the connection bring these."""
        lines = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in commands)
        self.conversation.receive(wire.decode(lines))

    def send(self) -> bytes:
        """Flush, and return the bytes that leave."""
        self.is_dirty = False
        return wire.encode(self.conversation.take_replies())

    def hear(self) -> list[Json]:
        """Flush until nothing more comes of it, and return what the client reads."""
        heard: list[Json] = []
        while True:
            for text, block in parts_of(self.send()):
                lines = [json.loads(line) for line in text.splitlines()]
                heard += lines if block is None else [lines[0] | {"raw": block}]
            if not self.is_dirty:
                return heard

    def words(self) -> list[str]:
        """The same, but only what each reply is."""
        return [reply["cmd"] for reply in self.hear()]


# --- what was filed --------------------------------------------------------------------------------------------------


def bodies(filed: Filed) -> list[list[bytes]]:
    """Return the bodies of each publish entry, in their order."""
    drafts = [one.drafts if isinstance(one, Run) else one.entry.drafts for one in filed.publishes]
    return [[draft.body for draft in mine] for mine in drafts]


def publish_slots(filed: Filed) -> list[Slot]:
    """Return the slot of each publish, in the order in which they will be stored."""
    return [slot for one in filed.publishes for slot in (one.slots if isinstance(one, Run) else [one.slot])]


def ack_slots(filed: Filed) -> list[Slot]:
    """Return the slot of each acknowledgement that publishes nothing."""
    return [slot for one in filed.acks for slot in (one.slots if isinstance(one, Acks) else [one.slot])]


def publish_all(filed: Filed) -> None:
    """Answer every publish as a queue does that has stored it."""
    for one in filed.publishes:
        if isinstance(one, Run):
            for slot in one.slots:
                slot.tell(f"uid of {slot.command.message}")
        else:
            one.slot.tell(Outcome(one.entry.queue, 7, range(1, len(one.entry.drafts) + 1)))


def delivery(body: str, number: int = 1, *, term: int = TERM) -> Delivery:
    """Return a message on its way to a worker."""
    return Delivery(f"uid of {body}", 0, 0, body.encode(), (term, number), 0, b"", 7, number, 0)


def everything(filed: Filed) -> Iterator[Slot]:
    """Yield the slots of all that was filed."""
    yield from filed.slots()
    for order in filed.orders:
        slot = getattr(order, "slot", None) or getattr(order, "asker", None)
        if slot is not None:
            yield slot
