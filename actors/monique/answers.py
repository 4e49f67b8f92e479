"""Answers: what workers of any protocol put on the queue of answers goes out as MoniQue messages.

    queue --> Fetch, Answered --> answer_of --> Relayed (exchange) --> Answered --> Ack

It begins when those who lost their connection with the broker before can be there again: nobody else keeps an answer.
An answer that a crash lets go out twice has the same id both times.  What is no answer becomes a dead letter.
"""

from hashlib import sha512
from typing import Any

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Relayed
from wakeq.actors.monique.queue_user import LOOK_AGAIN_MS, QueueServices, QueueUser
from wakeq.actors.runtime import Alarm, Down, Process
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.queue.outcomes import Delivery, Refusal
from wakeq.protocol.uid import ALPHABET
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.messages import ID_CHARS
from wakeq.protocol.wire.monique.tasks import answer_of, headers_of
from wakeq.protocol.wire.monique.transfers import Transfer

WAIT_MS = 30_000
FIRST_AFTER_MS = 5_000  # whoever was connected before comes again within some seconds
TOGETHER_MAX = 64


class Answers(QueueUser):
    """See the head of this file."""

    def __init__(
        self, queue: str, creator: str, exchange: Process, services: QueueServices, counters: MoniqueCounters
    ) -> None:
        super().__init__(services, counters)
        self._name = queue
        self._creator = creator
        self._exchange = exchange
        self._under_way: list[Delivery] = []  # what the exchange has not passed on yet
        self._dropped = counters.dropper("answer", f"from queue {queue}")

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        self._services.timers.set(self, self._services.now_ms() + FIRST_AFTER_MS)

    def on_stop(self) -> None:
        """What was not passed on waits for whoever comes next."""
        self._give_back(self._name, self._under_way, Reason.RETURNED)

    def on_receive(self, message: Any) -> None:
        match message:
            case Answered():
                message.deliver()
            case Alarm():
                self._ask()
            case Down():
                self.stop()

    def _ask(self) -> None:
        self._fetch(self._name, ReplyByMail(self, self._fetched), TOGETHER_MAX, WAIT_MS)

    def _fetched(self, answer: list[Delivery] | Refusal | None) -> None:
        if isinstance(answer, Refusal) or (answer and not self._may_pass_on(self._name, answer)):
            self._services.timers.set(self, self._services.now_ms() + LOOK_AGAIN_MS)
        else:
            self._pass_on(answer or [])

    def _pass_on(self, deliveries: list[Delivery]) -> None:
        transfers: list[Transfer] = []
        done: list[Delivery] = []
        for delivery in deliveries:
            try:
                transfers.append(self._answer_in(delivery))
            except MoniqueError as error:
                self._dropped(error)
                self._give_back(self._name, [delivery], Reason.REJECTED, str(error))
            else:
                done.append(delivery)
        self._counters.taken["queue"] += len(transfers)
        if transfers:
            self._under_way = done
            self._exchange.tell(Relayed(transfers, ReplyByMail(self, self._passed_on)))
        else:
            self._ask()

    def _passed_on(self, _: None) -> None:
        self._acknowledge_all(self._name, self._under_way)
        self._under_way = []
        self._ask()

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
