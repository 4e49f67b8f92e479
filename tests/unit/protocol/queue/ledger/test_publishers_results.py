"""What of a publish is new."""

import pytest

from wakeq.protocol.log.entries import Draft, Result, Results
from wakeq.protocol.queue.ledger.publishers import Mixed, Repeated, new_drafts, new_numbers

DRAFTS = [Draft(b"a"), Draft(b"b"), Draft(b"c")]


def mixed(*parts: Results) -> Mixed:
    results = Mixed()
    for part in parts:
        results.add(part)
    return results


@pytest.mark.parametrize(
    ("results", "new"),
    [
        (range(7, 10), {7: b"a", 8: b"b", 9: b"c"}),
        ([7, int(Result.QUEUE_FULL), 8], {7: b"a", 8: b"c"}),
        ([int(Result.BUSY)] * 3, {}),
        (Repeated(5, range(7, 10)), {}),
        (mixed(range(7, 8), Repeated(5, range(3, 4)), [int(Result.FORGOTTEN)]), {7: b"a"}),
        (mixed(Repeated(5, range(7, 8)), range(7, 8), range(8, 9)), {7: b"b", 8: b"c"}),  # 7 of another incarnation
    ],
)
def test_new_numbers_are_paired_with_their_drafts(results: Results, new: dict[int, bytes]) -> None:
    numbers, drafts = new_numbers(results), new_drafts(results, DRAFTS)

    assert dict(zip(numbers, (draft.body for draft in drafts), strict=True)) == new


def test_repetition_reads_like_the_results_of_the_first_time() -> None:
    repeated = Repeated(5, range(7, 10))

    assert (list(repeated), len(repeated), repeated[0], repeated[-1]) == ([7, 8, 9], 3, 7, 9)


def test_repeated_results_name_their_incarnation() -> None:
    results = mixed(range(1, 2), Repeated(5, range(9, 10)), Repeated(6, range(8, 9)))

    assert list(results) == [1, 9, 8]
    assert results.repeated == {1: 5, 2: 6}
