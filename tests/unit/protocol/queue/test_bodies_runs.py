"""Runs hold what a dict by number would hold, and hand over what is there at that moment."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue import bodies
from wakeq.protocol.queue.bodies import Runs, Stretch
from wakeq.protocol.queue.ledger.uniform import uniform_bodies

STEPS = st.one_of(
    st.tuples(st.sampled_from(["one by one", "one buffer"]), st.integers(1, 9)),
    st.tuples(st.just("remove"), st.tuples(st.integers(0, 40), st.integers(0, 12))),
    st.tuples(st.just("hand over"), st.none()),
)


@settings(max_examples=examples(200))
@given(first=st.integers(1, 5), steps=st.lists(STEPS, max_size=30), gone_min=st.sampled_from([1, 1_024]))
def test_runs_hold_appended_drafts_until_they_are_removed(
    first: int, steps: list[tuple[str, object]], gone_min: int
) -> None:
    with patch.object(bodies, "GONE_MIN", gone_min):
        hold(first, steps)


def hold(first: int, steps: list[tuple[str, object]]) -> None:
    newer, older, model, next_number = Runs(), Runs(), dict[int, Draft](), first

    for step, about in steps:
        if step == "remove":
            start, count = about  # type: ignore[misc]
            known = [number for number in range(start, start + count) if number in model]
            if count == 1:
                assert (newer.remove(start) or older.remove(start)) == bool(known)
            else:
                stop = start + count
                assert newer.remove_between(start, stop) + older.remove_between(start, stop) == len(known)
            for number in known:
                del model[number]
        elif step == "hand over":
            handed_over = newer.stretches()
            rows = dict(row for stretch in handed_over for row in stretch.rows())
            assert rows == {number: draft for number, draft in model.items() if number >= newer.first}
            older.take_from(newer)
        else:
            bodies = [b"%d" % number for number in range(next_number, next_number + about)]  # type: ignore[operator]
            drafts = uniform_bodies(bodies) if step == "one buffer" else list(map(Draft, bodies))
            newer.append(next_number, drafts)
            model.update(zip(range(next_number, next_number + len(drafts)), drafts, strict=True))
            next_number += len(drafts)

        assert newer.living + older.living == len(model)
        for number in range(next_number + 2):
            assert (newer.get(number) or older.get(number)) == model.get(number)
            for stop in (number + 4, number + 9):
                expected = [model.get(n) for n in range(number, stop)]
                whole = None not in expected and number >= newer.first
                assert newer.between(number, stop) == (expected if whole else None)


def test_stretches_handed_over_do_not_change() -> None:
    kept = Runs()
    kept.append(1, [Draft(b"1")])
    kept.append(2, [Draft(b"2")])
    kept.append(3, uniform_bodies([b"3", b"4"]))
    kept.remove_between(2, 4)

    handed_over = kept.stretches()
    kept.remove_between(1, 5)

    assert [list(stretch.rows()) for stretch in handed_over] == [[(1, Draft(b"1"))], [(4, Draft(b"4"))]]
    assert [list(stretch.numbers(0, len(stretch.drafts))) for stretch in handed_over] == [[1], [4]]
    assert kept.stretches() == []


def test_drafts_appended_one_by_one_lie_together_and_not_in_the_list_of_their_entry() -> None:
    kept, entry = Runs(), [Draft(b"1")]
    kept.append(1, entry)
    kept.append(2, [Draft(b"2"), Draft(b"3")])

    assert kept.stretches() == [Stretch(1, [Draft(b"1"), Draft(b"2"), Draft(b"3")], None)]
    assert entry == [Draft(b"1")]


def test_queue_that_keeps_up_holds_few_drafts_besides_the_waiting_ones() -> None:
    kept = Runs()
    for number in range(1, 10_001):
        kept.append(number, [Draft(b"%d" % number)])
        if number > 10:
            kept.remove(number - 10)

    (stretch,) = kept.stretches()

    assert list(stretch.numbers(0, len(stretch.drafts))) == list(range(9_991, 10_001))
    assert len(stretch.drafts) == 10
    assert sum(len(run.drafts) for run in kept._runs) <= bodies.GONE_MIN + 20


def test_drafts_removed_before_the_next_is_appended_leave_nothing() -> None:
    kept = Runs()
    for number in range(1, 1_001):
        kept.append(number, uniform_bodies([b"x"]) if number % 2 else [Draft(b"x")])
        kept.remove(number)

    assert len(kept._runs) == 1
    assert kept.stretches() == []


def test_stretch_over_messages_that_have_gone_is_not_all_there() -> None:
    held = Runs()
    held.append(1, [Draft(b"1"), Draft(b"2")])
    held.append(3, uniform_bodies([b"3", b"4"]))
    held.remove_between(3, 5)
    held.append(5, [Draft(b"5"), Draft(b"6")])

    assert held.between(1, 4) is None
