"""WorkerSession: one connection of the worker protocol.

    door --> conversation.receive --> lanes of queues          slots with outcomes --> flush --> one write --> door

It holds a door and a conversation, and is what the conversation needs of the node: lanes, permissions, the log.  What a
command does is decided elsewhere; no byte and no rule of a queue is known here.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from wakeq.actors.mail import Gone, Inquire, Unsent, Woken
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.access import STRANGER, Gate
from wakeq.actors.sessions.door import (
    DOOR_WORKER_WS,
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_LOW,
    IN_FLIGHT_MAX,
    KEPT_BYTES_MIN,
    QUEUES_ASKED_MAX,
    Batches,
    Closed,
    Door,
    Ended,
    Received,
    describe,
)
from wakeq.actors.sessions.operator_mail import Administer, Describe
from wakeq.actors.sessions.permissions import refusal_of
from wakeq.protocol.access import Right
from wakeq.protocol.errors import Refused
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.outcomes import Delivery
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.conversation import Conversation, Limits
from wakeq.protocol.wire.worker.identity import facts_of

logger = logging.getLogger("wakeq.admin")  # the same as for operations over HTTP


class WorkerServices(NamedTuple):
    """What every session of the worker protocol works with."""

    raft_log: Any  # RaftLog: says whether this node serves, and is asked what only a leader knows
    lobby: Lobby
    limits: Limits
    now_ms: Callable[[], int]
    gate: Gate | None = None  # None: whoever can connect may do everything


class WorkerSession(Process):
    """See the head of this file."""

    def __init__(self, door: Door[wire.Reply], number: int, services: WorkerServices) -> None:
        super().__init__()
        self.number = number  # of the connection, in the log and in the history
        self.since_ms = services.now_ms()  # when the client connected
        self.door_kind = door.kind
        self.sends_frames = door.kind != DOOR_WORKER_WS
        self.is_dirty = False  # there is something to send at the end of the round
        self.needs_permission = services.gate is not None
        self.filed = services.lobby.filed
        self.refusal = services.raft_log.refusal
        self.withdrawal = services.raft_log.withdrawal
        self._door = door
        self._services = services
        self._access = None if services.gate is None else door.access or STRANGER
        self._conversation = Conversation(self, services.limits)
        self._batches: Batches | None = None  # what is under way, while it is much
        self._in_flight_bytes = 0  # read since the connection last owed no answer
        self._is_paused = False  # nothing more is read from the connection

    # --- what the door brings ----------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Received:
            commands, conversation = message.commands, self._conversation
            self._in_flight_bytes += message.size_bytes
            apart = len(conversation.apart) if conversation.apart else 0
            in_flight = len(conversation.slots) + apart + len(commands)
            if self._in_flight_bytes > KEPT_BYTES_MIN or in_flight > IN_FLIGHT_MAX:
                self._count(len(commands), message.size_bytes)
            conversation.receive(commands)
        elif kind is Woken:
            replies = self._conversation.awk(message.queue)
            if replies:
                self._door.send(replies)
        elif kind is Ended:
            self._conversation.has_ended = True
            self._conversation.end_waits()
            self._finish_if_answered()
        elif kind is Closed:
            self.stop()
        elif kind is Describe:
            message.asker.tell(self._described(fully=message.fully))

    def _described(self, *, fully: bool) -> dict[str, Any]:
        conversation = self._conversation
        facts = describe(self, self.number, self._door, self.since_ms, in_flight=conversation.in_flight)
        if fully:
            facts["identity"] = facts_of(conversation.identity)
            known = conversation.known_queues or ()
            facts["known_queues"] = list(islice(known, QUEUES_ASKED_MAX))
            facts["knows_more_queues"] = len(known) > QUEUES_ASKED_MAX
        return facts

    def _count(self, commands: int, size_bytes: int) -> None:
        """Count what came into all that is held; read no more while that is too much."""
        many = self._conversation.in_flight + commands > IN_FLIGHT_MAX
        if self._batches is None:
            self._batches = Batches()
        self._batches.add(commands, size_bytes)
        has_room = self._door.keep(self._batches.size_bytes)
        much = many or self._in_flight_bytes > IN_FLIGHT_BYTES_MAX
        if (much or not has_room) and not self._is_paused:
            self._is_paused = True
            self._door.pause()

    # --- what the conversation needs ---------------------------------------------------------------------------------

    def note_dirty(self) -> None:
        """There is something to send: flush at the end of the round."""
        self.is_dirty = True
        self.runtime.flush_later(self)

    def permit(self, command: Any) -> Refused | None:
        """Return why this client may not do this."""
        access, gate = self._access, self._services.gate
        if access is None or type(command) is wire.Hello:
            return None
        refusal = refusal_of(command, access)
        if refusal is not None and gate is not None and not access.is_known:
            gate.miss_token(self._door.peer)
        return refusal

    def denial_of_fetch(self, queue: str) -> Refused | None:
        """Return why this client may not fetch from a queue."""
        access = self._access
        return None if access is None or access.may(Right.FETCH, queue) else access.refusal(Right.FETCH, queue)

    def log_in(self, token: str | None) -> None:
        """Check the token, if this node requires one; a client that has given one need not repeat it."""
        gate, access = self._services.gate, self._access
        if gate is None or access is None or (token is None and access.is_known):
            return
        self._access = gate.login(token, self._door)
        self._door.welcome()

    def subscribe(self, name: str) -> None:
        """Join the subscribers of a queue."""
        self.runtime.groups.join(("subscribers", name), self)

    def unsubscribe(self, name: str) -> None:
        """Leave them."""
        self.runtime.groups.leave(("subscribers", name), self)

    def ask_leader(self, question: orders.Peek | orders.Stats) -> None:
        """Have a question answered once a majority has confirmed that this node leads."""
        self._services.raft_log.tell(Inquire(question))

    def administer(self, slot: Slot, command: wire.Cluster) -> None:
        """Do what an operator asks of the cluster; the log of the node says who asked."""
        if command.do != "status":
            node = "" if command.node is None else f" {command.node}"
            logger.info("%s CLUSTER %s%s%s", self._who, command.do, node, command.address and f" {command.address}")
        self._services.raft_log.tell(Administer(slot, command.do, command.node, command.address))

    def note_change(self, command: Any) -> None:
        """Log who changes a queue."""
        logger.info("%s %s %s", self._who, type(command).__name__.upper(), command.qname or "the default queue")

    def return_unsent(self, name: str, deliveries: list[Delivery]) -> None:
        """These deliveries never left; if this node still leads, their messages are ready again."""
        self._services.lobby.queue(name).tell(Unsent(name, deliveries))

    @property
    def _who(self) -> str:
        """Who is connected, for the log."""
        access = self._access
        return self._door.peer if access is None else f"{access.name} at {self._door.peer}"

    # --- out ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what may leave, in one write."""
        self.is_dirty = False
        replies = self._conversation.take_replies()
        if replies:
            self._door.send(replies)
        conversation = self._conversation
        if not conversation.slots:
            self._in_flight_bytes = 0
        if self._batches is not None or self._is_paused or conversation.closing or conversation.has_ended:
            self._go_on(conversation.in_flight)

    def _go_on(self, in_flight: int) -> None:
        """Read again if there is room, or end the connection if nothing is left to say."""
        has_room = True
        if self._batches is not None:
            left_bytes = self._batches.leave(in_flight)
            has_room = self._door.keep(left_bytes) or not left_bytes
            if not left_bytes:
                self._batches = None
        if self._is_paused and has_room and in_flight <= IN_FLIGHT_LOW and self._in_flight_bytes <= IN_FLIGHT_BYTES_MAX:
            self._is_paused = False
            self._door.resume()
        self._finish_if_answered()

    def _finish_if_answered(self) -> None:
        conversation = self._conversation
        if conversation.slots:
            return
        if conversation.closing:  # it stays: more may have been read before the connection was closed
            self._door.close(conversation.closing)
        elif conversation.has_ended:
            self._door.hang_up()

    # --- the end -----------------------------------------------------------------------------------------------------

    def on_stop(self) -> None:
        self._end()

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error")
        self._end()

    def _end(self) -> None:
        """Tell the queues that know this connection, and leave no circle behind: thousands may end at once."""
        conversation = self._conversation
        for name in conversation.known_queues or ():
            self._services.lobby.queue(name).tell(Gone(self, name))
        conversation.slots.clear()
        del self._conversation
