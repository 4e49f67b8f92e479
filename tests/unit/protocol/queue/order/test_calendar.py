"""What the calendar promises beyond order: memory, bounded calls, and that the dead do not stay."""

import tracemalloc

import pytest

from wakeq.protocol.queue.order import calendar
from wakeq.protocol.queue.order.calendar import Calendar

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def drain(book: Calendar, now_ms: int, due: dict[int, int]) -> list[int]:
    """Take all that is due, as an owner does."""
    taken: list[int] = []
    while (next_ms := book.next_due_ms()) is not None and next_ms <= now_ms:
        for number in book.take_due(now_ms, lambda number: due.get(number, 0), 100):
            taken.append(number)
            del due[number]
    return taken


def book_of(due: dict[int, int]) -> Calendar:
    book = Calendar()
    for number, due_ms in due.items():
        book.add(due_ms, number)
    return book


def test_empty_calendar_calls_for_nothing() -> None:
    book = Calendar()

    assert book.next_due_ms() is None
    assert book.take_due(NOW_MS, lambda number: 0, 10) == []


def test_numbers_come_when_due_and_not_a_millisecond_before() -> None:
    due = {1: NOW_MS + 5_000, 2: NOW_MS + DAY_MS, 3: NOW_MS + 4_999}
    book = book_of(due)

    assert drain(book, NOW_MS + 4_998, due) == []
    assert drain(book, NOW_MS + 4_999, due) == [3]
    assert drain(book, NOW_MS + 5_000, due) == [1]
    assert drain(book, NOW_MS + DAY_MS - 1, due) == []
    assert drain(book, NOW_MS + DAY_MS, due) == [2]
    assert (len(book), book.next_due_ms()) == (0, None)


def test_numbers_of_one_moment_come_in_the_order_in_which_they_were_added() -> None:
    due = dict.fromkeys((5, 2, 9, 1), NOW_MS)
    book = book_of(due)

    assert drain(book, NOW_MS, due) == [5, 2, 9, 1]


def test_number_that_is_gone_is_dropped_in_silence() -> None:
    due = {1: NOW_MS, 2: NOW_MS}
    book = book_of(due)

    del due[1]

    assert drain(book, NOW_MS, due) == [2]
    assert len(book) == 0


@pytest.mark.parametrize("later_ms", [1, 2_000, DAY_MS])
def test_number_that_moved_to_a_later_moment_is_not_lost(later_ms: int) -> None:
    due = {1: NOW_MS}
    book = book_of(due)

    due[1] += later_ms

    assert drain(book, NOW_MS + later_ms - 1, due) == []
    assert drain(book, NOW_MS + later_ms, due) == [1]


def test_number_that_was_added_twice_for_one_moment_comes_once() -> None:
    book = Calendar()
    book.add_many(NOW_MS, [1, 1])

    assert book.take_due(NOW_MS, lambda number: NOW_MS, 10) == [1]
    assert len(book) == 0


def test_number_that_moved_to_an_earlier_moment_comes_once() -> None:
    due = {1: NOW_MS + 3_000_000}
    book = book_of(due)

    due[1] = NOW_MS
    book.add(NOW_MS, 1)

    assert drain(book, NOW_MS, due) == [1]
    assert drain(book, NOW_MS + 4_000_000, due) == []
    assert len(book) == 0


def test_call_looks_at_a_bounded_number_of_entries() -> None:
    asked = 0

    def due_of(number: int) -> int:
        nonlocal asked
        asked += 1
        return NOW_MS

    book = Calendar()
    book.add_many(NOW_MS, range(1, 3 * calendar.WORK_NUMBERS_MAX))

    taken: set[int] = set()
    while (next_ms := book.next_due_ms()) is not None and next_ms <= NOW_MS:
        asked = 0
        taken.update(book.take_due(NOW_MS, due_of, 10**9))
        assert asked <= calendar.WORK_NUMBERS_MAX
    assert len(taken) == 3 * calendar.WORK_NUMBERS_MAX - 1


def test_due_message_does_not_wait_for_a_later_bucket_that_is_split_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calendar, "WORK_NUMBERS_MAX", 10)
    border_ms = 1 << calendar.FAR_SHIFT
    due = {1: border_ms - 5} | dict.fromkeys(range(2, 500), border_ms + 5)
    book = book_of(due)

    taken: list[int] = []
    for _ in range(5):  # split, split, take: not 50 calls
        taken += book.take_due(border_ms - 5, due.__getitem__, 1)

    assert taken == [1]


def test_entry_costs_at_most_12_bytes_over_a_day() -> None:
    tracemalloc.start()
    book = Calendar()
    for number in range(100_000):
        book.add(NOW_MS + number * 7_919_017 % DAY_MS, number)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert used < 12 * 100_000


def test_numbers_acknowledged_at_once_do_not_stay_for_a_day() -> None:
    book, most = Calendar(), 0
    book.take_due(NOW_MS, lambda number: 0, 1)

    for start in range(0, 200_000, 100):
        book.add_many(NOW_MS + DAY_MS + start, range(start, start + 100))
        book.forget(100)
        if book.needs_compaction:
            book.compact(lambda number: False)
        most = max(most, len(book))

    assert most < 2 * calendar.DEAD_NUMBERS_MIN


def test_compaction_keeps_the_living_and_ends() -> None:
    due = {number: NOW_MS + number * 977 for number in range(60_000)}
    book = book_of(due)
    for number in range(60_000):
        if number % 3:
            del due[number]
            book.forget()

    rounds = 0
    while book.needs_compaction:
        book.compact(due.__contains__)
        rounds += 1

    assert 2 <= rounds < 10
    assert (len(book), book.dead) == (20_000, 0)
    assert drain(book, NOW_MS + DAY_MS, due) == list(range(0, 60_000, 3))


def test_message_added_twice_for_one_moment_is_taken_once_over_many_calls() -> None:
    due = dict.fromkeys(range(1, 301), NOW_MS + 5_000)
    book = book_of(due)
    book.add_many(NOW_MS + 5_000, list(due))

    taken: list[int] = []
    while (next_ms := book.next_due_ms()) is not None and next_ms <= NOW_MS + 5_000:
        taken += book.take_due(NOW_MS + 5_000, lambda number: due[number], 100)

    assert taken == list(due)
    assert len(book) == 0
