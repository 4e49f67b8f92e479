"""Many clients that pipeline mixtures of commands: each gets what the rules of order promise, whatever the disk does.

A fetch may get what its own connection has published after it, and an acknowledgement is marked before any read
is served; so nobody can say how each command is answered.  What must hold is in tests/helpers/pipelining.
"""

import json
import random
from types import SimpleNamespace

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.pipelining import AT_ONCE, LEASE_S, SHARED, WAIT_S, Worker, World, ask
from wakeq.actors.mail import Flushed
from wakeq.actors.queues import supervisor
from wakeq.actors.runtime import runtime
from wakeq.actors.sessions.door import Received
from wakeq.protocol.wire.worker import codec as wire

WORKERS = 16
ROUNDS = 25


def received(*commands: Json) -> Received[wire.Command | wire.Bad]:
    """What one read of a connection brings."""
    return Received(wire.decode(b"".join(json.dumps(command).encode() + b"\n" for command in commands)))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing depend on how fast this machine is: a turn ends when the draw says so, so each seed is one story."""
    chance = random.Random(0)
    passed = [0.0]

    def now_s() -> float:
        passed[0] += chance.choice([0, 0, 0, 0.001])
        return passed[0]

    monkeypatch.setattr(runtime.Runtime.__init__, "__defaults__", (None, None, 0.005, now_s))
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(perf_counter=now_s))


def workers_of(broker: Broker, world: World, draw: random.Random, count: int = WORKERS) -> list[Worker]:
    client = broker.client()
    for name, policies in SHARED.items():
        client.call("CREATE", name, **AT_ONCE, **policies)
    return [Worker(world, broker.client(), number, draw) for number in range(count)]


def send_a_round(broker: Broker, workers: list[Worker], draw: random.Random) -> None:
    """Some of the workers send something, in one read or several, all before anybody is served, or not."""
    for worker in draw.sample(workers, draw.randint(1, len(workers))):
        for _ in range(draw.choice([1, 1, 2])):
            worker.send(draw.choice([1, 1, 2, 5, 12]))
        if draw.random() < 0.1:
            broker.settle()


def let_disk_work(broker: Broker, draw: random.Random) -> None:
    """Hold the disk of the log, let it finish one write, or let it go."""
    disk = broker.log_disk
    broker.settle()
    if disk.held and draw.random() < 0.5:
        disk.complete(1)
        broker.settle()
    broker.advance(draw.choice([0, 0, 0.03, 0.15]))
    if disk.held and draw.random() < 0.4:
        disk.held = False
        disk.complete()
    elif draw.random() < 0.5:
        disk.held = True
    broker.settle()


def end(broker: Broker, world: World, workers: list[Worker]) -> None:
    """Let everything be answered, and compare what is left with what must be."""
    broker.log_disk.held = False
    broker.log_disk.complete()
    for worker in workers:
        worker.send_these([ask("PING")])  # ends the fetches that wait in their place
    broker.settle()
    broker.advance(WAIT_S)
    broker.settle()
    for worker in workers:
        worker.read()
    for worker in workers:
        worker.check()
    for name in [*SHARED, *(worker.own for worker in workers)]:
        broker.check(name)
    for worker in workers:
        worker.client.close()
    broker.advance(LEASE_S + 1)
    world.check_left(drained(broker.client(), [*SHARED, *(worker.own for worker in workers)]))


def drained(client: Client, names: list[str]) -> dict[str, str]:
    """Take everything out of the queues; return the text of each uid."""
    left: dict[str, str] = {}
    for name in names:
        while (reply := client.call("FET", name, count=1000))["cmd"] == "msgs":
            for found in reply["messages"]:
                assert found["uid"] not in left, "it is delivered once"
                left[found["uid"]] = found["msg"]
    return left


@pytest.mark.parametrize("seed", range(24))
def test_each_connection_gets_what_it_is_promised_whatever_others_send_and_the_disk_does(
    broker: Broker, seed: int
) -> None:
    draw = random.Random(seed)
    world = World()
    workers = workers_of(broker, world, draw)

    for _ in range(ROUNDS):
        send_a_round(broker, workers, draw)
        let_disk_work(broker, draw)
        for worker in workers:
            worker.read()

    end(broker, world, workers)
    assert sum(message.is_done for message in world.messages.values()) > WORKERS, "the life was a life"


@pytest.mark.parametrize("late", ["first", "second", "target"])
def test_follow_ups_are_stored_in_the_order_of_their_connection(broker: Broker, client: Client, late: str) -> None:
    """Whichever queue has its turn only when the log has collected from the others."""
    for name in ("first", "second", "target"):
        client.call("CREATE", name)
    held = {name: client.publish(name) for name in ("first", "second")}
    for name in held:
        client.fetch(name)
    broker.advance(0.1)
    busy = broker.queue(late)
    follow_ups = [
        {"cmd": "ACK", "qname": name, "uid": uid, "publish": [{"qname": "target", "message": name}]}
        for name, uid in held.items()
    ]

    client.process.arrive(received({"cmd": "PUB", "qname": "target", "message": "before"}, *follow_ups))
    busy.tell(Flushed(1 << 20))  # mail comes before a turn, which is put off for it
    busy.tell(Flushed(1 << 20))
    broker.settle()
    client.send({"cmd": "PUB", "qname": "target", "message": "behind"})
    client.take()

    assert [client.fetch("target")["msg"] for _ in range(4)] == ["before", "first", "second", "behind"]
