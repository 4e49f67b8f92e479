"""Bodies: what is kept of them in memory, for how long, and what queues share."""

import pytest

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.bodies import CACHED_ALL_BYTES_MAX, CACHED_BYTES_MAX, KEPT_BYTES, Bodies, Stretch, share_of
from wakeq.protocol.queue.ledger.uniform import uniform_bodies


def test_body_is_at_hand_until_the_store_has_it() -> None:
    bodies = Bodies()
    bodies.publish([1, 2], [Draft(b"a"), Draft(b"b")], 5)

    fresh, _ = bodies.collect()
    while_flushing = [bodies.get(1), bodies.get(2)]
    bodies.flushed(lambda count: [2], CACHED_BYTES_MAX)

    assert fresh == [Stretch(1, [Draft(b"a"), Draft(b"b")], None)]
    assert while_flushing == [Draft(b"a"), Draft(b"b")]
    assert (bodies.get(1), bodies.get(2)) == (None, Draft(b"b"))
    assert bodies.missing([1, 2]) == [1]


def test_bodies_are_kept_within_bounds_and_only_those_that_are_next() -> None:
    bodies = Bodies()
    large = bytes(1_000)
    bodies.publish(range(1, 11), [Draft(large)] * 10, 5)
    bodies.collect()

    bodies.flushed(lambda count: range(5, 11), bytes_max=4 * (KEPT_BYTES + 1_000))

    assert bodies.missing(range(1, 11)) == [1, 2, 3, 4, 9, 10]


def test_message_without_a_body_counts_too() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 11), [Draft(b"")] * 10, 5)
    bodies.collect()

    bodies.flushed(lambda count: range(1, 11), bytes_max=3 * KEPT_BYTES)

    assert len(bodies) == 3


def test_full_queue_is_not_looked_through_again_until_something_goes() -> None:
    bodies = Bodies()
    looks: list[int] = []
    bodies.publish(range(1, 11), [Draft(b"")] * 10, 5)
    bodies.collect()

    def line(count: int) -> range:
        looks.append(count)
        return range(1, 11)

    for _ in range(3):
        bodies.flushed(line, bytes_max=3 * KEPT_BYTES)
    while_full = len(looks)
    bodies.remove([1])
    bodies.flushed(line, bytes_max=3 * KEPT_BYTES)

    assert (while_full, len(looks)) == (1, 2)


def test_bodies_read_by_a_full_queue_are_not_kept_for_ever() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 11), [Draft(b"")] * 10, 5)
    bodies.collect()
    bodies.flushed(lambda count: range(1, 11), bytes_max=3 * KEPT_BYTES)

    for number in range(4, 11):
        bodies.load({number: (Draft(b""), 5)})
    bodies.flushed(lambda count: range(8, 11), bytes_max=3 * KEPT_BYTES)

    assert bodies.missing(range(1, 11)) == [1, 2, 3, 4, 5, 6, 7]


def test_queues_share_the_bytes_that_all_may_keep() -> None:
    assert share_of(0) == share_of(1) == CACHED_BYTES_MAX
    assert 10_000 * share_of(10_000) <= CACHED_ALL_BYTES_MAX


def test_messages_in_memory_have_the_moment_of_their_publication() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 4), [Draft(b"")] * 3, 5)
    bodies.publish([4], [Draft(b"")], 5)
    bodies.publish([5, 6], [Draft(b"")] * 2, 7)
    bodies.remove([5])

    fresh = [bodies.kept(number) for number in (1, 4, 5, 6)]
    _, moments = bodies.collect()
    bodies.publish([7], [Draft(b"")], 9)
    flushing = [bodies.kept(number) for number in (1, 4, 5, 6, 7)]
    bodies.flushed(lambda count: [3, 6, 7], 1 << 20)

    kept = [(Draft(b""), 5), (Draft(b""), 5), None, (Draft(b""), 7)]
    assert fresh == kept
    assert flushing == [*kept, (Draft(b""), 9)]
    assert moments == [(1, 5), (5, 7)]
    assert [bodies.kept(number) for number in (2, 3, 6, 7)] == [None, (Draft(b""), 5), (Draft(b""), 7), (Draft(b""), 9)]


def test_messages_looked_up_together_are_those_looked_up_one_by_one() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 4), [Draft(b"old")] * 3, 5)
    bodies.collect()
    bodies.flushed(lambda count: [2], 1 << 20)
    bodies.publish(range(4, 7), [Draft(b"flushing")] * 3, 7)
    bodies.publish(range(7, 9), [Draft(b"flushing")] * 2, 8)
    bodies.collect()
    bodies.publish(range(9, 12), [Draft(b"new")] * 3, 9)
    bodies.remove([10])

    for numbers in ([1, 2, 3], [2], [4, 5, 6], [5, 6, 7, 8], [4, 6], [8, 9], [9, 11], [1, 2, 4, 9], []):
        one_by_one = {number: kept for number in numbers if (kept := bodies.kept(number)) is not None}
        assert bodies.kept_among(numbers) == one_by_one, numbers


