"""Audience: who waits is served in the order of coming and for no longer than asked, and leaves nothing behind."""

from wakeq.protocol.queue.leases.audience import NEVER, WOKEN_GRACE_MS, Audience, WaitingFetch

WAITERS = 1_000
KEPT_MAX = 140  # of waits that are over


def waiter(until_ms: int, session: str = "somebody") -> WaitingFetch:
    return WaitingFetch(None, session, 1, until_ms, 0, 0)


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
            audience.forget(each.session)

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


def asleep(*always: str, only_ready: tuple[str, ...] = ()) -> Audience:
    audience = Audience()
    for session in always:
        audience.sleep(session, only_ready=False)
    for session in only_ready:
        audience.sleep(session, only_ready=True)
    return audience


def test_sleepers_are_woken_only_for_as_many_messages_as_are_ready() -> None:
    audience = asleep(only_ready=("a", "b", "c"))

    assert audience.to_wake(2, "ready", 1_000) == ["a", "b"]
    assert audience.to_wake(2, "ready", 1_000) == []
    assert list(audience.sleepers) == ["c"]


def test_sleepers_without_restraint_are_woken_by_any_message() -> None:
    audience = asleep("a", "b", only_ready=("c",))

    assert audience.to_wake(1, "sleeper", 1_000) == ["a", "b", "c"]


def test_all_sleepers_are_woken_by_the_policy_all() -> None:
    assert asleep(only_ready=("a", "b", "c")).to_wake(1, "all", 1_000) == ["a", "b", "c"]


def test_woken_session_that_does_not_fetch_in_time_is_expected_no_longer() -> None:
    audience = asleep(only_ready=("a", "b"))
    audience.to_wake(1, "ready", 1_000)
    assert audience.next_moment_ms() == 1_000 + WOKEN_GRACE_MS

    audience.expect(1_000 + WOKEN_GRACE_MS)

    assert audience.next_moment_ms() == NEVER
    assert audience.to_wake(1, "ready", 7_000) == ["b"]


def test_session_that_fetched_is_neither_asleep_nor_expected() -> None:
    audience = asleep("a", only_ready=("b",))
    audience.to_wake(1, "ready", 1_000)

    for session in ("a", "b"):
        audience.note_fetch(session)

    assert [len(kept) for kept in (audience.sleepers, audience.always_woken, audience.woken)] == [0, 0, 0]


def test_next_moment_is_that_of_the_first_wait() -> None:
    audience = Audience()
    for until_ms in (300, 200):
        audience.wait(waiter(until_ms))

    assert audience.next_moment_ms() == 200
