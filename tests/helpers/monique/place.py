"""Place: MoniQue's processes on a broker by hand: the exchange with a route, and the processes behind it.

    place.bridge(), place.client() --> place.relay(...), place.kill(...) --> place.port: what components got

The spec `sum_it` has its tasks on the queue `sums`.  Everything is served to the end before a call returns.
"""

import json
from typing import Any

import msgpack

from tests.helpers.brokers.broker import Broker
from tests.helpers.monique.by_hand import HandMonique, transfer
from wakeq.actors.monique.answers import FIRST_AFTER_MS, Answers
from wakeq.actors.monique.bridge import Bridge
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.exchange import MoniqueExchange, Rules
from wakeq.actors.monique.mail import Changed, Relayed, Technical
from wakeq.actors.monique.queue_user import QueueServices
from wakeq.actors.monique.tasks import Tasks
from wakeq.protocol.queue.outcomes import Refusal

TIMEOUT_S = 60.0
BODY_BYTES_MAX = 10_000
TASK = "config sum_it"


class Push:
    """A port with components that never refuse, unless `is_full`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.has: dict[int, list[str]] = {}  # the ids of the tasks that each component ever got
        self.is_full = False
        self.full: set[int] = set()  # some of them

    def can_take(self, component: int, /) -> bool:
        return not self.is_full and component not in self.full

    def send(self, component: int, frames: Any, /) -> bool:
        if not self.can_take(component):
            return False
        self.sent.append(msgpack.unpackb(frames[1]))
        self.has.setdefault(component, []).append(self.sent[-1]["id"])
        return True

    def ids(self) -> list[str]:
        """Those of the tasks that were sent since."""
        sent, self.sent = self.sent, []
        return [task["id"] for task in sent]


class Place:
    """A broker by hand with an exchange that has a route."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.withdrawal: Refusal | None = None  # why no delivery may be passed on
        workers = iter(range(100, 1_000))
        self.services = QueueServices(
            broker.assembly.lobby,
            broker.timers,
            broker.now_ms,
            lambda: next(workers),
            BODY_BYTES_MAX,
            lambda term: self.withdrawal,
        )
        runtime = broker.runtime
        self.counters = MoniqueCounters(broker.now_ms)
        self.tasks = runtime.spawn(Tasks, self.services, ["sums"], self.counters)
        self.exchange = runtime.spawn(
            MoniqueExchange, Rules(routes={"sum_it": "sums"}), self.tasks, broker.now_ms, self.counters
        )
        self.port = Push()

    def succeeded(self) -> "Place":
        """Let the next leader take over: return a place on the same broker that knows nothing of what this one knew."""
        self.exchange.stop()
        self.broker.settle()
        return Place(self.broker)

    def serve_answers(self) -> None:
        """Have answers on the queue passed on."""
        self.begin_answers()
        self.broker.advance(FIRST_AFTER_MS / 1000)

    def begin_answers(self) -> None:
        """The same, but for those that stand there already and are waited for."""
        self.broker.runtime.spawn(Answers, "monique.answers", "wakeq", self.exchange, self.services, self.counters)
        self.broker.settle()

    def client(self) -> HandMonique:
        return HandMonique(self.broker.runtime, self.exchange, self.broker.settle, self.counters)

    def new_bridge(self) -> Bridge:
        """Return one that has done nothing yet."""
        return self.broker.runtime.spawn(
            Bridge, "sum_it", "sums", self.port, self.exchange, self.services, self.counters, checks=True
        )

    def bridge(self, components: int = 1) -> Bridge:
        made = self.new_bridge()
        self.connect(made, *range(1, components + 1))
        return made

    def connect(self, bridge: Bridge, *components: int) -> None:
        """Let these components be connected."""
        bridge.tell(Changed(components))
        self.broker.settle()

    def relay(self, what: str, **fields: Any) -> None:
        """Let a component send this."""
        self.exchange.tell(Relayed([transfer(what, **fields)]))
        self.broker.settle()

    def kill(self, task_id: str) -> None:
        data = json.dumps({"task_id": task_id}).encode()
        self.exchange.tell(Technical([transfer("config kill", data=data)]))
        self.broker.settle()


def kinds(replies: list[Any]) -> list[type]:
    return [type(reply) for reply in replies]


def failures_of(message: dict[str, Any]) -> int:
    """How many deliveries failed; not said if all of them did."""
    failures: int = message.get("failures", message["error_count"])
    return failures
