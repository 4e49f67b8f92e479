"""Leases whose line is swept: it holds what the ledger says, and the dead in it are never more than were counted."""

import random

import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Delivered, Draft, Publish, Reason, Released
from wakeq.protocol.queue.leases import due_moments, lease_ends
from wakeq.protocol.queue.leases import leases as leases_module
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.queue.order import fifo, ready_line

Q, QUEUE_ID, TERM = "q", 1, 1
STEPS = 300


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so small that a few dozen messages fill blocks and call for sweeps."""
    for name, bound in {"BLOCK_NUMBERS": 4, "RUN_NUMBERS_MIN": 3, "SWEEP_NUMBERS": 5, "SPENT_SEGMENTS_MAX": 1}.items():
        monkeypatch.setattr(fifo, name, bound)
    monkeypatch.setattr(ready_line, "GONE_MAX", 3)
    monkeypatch.setattr(ready_line, "SWEEP_NUMBERS", 6)
    monkeypatch.setattr(lease_ends, "ENDS_MIN", 4)
    monkeypatch.setattr(due_moments, "EXCESS_MAX", 3)
    monkeypatch.setattr(leases_module, "HEADS", 3)


class Life:
    """One queue, whose messages come, go out, come back and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ledger = Ledger(Q, QUEUE_ID, Policies(), Limits())
        self.leases = Leases(self.ledger, TERM, 0)
        self.now_ms = 1_000
        self.priority_max = self.chance.choice([0, 2])
        self.delays_ms = self.chance.choice([(0,), (0, 20)])

    def step(self) -> None:
        chance, living = self.chance, list(self.ledger.columns.living_numbers())
        self.now_ms += chance.randint(0, 3)
        match chance.choice(["publish", "take", "take", "acknowledge", "acknowledge the oldest", "come back", "stay"]):
            case "publish":
                self.publish(chance.randint(1, 12))
            case "take":
                self.take(chance.randint(1, 5))
            case "acknowledge" if living:
                self.acknowledge(chance.sample(living, min(len(living), chance.randint(1, 8))))
            case "acknowledge the oldest":
                self.acknowledge(living[: chance.randint(1, 12)])
            case "come back" if self.leases.held:
                self.release(chance.choice(list(self.leases.held)))
            case "stay":
                some = living[: chance.randint(1, 5)]
                self.leases.mark_ending(some)
                self.leases.ready_count(self.now_ms)  # passes them over
                self.leases.keep_leased(some, self.now_ms)
        self.leases.release_due(self.now_ms)

    def publish(self, count: int) -> None:
        chance = self.chance
        delays_ms, priority_max = self.delays_ms, self.priority_max
        drafts = [Draft(b"", chance.randint(0, priority_max), delay_ms=chance.choice(delays_ms)) for _ in range(count)]
        numbers = self.ledger.publish(Publish(Q, drafts), self.now_ms)
        assert isinstance(numbers, range)
        self.leases.add_published(numbers, self.now_ms, lambda: self.now_ms)

    def take(self, count: int) -> None:
        numbers = self.leases.take(count, self.now_ms)
        assert all(map(self.ledger.columns.lives, numbers))
        if self.chance.random() < 0.3:
            self.leases.return_undelivered(numbers[1:], self.now_ms)
            del numbers[1:]
        if numbers:
            untils_ms, first = self.leases.lease(numbers, [None] * len(numbers), [0] * len(numbers), self.now_ms)
            self.ledger.deliver(Delivered(Q, QUEUE_ID, numbers, untils_ms, first), TERM)

    def acknowledge(self, numbers: list[int]) -> None:
        self.leases.mark_ending(numbers)
        self.ledger.acknowledge(Ack(Q, QUEUE_ID, numbers, [ANY_TOKEN] * len(numbers)))
        self.leases.forget_removed(numbers)

    def release(self, number: int) -> None:
        due_ms = self.chance.choice([0, self.now_ms + 15])
        self.ledger.release(Released(Q, QUEUE_ID, [number], [due_ms], [ANY_TOKEN], Reason.NACK))
        self.leases.return_to_line(number, self.now_ms)

    def check(self) -> None:
        ledger, leases = self.ledger, self.leases
        available = [
            n for n in ledger.columns.living_numbers() if n not in leases.held and ledger.due_of(n) <= self.now_ms
        ]
        line = leases.next_numbers(10**6)
        dead = [number for number in line if not ledger.columns.lives(number)]
        assert sorted(set(line).difference(dead)) == available
        assert len(set(line)) == len(line)
        assert len(dead) <= leases.line.gone
        assert bool(leases.ready_count(self.now_ms)) is bool(available)


@pytest.mark.parametrize("seed", range(20))
def test_line_matches_the_ledger_whatever_was_swept(seed: int) -> None:
    life = Life(seed)

    for _ in range(STEPS):
        life.step()
        life.check()
