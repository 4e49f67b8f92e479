"""Holders: who holds what, and what is forgotten of it."""

from dataclasses import dataclass

from wakeq.protocol.queue.leases.holders import HOLDING_MIN, Holders


@dataclass(eq=False)
class Worker:
    alive: bool = True


@dataclass
class Lease:
    holder: Worker | None


def test_worker_that_goes_gives_up_the_messages_it_still_holds() -> None:
    ada, bob = Worker(), Worker()
    held = {1: Lease(ada), 2: Lease(bob), 3: Lease(ada)}
    holders = Holders(held)
    holders.note(ada, [1, 2, 3])
    holders.note(bob, [2])

    del held[3]

    assert holders.take_from(ada) == [1]
    assert holders.take_from(ada) == []
    assert holders.take_from(bob) == [2]


def test_unnoted_leases_can_be_noted_later_except_those_of_dead_workers() -> None:
    ada, gone = Worker(), Worker(alive=False)
    holders = Holders({1: Lease(ada), 2: Lease(None), 3: Lease(gone)})

    holders.note_all()

    assert holders.take_from(ada) == [1]
    assert not holders._numbers


def test_messages_that_a_busy_worker_has_ended_are_forgotten() -> None:
    ada = Worker()
    held: dict[int, Lease] = {}
    holders = Holders(held)

    for number in range(1, 10 * HOLDING_MIN):
        held[number] = Lease(ada)
        holders.note(ada, [number])
        del held[number]

    assert len(holders._numbers[ada]) <= HOLDING_MIN + 2
