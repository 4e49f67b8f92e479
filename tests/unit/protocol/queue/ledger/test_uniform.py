"""Messages in one buffer are what they would be one by one."""

import pytest

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.ledger.uniform import UniformBatch, shape_of, uniform_bodies, uniform_texts

BODIES = [b"a", b"", b"bcd", bytes(300), b"e"]


@pytest.mark.parametrize("shared", [(0, 0, 0, 0), (-1, 2, 3, 4)])
def test_alike_drafts_are_a_sequence_of_drafts(shared: tuple[int, int, int, int]) -> None:
    drafts = [Draft(body, *shared) for body in BODIES]

    alike = uniform_bodies(BODIES, shape_of(*shared))

    assert list(alike) == drafts
    assert alike == drafts
    assert drafts == alike
    assert alike != drafts[1:]
    assert [alike[i] for i in range(5)] == drafts
    assert len(alike) == 5


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(3, 1), slice(-2, None), slice(2, 99)], ids=str)
def test_slice_of_alike_drafts_is_a_list(part: slice) -> None:
    assert uniform_bodies(BODIES)[part] == [Draft(body) for body in BODIES][part]


@pytest.mark.parametrize("place", [5, -1])
def test_place_beyond_its_ends_is_none(place: int) -> None:
    with pytest.raises(IndexError):
        uniform_bodies(BODIES)[place]


@pytest.mark.parametrize("texts", [["a", "", "bc"], ["ä", "", "€b", "\U0001f600"], [""]])
def test_alike_texts_have_the_sizes_of_their_bytes(texts: list[str]) -> None:
    alike = uniform_texts(texts)

    assert alike == [Draft(text.encode()) for text in texts]
    assert list(alike.sizes) == [len(text.encode()) for text in texts]


def test_empty_one_has_nothing_in_it() -> None:
    assert list(uniform_bodies([])) == []
    assert type(uniform_bodies([])) is UniformBatch
