"""Payloads: the last entries by index, never the wrong ones, and never more than fits."""

from hypothesis import given
from hypothesis import strategies as st

from wakeq.actors.log.payloads import Payloads


def of(index: int) -> bytes:
    return f"entry {index}".encode()


def kept(first: int, last: int, bytes_max: int = 1_000) -> Payloads:
    payloads = Payloads(bytes_max)
    payloads.put(first, [of(index) for index in range(first, last + 1)])
    return payloads


@given(first=st.integers(0, 40), count=st.integers(1, 30))
def test_payloads_are_found_only_where_all_of_them_are_kept(first: int, count: int) -> None:
    payloads, last = kept(10, 29), first + count - 1

    found = payloads.get(first, last)

    is_kept = 10 <= first <= last <= 29
    assert found == ([of(index) for index in range(first, last + 1)] if is_kept else None)


def test_oldest_go_when_there_is_no_room() -> None:
    payloads = kept(1, 100, bytes_max=80)

    assert payloads.get(1, 1) is None
    assert payloads.get(100, 100) == [of(100)]


def test_single_entry_is_kept_however_large_it_is() -> None:
    payloads = Payloads(10)

    payloads.put(5, [bytes(100)])

    assert payloads.get(5, 5) == [bytes(100)]


def test_truncated_payloads_are_replaced() -> None:
    payloads = kept(1, 10)

    payloads.truncate_from(6)
    payloads.put(6, [b"another"])

    assert payloads.get(5, 6) == [of(5), b"another"]
    assert payloads.get(6, 7) is None


def test_gap_forgets_the_payloads_before_it() -> None:
    payloads = kept(1, 10)

    payloads.put(20, [of(20)])

    assert payloads.get(10, 10) is None
    assert payloads.get(20, 20) == [of(20)]
