"""Columns: what messages were published with, which of them live, and what goes with the last of a chunk."""

import pytest

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.ledger.chunks import CHUNK
from wakeq.protocol.queue.ledger.columns import Columns

PLAIN = Draft(b"ab", headers=b"\x80")
MIXED = [Draft(b"", priority=3), PLAIN, Draft(b"a", delay_ms=5), Draft(b"", expires_ms=6), Draft(b"b", timeout_ms=7)]


@pytest.mark.parametrize("drafts", [[PLAIN] * 3, MIXED])
def test_new_messages_are_called_plain_only_if_each_of_them_is(drafts: list[Draft]) -> None:
    columns = Columns()
    columns.append(drafts, 1_000)
    every = range(1, columns.next_number)

    is_plain = [not (columns.priority_of(n) or columns.published_due_of(n) or columns.expires_of(n)) for n in every]

    assert columns.are_plain(every) is all(is_plain)
    assert not columns.are_plain(list(every))  # not certain: they may not have been published together
    assert not columns.are_plain(range(1, 1))


@pytest.mark.parametrize("drafts", [[PLAIN] * 3, MIXED])
def test_columns_know_whether_any_message_ever_had_more_than_a_size(drafts: list[Draft]) -> None:
    columns = Columns()
    columns.append([PLAIN], 1_000)
    columns.append(drafts, 1_000)
    hidden, restored = Columns(), Columns()
    hidden.append([PLAIN], 1_000)
    hidden.hide(range(1, 2))
    for chunk_id, chunk in columns.chunks.items():
        restored.restore_chunk(chunk_id, chunk)

    plain = all((d.priority, d.delay_ms, d.expires_ms, d.timeout_ms) == (0, 0, 0, 0) for d in drafts)

    assert columns.only_sizes is restored.only_sizes is plain
    assert not hidden.only_sizes


def test_messages_that_fit_are_counted_by_their_bodies() -> None:
    columns = Columns()
    columns.append([Draft(b"x" * size) for size in (0, 4, 3, 9)], 1_000)

    counts = [columns.count_within([1, 2, 3, 4], bytes_max) for bytes_max in (0, 3, 4, 6, 7, 15, 16)]

    assert counts == [1, 1, 2, 2, 3, 3, 4]


def test_crossed_out_message_is_gone_and_a_chunk_that_is_full_and_empty_too() -> None:
    columns = Columns()
    columns.append([Draft(b"xy")] * (CHUNK + 1), 1_000)

    for number in range(1, CHUNK):
        columns.remove(number)

    assert list(columns.chunks) == [1]
    assert list(columns.living_numbers()) == [CHUNK, CHUNK + 1]
    assert (columns.living, columns.bytes) == (2, 4)
    assert [columns.lives(n) for n in (-1, 0, 1, CHUNK, CHUNK + 1, CHUNK + 2)] == [False] * 3 + [True] * 2 + [False]


def test_living_numbers_of_a_chunk_are_a_range_while_only_its_ends_have_gone() -> None:
    columns = Columns()
    columns.append([PLAIN] * (2 * CHUNK + 5), 1_000)
    for number in (1, 2, CHUNK + 1, 2 * CHUNK + 4):
        columns.remove(number)

    holed = [CHUNK, *range(CHUNK + 2, 2 * CHUNK)]
    first, second, third = columns.living_by_chunk()

    assert (first, second) == (range(3, CHUNK), holed)
    assert third == [*range(2 * CHUNK, 2 * CHUNK + 4), 2 * CHUNK + 5]
    assert list(columns.living_numbers()) == [*first, *second, *third]
    assert list(columns.living_numbers(CHUNK + 1)) == [*holed[1:], *third]


def test_living_messages_among_a_run_are_found() -> None:
    columns = Columns()
    columns.append([PLAIN] * (CHUNK + 5), 1_000)
    run = range(CHUNK - 2, CHUNK + 3)

    all_of_them = columns.living_among(run)
    columns.remove(CHUNK)

    assert all_of_them is run
    assert columns.living_among(run) == [CHUNK - 2, CHUNK - 1, CHUNK + 1, CHUNK + 2]
    assert columns.living_among(range(CHUNK + 4, CHUNK + 7)) == [CHUNK + 4, CHUNK + 5]
    assert columns.living_among(range(9 * CHUNK, 9 * CHUNK + 2)) == []
    assert columns.living_among([CHUNK + 1, CHUNK, 0, 1, -1]) == [CHUNK + 1, 1]
    assert columns.living_among([0, 1]) == [1]
    assert columns.living_among([]) == []


def test_alias_of_a_removed_message_is_found_until_it_is_collected() -> None:
    columns = Columns()
    columns.append([Draft(b"", alias="old-1"), Draft(b"", alias="old-2")], 1_000)

    columns.remove(1)
    before = dict(columns.aliases)

    assert before == {"old-1": 1, "old-2": 2}
    assert [columns.collect_aliases(), columns.collect_aliases()] == [["old-1"], []]
    assert (columns.aliases, columns.aliased) == ({"old-2": 2}, {2: "old-2"})


def test_chunks_that_changed_are_collected_once_as_copies() -> None:
    columns = Columns()
    columns.append([PLAIN] * (CHUNK + 5), 1_000)

    ((first, copy, with_record), (second, _, _)) = columns.collect_chunks({3, CHUNK})
    columns.remove(3)

    assert (first, second, with_record) == (0, 1, [3])
    assert copy is not None
    assert copy.sizes[3]
    assert [chunk_id for chunk_id, _, _ in columns.collect_chunks({})] == [0]
