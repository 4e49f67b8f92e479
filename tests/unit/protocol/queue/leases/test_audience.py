"""Audience: who waits is served in the order of coming and for no longer than asked, and leaves nothing behind."""

from wakeq.protocol.queue.leases.audience import NEVER, Audience, Waiter

WAITERS = 1_000
KEPT_MAX = 140  # of waits that are over


def waiter(until_ms: int, session: str = "somebody") -> Waiter:
    return Waiter(None, session, 1, until_ms, 0, 0)


def test_waits_are_over_at_their_own_moments() -> None:
    audience = Audience()
    first, second, third = waits = [waiter(until_ms) for until_ms in (100, 200, 300)]
    for each in (second, third, first):
        audience.wait(each)

    over = []
    for now_ms in (99, 100, 199, 200, 299, 300):
        found = audience.waits_over(now_ms)
        over.append(found)
        for each in found:
            audience.end_wait(each)

    assert over == [[], [first], [], [second], [], [third]]
    assert audience.all_waits() == []
    assert audience._first_wait_ms == NEVER
    assert all(each.ended for each in waits)


def test_longest_waiter_is_next_even_if_many_before_it_have_left() -> None:
    audience = Audience()
    waits = [waiter(1_000, f"session {number}") for number in range(WAITERS)]
    for each in waits:
        audience.wait(each)

    for number, each in enumerate(waits[:-1]):
        if number % 3:
            audience.gone(each.session)

    stayed = [each for number, each in enumerate(waits) if number % 3 == 0]
    for each in stayed:
        assert audience.next_waiter() is each
        audience.end_wait(each)
    assert audience.next_waiter() is None


def test_ended_waits_behind_an_open_one_do_not_pile_up() -> None:
    audience = Audience()
    patient = waiter(NEVER)
    audience.wait(patient)

    for number in range(WAITERS):
        impatient = waiter(number, "somebody else")
        audience.wait(impatient)
        audience.end_wait(impatient)

    assert audience.next_waiter() is patient
    assert audience.waiters is not None
    assert len(audience.waiters) < KEPT_MAX


def test_served_waits_are_not_counted_as_ended() -> None:
    audience = Audience()
    for _ in range(WAITERS):
        audience.wait(served := waiter(NEVER))
        audience.end_wait(served)
        assert audience.next_waiter() is None

    assert audience._ended == 0
