"""When leases end: at their moment and not before, once, and never by an end that was put off."""

import pytest

from wakeq.protocol.queue.leases import lease_ends
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.lease_ends import LeaseEnds
from wakeq.protocol.queue.leases.leases import Lease


def held_until(**untils_ms: int) -> dict[int, Lease]:
    return {int(name.removeprefix("n")): Lease(until_ms, (1, 1), None, 0) for name, until_ms in untils_ms.items()}


def test_leases_end_at_their_moment_and_once() -> None:
    ends = LeaseEnds(held_until(n1=100, n2=100, n3=200))
    ends.add(200, [3])
    ends.add(100, [1, 2])

    found = [ends.take_ended(now_ms) for now_ms in (99, 100, 100, 200)]

    assert found == [[], [1, 2], [], [3]]
    assert ends.first_ms == NEVER


def test_lease_that_was_put_off_or_is_over_otherwise_does_not_end_at_its_old_moment() -> None:
    held = held_until(n1=100, n2=100)
    ends = LeaseEnds(held)
    ends.add(100, [1, 2])

    held[1].until_ms = 300
    ends.add(300, [1])
    del held[2]

    assert ends.take_ended(299) == []
    assert ends.take_ended(300) == [1]


def test_ends_that_are_over_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_ends, "ENDS_MIN", 10)
    held = held_until(n1=100)
    ends = LeaseEnds(held)

    for until_ms in range(101, 1_101):  # put off again and again
        held[1].until_ms = until_ms
        ends.add(until_ms, [1])

    assert len(ends._ends) <= 2 * len(held) + 10
    assert ends.take_ended(1_099) == []
    assert ends.take_ended(1_100) == [1]


def test_leases_end_at_their_moment_while_another_is_put_off_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_ends, "ENDS_MIN", 10)
    kept = {number: 5_000 - number for number in range(2, 40)}  # the later ones end first
    held = {number: Lease(until_ms, (1, 1), None, 0) for number, until_ms in kept.items()} | held_until(n1=100)
    ends = LeaseEnds(held)
    for number, until_ms in kept.items():
        ends.add(until_ms, [number])

    for until_ms in range(101, 1_101):
        held[1].until_ms = until_ms
        ends.add(until_ms, [1])

    assert [ends.take_ended(now_ms) for now_ms in (1_099, 1_100, 4_960)] == [[], [1], []]
    assert [ends.take_ended(now_ms) for now_ms in range(4_961, 4_999)] == [[number] for number in range(39, 1, -1)]