def test_bodies_collected_twice_before_they_are_stored_keep_their_moments() -> None:
    bodies = Bodies()
    bodies.publish([1], [Draft(b"")], 5)
    bodies.collect()
    bodies.publish([2], [Draft(b"")], 6)

    handed_over = bodies.collect()

    assert handed_over == ([Stretch(2, [Draft(b"")], None)], [(2, 6)])
    assert [bodies.kept(number) for number in (1, 2)] == [(Draft(b""), 5), (Draft(b""), 6)]


def test_drafts_of_one_buffer_are_collected_in_it_without_those_removed() -> None:
    bodies, alike = Bodies(), uniform_bodies([b"a", b"b", b"c"])
    bodies.publish(range(1, 4), alike, 5)
    gone = bodies.remove([2])

    (fresh,), _ = bodies.collect()
    gone_while_flushing = bodies.remove([3])

    assert (gone, gone_while_flushing) == ([], [3])
    assert fresh.drafts is alike
    assert list(fresh.rows()) == [(1, Draft(b"a")), (3, Draft(b"c"))]
    assert [bodies.get(number) for number in (1, 2, 3)] == [Draft(b"a"), None, None]
    assert len(bodies) == 1


def test_messages_of_several_buffers_are_returned_together() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 3), uniform_bodies([b"1", b"2"]), 5)
    bodies.collect()
    bodies.publish([3], [Draft(b"3")], 5)
    bodies.publish(range(4, 6), uniform_bodies([b"4", b"5"]), 5)
    bodies.load({9: (Draft(b"9"), 1)})

    found = [bodies.get_many(numbers) for numbers in ([3, 4, 5], [1, 2, 3], [5, 1, 9], [9], [9, 4])]

    assert [[int(draft.body) for draft in drafts] for drafts in found] == [[3, 4, 5], [1, 2, 3], [5, 1, 9], [9], [9, 4]]
    assert bodies.missing([1, 2, 3, 4, 5]) == []


@pytest.mark.parametrize(
    "numbers", [[4, 5], [5, 4], [4, 6], [6, 5, 4], [3, 4, 5], [1, 6], [2, 3, 4], list(range(1, 7))]
)
def test_removed_numbers_are_returned_only_if_the_store_may_have_them(numbers: list[int]) -> None:
    bodies = Bodies()
    bodies.publish(range(1, 4), uniform_bodies([b"1", b"2", b"3"]), 5)
    bodies.collect()
    bodies.publish(range(4, 7), uniform_bodies([b"4", b"5", b"6"]), 5)

    stored = bodies.remove(numbers)

    assert stored == [number for number in numbers if number < 4]
    assert [number for number in range(1, 7) if bodies.get(number) is None] == sorted(numbers)
    assert len(bodies) == 6 - len(numbers)


def test_bodies_are_found_wherever_they_are_and_not_if_one_has_to_be_read() -> None:
    bodies = Bodies()
    bodies.publish([1, 2], [Draft(b"a"), Draft(b"b")], 1_000)
    bodies.collect()
    bodies.publish([3], [Draft(b"c")], 1_000)

    found = [bodies.find([number]) for number in (1, 3)]
    together = bodies.find([1, 2, 3])
    bodies.flushed(lambda count: [2], CACHED_BYTES_MAX)

    assert found == [[Draft(b"a")], [Draft(b"c")]]
    assert together == [Draft(b"a"), Draft(b"b"), Draft(b"c")]
    assert [bodies.find(numbers) for numbers in ([1], [2], [1, 2], [3])] == [None, [Draft(b"b")], None, [Draft(b"c")]]


def test_moment_of_each_message_is_that_of_its_publication_wherever_it_is_kept() -> None:
    bodies = Bodies()
    bodies.publish(range(1, 3), [Draft(b"")] * 2, 100)
    bodies.publish(range(3, 4), [Draft(b"")], 200)
    bodies.collect()
    bodies.flushed(lambda count: [1, 3], 10**6)
    bodies.publish(range(4, 6), [Draft(b"")] * 2, 300)
    bodies.publish(range(6, 7), [Draft(b"")], 400)
    bodies.collect()
    bodies.publish(range(7, 8), [Draft(b"")], 400)
    bodies.publish(range(8, 9), [Draft(b"")], 500)

    found = bodies.moments_of([8, 7, 6, 5, 4, 3, 1])

    assert [moment for moment, count in found for _ in range(count)] == [500, 400, 400, 300, 300, 200, 100]
    assert bodies.moments_of([4, 5]) == [(300, 2)], "what was published together is counted together"
