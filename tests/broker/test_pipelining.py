"""Many clients that pipeline mixtures of commands: each gets what the rules of order promise, whatever the disk does.

A fetch may get what its own connection has published after it, and an acknowledgement is marked before any read
is served; so nobody can say how each command is answered.  What must hold is in tests/helpers/loads/pipelining.

Planted by hand, each of these is caught by most seeds of the first test, or (the last three) of that with crashes:

- the results of a publish, of acknowledgements, or of fetches that are served together go to the next slot;
- a publish is left out of the entry that it shares, or its neighbour's message takes its place;
- a fetch, STATS or LIST does not wait for an own publish, or only for the newest of several own writes;
- of the reads that stand behind writes, a later one is filed before an earlier one, or none is filed;
- a write does not stand behind an own ACK that publishes, or that behind an own write to the other queue;
- a queue that crashes forgets what is in its lanes, what it had in hand, or what it had for the log.
"""

import json
import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode, Operator, successor
from tests.helpers.examples import seeds
from tests.helpers.loads.pipelining import AT_ONCE, LEASE_S, SHARED, WAIT_S, Worker, World, ask
from wakeq.actors.log.raft_log import UNKNOWN_AFTER_S
from wakeq.actors.mail import Flushed
from wakeq.actors.queue import acknowledging, ending, fetching, outgoing, waiting
from wakeq.actors.queue import process as queue_process
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues import rebuild, supervisor
from wakeq.actors.runtime import runtime
from wakeq.actors.sessions.door import Received
from wakeq.actors.sessions.operator_mail import Administer
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


def workers_of(broker: Broker | HandNode, world: World, draw: random.Random, count: int = WORKERS) -> list[Worker]:
    client = broker.client()
    for name, policies in SHARED.items():
        client.call("CREATE", name, **AT_ONCE, **policies)
    return [Worker(world, broker.client(), number, draw) for number in range(count)]


def send_a_round(broker: Broker | HandNode, workers: list[Worker], draw: random.Random) -> None:
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
        queue = broker.queue(name)
        assert queue.leases is not None
        held = {message.uid for worker in workers for message in worker.held if message.queue == name}
        assert set(queue.uids_of(list(queue.leases.held))) == held, f"a message of {name} is out with nobody"
        asleep = [str(worker) for worker in workers if worker.sleeps_at(name)]
        assert not (asleep and broker.available(name)), f"{asleep} sleep beside messages of {name}"
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


@pytest.mark.parametrize("seed", seeds(6, of=48))
def test_promises_to_connections_hold_whatever_others_send_and_the_disk_does(broker: Broker, seed: int) -> None:
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


# --- a queue that crashes in the middle of a round -------------------------------------------------------------------

STEPS: list[tuple[Any, str]] = [
    (QueueProcess, "on_turn"), (acknowledging, "mark_acknowledged"), (outgoing, "put"), (fetching, "serve"),
    (fetching, "_serve_one"), (fetching, "_deliveries"), (ending, "on_nack"), (ending, "on_touch"),
    (outgoing, "take_publishes"), (QueueProcess, "apply"), (QueueProcess, "_serve_and_answer"),
    (waiting, "serve_and_wake"), (QueueProcess, "judge"),
]  # fmt: skip


