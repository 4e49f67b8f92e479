"""Holders: who holds what, and what is forgotten of it."""

from dataclasses import dataclass

from wakeq.protocol.queue.leases.holders import HOLDING_MIN, Holders


@dataclass(eq=False)
class Worker:
    alive: bool = True


@dataclass
class Lease:
    holder: Worker | None


def test_who_goes_leaves_what_he_still_holds() -> None:
    ada, bob = Worker(), Worker()
    held = {1: Lease(ada), 2: Lease(bob), 3: Lease(ada)}
    holders = Holders(held)
    holders.note(ada, [1, 2, 3])
    holders.note(bob, [2])

    del held[3]

    assert holders.take_from(ada) == [1]
    assert holders.take_from(ada) == []
    assert holders.take_from(bob) == [2]


def test_what_was_handed_out_unnoted_can_be_noted_later_but_for_who_is_gone() -> None:
    ada, gone = Worker(), Worker(alive=False)
    holders = Holders({1: Lease(ada), 2: Lease(None), 3: Lease(gone)})

    holders.note_all()

    assert holders.take_from(ada) == [1]
    assert not holders._numbers


def test_what_a_busy_worker_is_done_with_is_forgotten() -> None:
    ada = Worker()
    held: dict[int, Lease] = {}
    holders = Holders(held)

    for number in range(1, 10 * HOLDING_MIN):
        held[number] = Lease(ada)
        holders.note(ada, [number])
        del held[number]

    assert len(holders._numbers[ada]) <= HOLDING_MIN + 2
