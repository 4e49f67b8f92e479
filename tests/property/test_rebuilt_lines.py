"""The ready line of a queue that is rebuilt, at a start or on a new leader, equals the line before.

A life has each kind of message and each way in which a delivery ends, in an order that is drawn; so each fault that
concerns one of them shows in every life.  What was published and with which priority the test knows by itself; what
was ready, delayed and out it reads before the crash, and compares it with what is there afterwards and with what a
client gets.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.clusters.led import LedBroker
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from wakeq.actors.queue.process import QueueProcess
from wakeq.data.opening import KEEP_NOTHING
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.uid import parse

Q = "jobs"
BULK = 1_024  # plain messages: twice as many as a chunk of the ledger holds, so that some chunks have nothing else
Kinds = tuple[dict[str, Any], ...]
Flush = Callable[[], None]
NEVER_MS = 1_000_000_000
LONG_S = 900
RETRY = {"backoff": "exponential", "base": 200, "max": LONG_S}
KINDS: Kinds = (
    {},
    {},
    {"priority": 0, "headers": {"a": "b"}},
    {"priority": -1},
    {"priority": 2},
    {"delay": 300},
    {"delay": 301, "priority": -1},
    {"delay": 1},
    {"expires": 3 * LONG_S},
    {"expires": 3 * LONG_S, "delay": 302, "priority": 2},
    {"timeout": 90},
)
FATES = ("keep", "nack", "nack-now", "nack-later", "give-back", "time-out", "vanish", "ack", "touch")
ROUNDS = 3


# Each in a chunk in which all others are plain; the first also because those of its priority may all have been taken.
APART: Kinds = ({"priority": -1}, {"priority": 2}, {"delay": 303}, {"expires": 3 * LONG_S})
PLAIN: Kinds = ({},) * 6


def nothing() -> None:
    """Flush nothing."""


class Line(NamedTuple):
    """A queue as its leader has it in memory.  Messages go by their numbers."""

    ready: list[int]  # in the order in which they would be delivered
    delayed: dict[int, int]  # until when
    out: dict[int, tuple[int, tuple[int, int]]]  # until when, and the token of the lease
    facts: dict[int, tuple[int, ...]]  # expiry, timeout, deliveries, failures


def line_of(process: QueueProcess, now_ms: int) -> Line:
    leases, ledger = process.leases, process.ledger
    assert leases is not None
    ready = [n for n in leases.next_numbers(1_000_000) if ledger.columns.lives(n)]
    are_ready = set(ready)
    waits = [n for n in ledger.columns.living_numbers() if n not in leases.held and n not in are_ready]
    facts = {}
    for n in ledger.columns.living_numbers():
        side = ledger.deliveries.records.get(n)
        counts = (0, 0) if side is None else (side.deliveries, side.failures)
        facts[n] = (ledger.columns.expires_of(n), ledger.columns.own_timeout_of(n), *counts)
    assert all(ledger.due_of(n) > now_ms for n in waits), "what is neither ready nor out waits for its moment"
    out = {n: (held.until_ms, held.token) for n, held in leases.held.items()}
    return Line(ready, {n: ledger.due_of(n) for n in waits}, out, facts)


class Life:
    """A queue that is used, and what its clients know of it."""

    def __init__(self, world: Broker | LedBroker, chance: random.Random, kinds: Kinds, flush: Flush = nothing) -> None:
        """`flush` is called between deliveries and what becomes of them."""
        self.world, self.chance, self.kinds, self.flush = world, chance, kinds, flush
        self.client = world.client()
        self.priorities: dict[int, int] = {}
        self.bodies: dict[int, str] = {}
        self.kept: dict[str, str] = {}  # uid -> lease
        reply = self.client.call("CREATE", Q, retry=RETRY, on_disconnect="release")
        assert reply["cmd"] == "okcreate"

    @property
    def now_ms(self) -> int:
        return self.world.now_ms() if isinstance(self.world, Broker) else self.world.leader.now_ms()

    def live(self) -> None:
        """Publish and take, everything at least once in each of three rounds."""
        self.bulk()
        for _ in range(ROUNDS):
            kinds = [*self.kinds, *self.kinds]
            self.chance.shuffle(kinds)
            for kind in kinds:
                self.publish(**kind)
            self.world.advance(1.5)  # the shortest delay is over
            self.take()
        if self.kinds is KINDS:
            for fields in APART:
                self.bulk()
                self.publish(**fields)
        self.bulk()
        self.world.advance(0.2)  # what was delivered is in the log

    def publish(self, **fields: Any) -> None:
        body = f"m{len(self.bodies)}"
        self.note(self.client.publish(Q, body, **fields), body, fields.get("priority", 0))

    def bulk(self) -> None:
        bodies = [f"b{len(self.bodies) + place}" for place in range(BULK)]
        for uid, body in zip(self.client.call("PUB", Q, messages=bodies)["uids"], bodies, strict=True):
            self.note(uid, body, 0)

    def note(self, uid: str, body: str, priority: int) -> None:
        number = number_of(uid)
        self.priorities[number], self.bodies[number] = priority, body

    def take(self) -> None:
        """Take enough for each fate to meet urgent messages, those without anything, and the rest."""
        fates = [*FATES, *FATES, *FATES]
        self.chance.shuffle(fates)
        vanishing = self.world.client()
        taken = []
        for fate in fates:
            fetching = vanishing if fate == "vanish" else self.client
            taken.append((fate, fetching.call("FET", Q, timeout=5 if fate == "time-out" else LONG_S)))
        self.world.advance(0.1)
        self.flush()
        for fate, message in taken:
            self.meet(fate, message)
        vanishing.close()
        self.world.advance(5.5)  # what is to time out has done so

    def meet(self, fate: str, message: dict[str, Any]) -> None:
        named = {"uid": message["uid"], "lease": message["lease"]}
        match fate:
            case "keep":
                self.kept[named["uid"]] = named["lease"]
            case "touch":
                assert self.client.call("TOUCH", Q, timeout=2 * LONG_S, **named)["cmd"] == "oktouch"
                self.kept[named["uid"]] = named["lease"]
            case "nack":
                assert self.client.call("NACK", Q, **named)["cmd"] == "oknack"
            case "nack-now":
                assert self.client.call("NACK", Q, delay=0, **named)["cmd"] == "oknack"
            case "nack-later":
                assert self.client.call("NACK", Q, delay=400, **named)["cmd"] == "oknack"
            case "give-back":
                assert self.client.call("NACK", Q, failed=False, **named)["cmd"] == "oknack"
            case "ack":
                assert self.client.call("ACK", Q, **named)["cmd"] == "okack"

    def line(self) -> Line:
        self.world.settle()
        return line_of(self.world.queue(Q), self.now_ms)

    def in_order(self, numbers: Sequence[int]) -> list[int]:
        """Return messages in the order in which a rebuilt line has them: by priority, then as they were published."""
        return sorted(numbers, key=lambda number: (self.priorities[number], number))

    def compare(self, before: Line) -> None:
        """What is there now is what was there."""
        after = self.line()
        assert after.ready == self.in_order(before.ready)
        assert (after.delayed, after.out) == (before.delayed, before.out)
        assert after.facts == before.facts

    def drain(self) -> None:
        """A client gets everything, each at its moment, in the order of the line; the leases count that it had."""
        line = self.line()
        self.client = self.world.client()
        for uid, lease in self.kept.items():
            reply = self.client.call("ACK", Q, uid=uid, lease=lease)
            assert (reply["cmd"], reply.get("known")) == ("okack", None)
        assert self.take_all() == line.ready
        waiting = dict(sorted(line.delayed.items(), key=lambda item: item[1]))
        while waiting:
            due_ms = min(waiting.values())
            self.world.advance((due_ms - self.now_ms) * 0.98 / 1000)
            if self.now_ms < due_ms:
                assert self.take_all() == [], "not before its moment"
            self.world.advance((due_ms - self.now_ms) / 1000 + 0.2)
            now_due = [number for number, moment_ms in waiting.items() if moment_ms <= self.now_ms]
            assert sorted(self.take_all()) == sorted(now_due)
            waiting = {number: moment_ms for number, moment_ms in waiting.items() if number not in now_due}

    def outlive(self) -> None:
        """When all leases, delays and expiries are over, what expired is gone, and a client gets all else."""
        line = self.line()
        self.client = self.world.client()

        self.world.advance(3 * LONG_S)

        assert sorted(self.take_all()) == [number for number, facts in line.facts.items() if not facts[0]]
        assert list(self.world.queue(Q).ledger.columns.living_numbers()) == []

    def take_all(self) -> list[int]:
        taken: list[int] = []
        while (reply := self.client.call("FET", Q, count=1_000))["cmd"] == "msgs":
            for message in reply["messages"]:
                number = number_of(message["uid"])
                assert message["msg"] == self.bodies[number]
                taken.append(number)
            self.client.call("ACK", Q, uids=[message["uid"] for message in reply["messages"]])
        assert reply["cmd"] == "nomsg"
        return taken


End = Callable[[Life], None]


def number_of(uid: str) -> int:
    found = parse(uid)
    assert found is not None
    return found[1]


def check_variety(life: Life, line: Line) -> None:
    """The life had all that a fault could be about."""
    sides = life.world.queue(Q).ledger.deliveries.records
    back = [n for n in line.ready if n in sides]
    assert line.ready != life.in_order(line.ready), "some came back, and stand behind others that are younger"
    assert any(life.priorities[n] == 0 for n in back)
    assert any(n in sides for n in line.delayed)
    assert len(line.out) >= len(FATES)
    assert any(facts[3] for facts in line.facts.values()), "some have failed"
    if life.kinds is KINDS:
        assert {life.priorities[n] for n in line.ready} == {-1, 0, 2}
        assert any(n not in sides for n in line.delayed)
        assert any(facts[0] for facts in line.facts.values()), "some expire"


@contextmanager
def one_broker(**sizes: int) -> Iterator[Broker]:
    with memory_folder() as directory:
        made = Broker(directory, flush_after_ms=NEVER_MS, **sizes)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def three_brokers() -> Iterator[LedBroker]:
    with memory_folder() as directory:
        made = LedBroker(directory, segment_bytes_max=1 << 20, keep=KEEP_NOTHING)
        yield made
        made.close()


def rebuild_by_log(seed: int, kinds: Kinds, end: End = Life.drain) -> None:
    with one_broker() as broker:
        life = Life(broker, random.Random(seed), kinds)
        life.live()
        rebuild(life, broker.crash_and_restart, end)


def rebuild_by_store(seed: int, kinds: Kinds, end: End = Life.drain) -> None:
    with one_broker() as broker:
        life = Life(broker, random.Random(seed), kinds, broker.flush)
        life.live()
        broker.flush()
        rebuild(life, broker.crash_and_restart, end)


def rebuild_by_store_and_log(seed: int, kinds: Kinds, end: End = Life.drain) -> None:
    with one_broker() as broker:
        life = Life(broker, random.Random(seed), kinds, broker.flush)
        life.live()
        rebuild(life, broker.crash_and_restart, end)


def rebuild_by_image(seed: int, kinds: Kinds, end: End = Life.drain) -> None:
    """The state store is lost; what is in the image and in the log makes another one."""
    with one_broker(segment_bytes_max=1 << 14, snapshot_bytes_min=1 << 12) as broker:
        life = Life(broker, random.Random(seed), kinds, broker.flush)
        life.live()
        broker.flush()
        before = life.line()
        check_variety(life, before)
        broker.crash()
        assert (broker.path / "consensus" / "raft.snapshot").exists()
        shutil.rmtree(broker.path / "state")
        broker.restart()
        life.compare(before)
        end(life)


def rebuild_on_another_leader(seed: int, kinds: Kinds, end: End = Life.drain) -> None:
    with three_brokers() as brokers:
        life = Life(brokers, random.Random(seed), kinds)
        life.live()
        rebuild(life, brokers.crash_and_restart, end)


def rebuild(life: Life, crash: Callable[[], None], end: End) -> None:
    before = life.line()
    check_variety(life, before)
    crash()
    life.compare(before)
    end(life)


Way = Callable[..., None]
WAYS = (rebuild_by_log, rebuild_by_store, rebuild_by_store_and_log, rebuild_by_image, rebuild_on_another_leader)
FAULTY_WAYS = (rebuild_by_log, pytest.param(rebuild_on_another_leader, marks=pytest.mark.long))


@pytest.mark.parametrize("seed", seeds(1, of=8))
@pytest.mark.parametrize("kinds", [KINDS, pytest.param(PLAIN, marks=pytest.mark.long)], ids=["all-kinds", "plain"])
@pytest.mark.parametrize("way", WAYS)
def test_rebuilt_line_is_the_one_that_was_lived(way: Way, kinds: Kinds, seed: int) -> None:
    way(seed, kinds)


@pytest.mark.parametrize("way", [rebuild_by_log, rebuild_by_store])
def test_rebuilt_line_lets_messages_expire(way: Way) -> None:
    way(0, KINDS, Life.outlive)


# Faults that are planted: each makes the test above fail, whatever is drawn.


def forget_what_stands_before(leases: Leases, now_ms: int) -> None:
    """Plain messages come behind all others of their priority."""
    plain = [number for number in leases.ledger.columns.living_numbers() if leases.ledger.is_plain(number)]
    _hold_what_is_out(leases)
    for number in leases.ledger.columns.living_numbers():
        if number not in leases.held and not leases.ledger.is_plain(number):
            leases.add(number, now_ms)
    leases.line.extend(0, plain)


def forget_delays(leases: Leases, now_ms: int) -> None:
    """What waits is ready."""
    _hold_what_is_out(leases)
    for number in leases.ledger.columns.living_numbers():
        if number not in leases.held:
            leases.line.push(leases.ledger.columns.priority_of(number), number)


def forget_retries(leases: Leases, now_ms: int) -> None:
    """What was released is ready, whatever its retry policy says."""
    _hold_what_is_out(leases)
    for number in leases.ledger.columns.living_numbers():
        if number in leases.held:
            continue
        if number in leases.ledger.deliveries.records:
            leases.line.push(leases.ledger.columns.priority_of(number), number)
        else:
            leases.add(number, now_ms)


def forget_priorities(leases: Leases, now_ms: int) -> None:
    """All are of one priority."""
    _hold_what_is_out(leases)
    for number in leases.ledger.columns.living_numbers():
        if number not in leases.held:
            due_ms = leases.ledger.due_of(number)
            leases._due_moments().delay(number, due_ms) if due_ms > now_ms else leases.line.push(0, number)


def forget_leases(leases: Leases, now_ms: int) -> None:
    """What is out is ready."""
    for number in leases.ledger.columns.living_numbers():
        leases.add(number, now_ms)


def forget_tokens(leases: Leases, now_ms: int) -> None:
    """What is out is so under a lease that nobody has."""
    for number, side in leases.ledger.deliveries.records.items():
        if side.until_ms:
            leases._hold(number, side.until_ms, (side.term, 0), None, 0)
    for number in leases.ledger.columns.living_numbers():
        if number not in leases.held:
            leases.add(number, now_ms)


def put_last_what_came_back(leases: Leases, now_ms: int) -> None:
    """As it was in life, but not as it is promised: by publication."""
    _hold_what_is_out(leases)
    sides = leases.ledger.deliveries.records
    for number in sorted(leases.ledger.columns.living_numbers(), key=lambda number: (number in sides, number)):
        if number not in leases.held:
            leases.add(number, now_ms)


def _hold_what_is_out(leases: Leases) -> None:
    for number, side in leases.ledger.deliveries.records.items():
        if side.until_ms:
            leases._hold(number, side.until_ms, (side.term, side.sequence), None, 0)


FAULTS = (
    forget_what_stands_before,
    forget_delays,
    forget_retries,
    forget_priorities,
    forget_leases,
    forget_tokens,
    put_last_what_came_back,
)


@pytest.mark.parametrize("seed", seeds(1, of=4))
@pytest.mark.parametrize("way", FAULTY_WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_of_a_rebuild_is_seen(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Leases, int], None], way: Way, seed: int
) -> None:
    monkeypatch.setattr(Leases, "rebuild", fault)

    with pytest.raises(AssertionError):
        way(seed, KINDS)