class Crashes:
    """Lets steps of queues raise, before anything is done or after all of it, as often as a test allows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.made = 0
        self.comes: Callable[[str, bool], bool] = lambda step, is_done: False
        for owner, name in STEPS:
            self._make_fragile(monkeypatch, owner, name)
        monkeypatch.setattr(rebuild, "CRASHES_MAX", 100)  # so many bugs would end the node

    def _make_fragile(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        sound = getattr(owner, name)

        def fragile(*arguments: Any, **named: Any) -> Any:
            self._maybe_crash(name, is_done=False)
            result = sound(*arguments, **named)
            self._maybe_crash(name, is_done=True)
            return result

        monkeypatch.setattr(owner, name, fragile)
        for message, handler in list(queue_process._HANDLERS.items()):
            if handler is sound:
                monkeypatch.setitem(queue_process._HANDLERS, message, fragile)

    def _maybe_crash(self, step: str, *, is_done: bool) -> None:
        if self.left and self.comes(step, is_done):
            self.left -= 1
            self.made += 1
            raise ZeroDivisionError(f"{'after' if is_done else 'before'} {step}")


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Crashes:
    caplog.set_level(logging.CRITICAL, "wakeq.runtime")
    return Crashes(monkeypatch)


@pytest.mark.parametrize("seed", seeds(6, of=48))
def test_promises_to_connections_hold_while_queues_crash_in_their_rounds(
    broker: Broker, crashes: Crashes, seed: int
) -> None:
    draw = random.Random(seed)
    world = World(refusals=["BUSY"], is_exact=False)
    workers = workers_of(broker, world, draw)
    crashes.comes = lambda *_: draw.random() < 0.02

    for _ in range(ROUNDS):
        crashes.left = draw.choice([0, 1, 2])
        broker.state_disk.held = draw.random() < 0.3  # from which a queue is rebuilt
        send_a_round(broker, workers, draw)
        let_disk_work(broker, draw)
        broker.state_disk.held = False
        broker.state_disk.complete()
        broker.settle()
        for worker in workers:
            worker.read()
    crashes.left = 0

    end(broker, world, workers)
    assert crashes.made, "the life was a life"


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [name for _, name in STEPS])
def test_crash_in_any_step_of_a_round_breaks_no_promise_to_a_connection(
    broker: Broker, crashes: Crashes, step: str, is_done: bool, call: int
) -> None:
    """One queue has everything in its lanes: reads, acknowledgements, publishes, and orders of four connections."""
    world = World(refusals=["BUSY"], is_exact=False)
    workers = workers_of(broker, world, random.Random(0), count=4)
    for name in ("a", "strict"):
        for worker in workers:
            worker.send_these([worker.publish(name, 3) for _ in range(2)] + [ask("FET", name, count=3)])
    broker.settle()
    broker.advance(0.1)
    for worker in workers:
        worker.read()
    sleeper = broker.client()  # so that a turn has somebody to wake
    for name in ("a", "strict"):
        sleeper.ask({"cmd": "SUB", "qname": name}, {"cmd": "ISLP", "qname": name, "wake": "ready"})
    broker.settle()
    calls = [0]

    def comes(name: str, done: bool) -> bool:
        calls[0] += (name, done) == (step, is_done)
        return (name, done) == (step, is_done) and calls[0] == call

    crashes.comes, crashes.left = comes, 1
    broker.log_disk.held = True
    for name in ("a", "strict"):
        for worker in workers:
            mine = [message for message in worker.held if message.queue == name]
            worker.send_these([ask("FET", name), worker.settle("TOUCH", mine[:1]), worker.settle("ACK", mine[:1])])
            worker.send_these([ask("ISLP", name), ask("FET", name, wait=WAIT_S)])
            worker.send_these([worker.settle("NACK", mine[1:2]), worker.publish(name), ask("FET", name, count=2)])
            done = worker.follow_up(worker.settle("ACK", mine[2:]), "a", "b")
            worker.send_these([worker.publish(name, id=str(worker.number)), done, ask("STATS", name)])
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    crashes.left = 0

    end(broker, world, workers)
    assert crashes.made, "the step was taken"


# --- a leader that steps down in the middle of a round ---------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(3, of=12))
@pytest.mark.parametrize("how", ["gives it away", "loses it"])
def test_promises_to_connections_hold_when_their_leader_steps_down_in_a_round(
    cluster: HandCluster, leader: HandNode, how: str, seed: int
) -> None:
    """Rule 17: refused is what was never in the log, unknown what was; and no message goes to two workers.

    Only a leader that is cut off may have delivered ahead of its log what the next one delivers again.
    """
    draw = random.Random(seed)
    world = World(refusals=["NOT_LEADER", "UNKNOWN", "NO_QUORUM", "BUSY"], is_exact=False)
    workers = workers_of(leader, world, draw, count=10)
    for _ in range(6):
        send_a_round(leader, workers, draw)
        cluster.settle()
        cluster.advance(draw.choice([0, 0.03, 0.15]))
        for worker in workers:
            worker.read()

    leader.log_disk.held = draw.random() < 0.5
    send_a_round(leader, workers, draw)
    if draw.random() < 0.5:
        leader.runtime.run_until_idle()  # what this node can do alone
        send_a_round(leader, workers, draw)
    if how == "loses it":
        cluster.isolate(leader)
    else:
        target = draw.choice(cluster.others(leader)).number
        asker = leader.runtime.spawn(Operator).asker
        leader.raft_log.tell(Administer(asker, "transfer", target))
    if draw.random() < 0.5:
        send_a_round(leader, workers, draw)
    cluster.settle()
    leader.log_disk.held = False
    leader.log_disk.complete()
    cluster.settle()
    heir = successor(cluster, leader)
    if draw.random() < 0.5:
        cluster.advance(UNKNOWN_AFTER_S)  # longer than the deposed node keeps its clients waiting
    cluster.heal()
    cluster.advance(WAIT_S + UNKNOWN_AFTER_S + 1)
    for worker in workers:
        worker.send_these([ask("PING")])
    cluster.settle()
    for worker in workers:
        worker.read()
        worker.check()

    names = [*SHARED, *(worker.own for worker in workers)]
    if how == "gives it away":
        held = {message.uid for worker in workers for message in worker.held}
        at_once = drained(heir.client(), names)
        assert not held & set(at_once), "its lease holds at the next leader"
    for worker in workers:
        worker.client.close()
    cluster.advance(LEASE_S + 1)
    world.check_left(drained(heir.client(), names))
