"""Answers: what workers of any protocol put on the queue of answers goes out as MoniQue messages.

    queue --> Fetch, Answered --> answer_of --> Relayed (exchange) --> Ack

An answer that a crash lets go out twice has the same id both times.  What is no answer becomes a dead letter.
"""

from hashlib import sha512
from typing import Any

from wakeq.actors.messages import Answered, Delivery, Refusal
from wakeq.actors.monique_messages import Relayed
from wakeq.actors.monique_queues import LOOK_AGAIN_MS, Acknowledged, QueueServices, QueueUser
from wakeq.actors.monique_tally import Tally
from wakeq.actors.runtime import Alarm, Down, Process
from wakeq.protocol.commands import Reason
from wakeq.protocol.uid import ALPHABET
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.messages import ID_CHARS
from wakeq.protocol.wire.monique.tasks import answer_of, headers_of
from wakeq.protocol.wire.monique.transfers import Transfer

WAIT_MS = 30_000
TOGETHER_MAX = 64


class Answers(QueueUser):
    """See the head of this file."""

    def __init__(self, queue: str, creator: str, exchange: Process, services: QueueServices, tally: Tally) -> None:
        super().__init__(services, tally)
        self._name = queue
        self._creator = creator
        self._exchange = exchange
        self._question: object | None = None  # that the queue has to answer
        self._dropped = tally.dropper("answer", f"from queue {queue}")

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        self._ask()

    def on_receive(self, message: Any) -> None:
        match message:
            case Answered():
                self._answered(message)
            case Alarm():
                self._ask()
            case Down():
                self.stop()

    def _ask(self) -> None:
        self._question = object()
        self._fetch(self._name, self._question, TOGETHER_MAX, WAIT_MS)

    def _answered(self, message: Answered) -> None:
        for ticket, _, answer in message.answers:
            if isinstance(ticket, Acknowledged):
                self._acknowledged(ticket, answer)
            elif ticket is not None and ticket is self._question:
                if isinstance(answer, Refusal):
                    self._services.timers.set(self, self._services.now_ms() + LOOK_AGAIN_MS)
                else:
                    self._pass_on(answer or [])
                    self._ask()

    def _pass_on(self, deliveries: list[Delivery]) -> None:
        transfers: list[Transfer] = []
        done: list[Delivery] = []
        for delivery in deliveries:
            try:
                transfers.append(self._answer_in(delivery))
            except MoniqueError as error:
                self._dropped.note(error)
                self._give_back(self._name, [delivery], Reason.REJECTED, str(error))
            else:
                done.append(delivery)
        self._tally.taken["queue"] += len(transfers)
        if transfers:
            self._exchange.tell(Relayed(transfers))
        self._acknowledge_all(self._name, done)

    def _answer_in(self, delivery: Delivery) -> Transfer:
        return answer_of(
            delivery.body,
            headers_of(delivery.headers),
            id=_id_of(delivery.uid),
            creator=self._creator,
            now_ms=self._services.now_ms(),
        )


def _id_of(uid: str) -> str:
    """Return the id of the answer that stands under this uid: always the same."""
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in sha512(uid.encode()).digest()[:ID_CHARS])
