"""Uids: their shape, their order, and that foreign ones are told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol import uid
from wakeq.protocol.uid import NUMBER_MAX, QUEUE_ID_MAX, UidMaker, numbers, parse, prefix

QUEUE_IDS = st.integers(0, QUEUE_ID_MAX)
NUMBERS = st.one_of(st.integers(1, NUMBER_MAX), st.integers(1, 10**6))


def test_uid_is_seven_digits_of_the_queue_and_eight_of_the_number() -> None:
    assert prefix(1) == "0000001_"
    assert UidMaker(1).uid(1) == "0000001_00000001"
    assert UidMaker(61).uid(62) == "000000z_00000010"
    assert UidMaker(QUEUE_ID_MAX).uid(NUMBER_MAX) == "zzzzzzz_zzzzzzzz"
    assert UidMaker(12_345).uid(62**7 + 62**5 + 3) == "00003D7_10100003"


@given(queue_id=QUEUE_IDS, number=NUMBERS)
def test_uid_is_parsed_to_its_queue_and_number(queue_id: int, number: int) -> None:
    made = UidMaker(queue_id).uid(number)

    assert len(made) == 16
    assert parse(made) == (queue_id, number)
    assert numbers([made], prefix(queue_id)) == [number]


@given(first=st.tuples(QUEUE_IDS, NUMBERS), second=st.tuples(QUEUE_IDS, NUMBERS))
def test_order_of_texts_is_the_order_of_queue_and_number(first: tuple[int, int], second: tuple[int, int]) -> None:
    texts = [UidMaker(queue_id).uid(number).encode() for queue_id, number in (first, second)]

    assert (texts[0] < texts[1]) == (first < second)


@given(many=st.lists(NUMBERS, max_size=30))
def test_uids_made_together_equal_uids_made_one_by_one(many: list[int]) -> None:
    maker = UidMaker(7)

    made = maker.uids(many)

    assert made == [UidMaker(7).uid(number) for number in many]
    assert numbers(made, maker.prefix) == many


@pytest.mark.parametrize("start", [1, 3_840, 62**4 - 9, NUMBER_MAX - 5_000])
def test_uids_of_a_range_cross_every_carry(start: int) -> None:
    run = range(start, start + 4_000)

    one_by_one = [UidMaker(7).uid(number) for number in run]
    assert UidMaker(7).uids(run) == one_by_one
    assert UidMaker(7).keys_of_run("é-", start, start + 4_000) == [f"é-{uid}".encode() for uid in one_by_one]


@pytest.mark.parametrize(
    "foreign",
    [
        *("", "0000001", "0000001_0000000", "0000001_000000011", "0000001-00000001", "0000001_0000000!"),
        *("!000001_00000001", "0000001_\u06600000001", "a" * 14, "x" * 16, "~" * 18, "0000001_0000 001"),
    ],
)
def test_uid_of_another_shape_is_not_read(foreign: str) -> None:
    assert parse(foreign) is None
    assert numbers([foreign], "0000001_") == [-1]
    assert numbers(["0000001_00000005", foreign], "0000001_") == [5, -1]


@given(text=st.text(max_size=18))
def test_parser_never_raises_on_arbitrary_text(text: str) -> None:
    read = parse(text)

    assert read is None or UidMaker(read[0]).uid(read[1]) == text
    assert numbers([text, text], "0000001_") in ([-1, -1], [read and read[1]] * 2)


def test_uids_of_another_queue_are_minus_one() -> None:
    mine, other = UidMaker(1), UidMaker(2)

    assert numbers([other.uid(5), mine.uid(5), other.uid(5)], mine.prefix) == [-1, 5, -1]
    assert numbers([mine.uid(5), other.uid(5)], other.prefix) == [-1, 5]


def test_remembered_stems_of_uids_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uid, "STEMS_MAX", 4)
    maker = UidMaker(99)
    wanted = list(range(1, 100_000, 3_844))

    assert numbers(maker.uids(wanted), maker.prefix) == wanted
    assert len(uid.stems_of(maker.prefix)) <= 4


@pytest.mark.parametrize("number", [-1, NUMBER_MAX + 1])
def test_number_beyond_the_digits_is_a_bug_of_the_caller(number: int) -> None:
    with pytest.raises(AssertionError):
        UidMaker(1).uid(number)


@pytest.mark.parametrize("queue_id", [-1, QUEUE_ID_MAX + 1])
def test_queue_id_beyond_the_digits_is_a_bug_of_the_caller(queue_id: int) -> None:
    with pytest.raises(AssertionError):
        prefix(queue_id)
