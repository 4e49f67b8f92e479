"""TaskFluxSession: one connection of the TaskFlux protocol.

    door --> conversation.receive --> lanes of queues          slots with outcomes --> flush --> one write --> door

It holds a door and a conversation, and is what the conversation needs of the node: lanes, permissions, the catalog.  A
record that the client holds is a lease, which it has renewed as long as the connection lives.  What a packet does is
decided elsewhere; no byte and no rule of a queue is known here.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wakeq.actors.mail import Gone, Unsent
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.runtime import Alarm, Process, Timers
from wakeq.actors.sessions.access import STRANGER, Gate
from wakeq.actors.sessions.door import (
    IN_FLIGHT_MAX,
    KEPT_BYTES_MIN,
    CarefulDoor,
    Closed,
    Drained,
    Ended,
    Idle,
    Received,
    SendAway,
    bound_reading,
    describe,
)
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.actors.sessions.permissions import refusal_of
from wakeq.protocol.errors import Refused
from wakeq.protocol.queue.orders import Stats
from wakeq.protocol.queue.outcomes import Leased, Refusal
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.taskflux.answers import Known
from wakeq.protocol.wire.taskflux.commands import Dequeue, Remove, Response
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN

RENEWALS_PER_LEASE = 3
LEASE_MS_MIN = TIMEOUT_S_MIN * 1000  # of one that was long on its way less can be left, or nothing


class TaskFluxServices(NamedTuple):
    """What every session of this protocol works with."""

    lobby: Lobby
    queues: Process  # is asked for the figures of all queues
    timers: Timers
    now_ms: Callable[[], int]
    known: Known
    gate: Gate | None = None  # None: whoever can connect may do everything
    withdrawal: Callable[[int], Refusal | None] = lambda term: None  # why a delivery of a term may not leave any more


class TaskFluxSession(Process):
    """See the head of this file."""

    def __init__(self, door: CarefulDoor[Response], dialect: Dialect, number: int, services: TaskFluxServices) -> None:
        super().__init__()
        self.number = number  # of the connection, in the log and in the history
        self.since_ms = services.now_ms()  # when the client connected
        self.door_kind = door.kind
        self.is_dirty = False  # there is something to send at the end of the round
        self.needs_permission = services.gate is not None
        self.filed = services.lobby.filed
        self.withdrawal = services.withdrawal
        self._door = door
        self._services = services
        self._access = STRANGER
        self._conversation = Conversation(self, dialect, services.known)
        self._in_flight_bytes = 0  # read since the connection last owed no answer
        self._is_paused = False  # nothing more is read from the connection
        self._kept: Remove | None = None  # the record that the client holds, or held last
        self._lease_ms = 0  # of that
        self._renews_at_ms = 0  # when the lease of a held record is to be renewed, if one is held by then

    # --- what the door brings ----------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> None:
        kind, conversation = type(message), self._conversation
        if kind is Received:
            self._in_flight_bytes += message.size_bytes
            conversation.receive(message.commands)
            if conversation.closing:  # perhaps without an answer, so that nothing comes to be flushed
                self._finish_if_answered()
            if self._in_flight_bytes > KEPT_BYTES_MIN or conversation.in_flight > IN_FLIGHT_MAX:
                self._bound()
        elif kind is Alarm:
            self._renews_at_ms = 0
            if conversation.renew():  # however long it has been held: to look at that would cost more
                self._renew_in_time(self._services.now_ms())
        elif kind is Drained:
            conversation.is_held_up = False
            conversation.go_on()
        elif kind is Ended:
            conversation.end()
            self._finish_if_answered()
        elif kind is SendAway:
            conversation.is_sent_away = True
        elif kind is Idle:  # nothing is sent: the client is not listening, or does not know what to do with it
            if not conversation.in_flight:
                self._door.drop("idle for too long")
        elif kind is Closed:  # the process ends when what was held is given back
            conversation.lose()
            if conversation.is_over:
                self.stop()
        else:
            assert kind is Describe, message
            facts = describe(self, self.number, self._door, self.since_ms, in_flight=conversation.in_flight)
            if message.fully:
                facts["known_queues"] = [] if self._kept is None else [self._kept.queue]
            message.asker.tell(facts)

    # --- what the conversation needs ---------------------------------------------------------------------------------

    def note_dirty(self) -> None:
        """There is something to send: flush at the end of the round."""
        self.is_dirty = True
        self.runtime.flush_later(self)

    def permit(self, command: Any) -> Refused | None:
        """Return why this client may not do this."""
        return refusal_of(command, self._access)

    def log_in(self, token: str | None) -> None:
        """Check the token, if this node requires one."""
        gate = self._services.gate
        if gate is not None:
            self._access = gate.login(token, self._door)

    def welcome(self) -> None:
        """The handshake is over: the client may stay as long as it likes."""
        self._door.welcome()

    def list_queues(self, slot: Slot) -> None:
        """Ask for the figures of all queues."""
        self._services.queues.tell(Stats(slot, "", all_queues=True))

    def return_unsent(self, name: str, deliveries: Sequence[Leased]) -> None:
        """These deliveries never left; if this node still leads, their messages are ready again."""
        self._services.lobby.queue(name).tell(Unsent(name, deliveries))

    # --- out ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what may leave, in one write."""
        self.is_dirty = False
        conversation = self._conversation
        replies = conversation.take_replies()
        if conversation.is_lost:
            if conversation.is_over:
                self.stop()
            return
        if replies:
            self._door.send(replies)
            if self._door.is_congested:
                conversation.is_held_up = True
        held = conversation.held
        if held is not self._kept and isinstance(held, Remove):
            self._keep(held)
        if self._in_flight_bytes > KEPT_BYTES_MIN or self._is_paused:
            self._bound()
        elif not (conversation.slots or conversation.parked or held):
            self._in_flight_bytes = 0
        if conversation.closing:
            self._finish_if_answered()

    def _bound(self) -> None:
        """Count what was received among all that is held; read no more while too much is under way."""
        conversation = self._conversation
        is_busy = bool(conversation.slots or conversation.parked)
        if not (is_busy or conversation.held):
            self._in_flight_bytes = 0
        self._door.keep(self._in_flight_bytes)
        self._is_paused = bound_reading(
            self._door,
            is_paused=self._is_paused,
            in_flight=conversation.in_flight,
            # What is only held ends with an Ack, which is still to be read.
            in_flight_bytes=self._in_flight_bytes if is_busy else 0,
        )

    def _finish_if_answered(self) -> None:
        conversation = self._conversation
        if conversation.is_finished:
            if conversation.has_ended:
                self._door.hang_up()
            else:
                self._door.close(conversation.closing)

    # --- records -----------------------------------------------------------------------------------------------------

    def _keep(self, held: Remove) -> None:
        """Have the lease of what the client holds now renewed in time, if it holds it for long."""
        now_ms = self._services.now_ms()
        self._kept = held
        self._lease_ms = max(held.holding.until_ms - now_ms, LEASE_MS_MIN)
        self._renew_in_time(now_ms)

    def _renew_in_time(self, now_ms: int) -> None:
        moment_ms = now_ms + self._lease_ms // RENEWALS_PER_LEASE
        if not self._renews_at_ms or moment_ms < self._renews_at_ms:
            self._renews_at_ms = moment_ms
            self._services.timers.set(self, moment_ms)

    # --- the end -----------------------------------------------------------------------------------------------------

    def on_stop(self) -> None:
        self._leave_no_circle()

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error")
        for slot in self._conversation.slots:
            if type(slot.command) is Dequeue:
                name = slot.command.queue
                self._services.lobby.queue(name).tell(Gone(self, name))
        self._leave_no_circle()

    def _leave_no_circle(self) -> None:
        """Thousands may end at once."""
        self._conversation.slots.clear()
        del self._conversation
