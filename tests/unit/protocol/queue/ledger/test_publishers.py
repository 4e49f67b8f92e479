"""Publishers alone: what is handed on to be stored, what is answered from memory, what is written down."""

import pytest

from wakeq.protocol.log.entries import Draft, Publish, Result, Results
from wakeq.protocol.queue.ledger.publishers import SESSION_WINDOW, Limits, Publishers

ID, SESSION = "id", "session"
LIMITS = Limits(dedup_ids_max=2, dedup_window_ms=100)


class Stored:
    """A store that numbers what it is given, and refuses bodies that say so."""

    def __init__(self) -> None:
        self.entries: list[Publish] = []
        self.next_number = 1

    def __call__(self, entry: Publish, at_ms: int) -> Results:
        self.entries.append(entry)
        results = []
        for draft in entry.drafts:
            refused = draft.body == b"refuse"
            results.append(int(Result.QUEUE_FULL) if refused else self.next_number)
            self.next_number += not refused
        return results


@pytest.fixture
def store() -> Stored:
    return Stored()


@pytest.fixture
def publishers(store: Stored) -> Publishers:
    return Publishers(LIMITS, 7, store)


def numbered(*ordinals: int, bodies: tuple[bytes, ...] = (), session: str = SESSION) -> Publish:
    drafts = [Draft(body) for body in bodies or [b""] * len(ordinals)]
    return Publish("q", drafts, session=session, ordinals=list(ordinals))


@pytest.mark.parametrize(
    ("before", "entry"),
    [
        ((), numbered(1, 2, 3)),
        ((), numbered(3, 1, 2)),
        ((1,), numbered(2, 3, 4)),
        ((), numbered(1, 2, 3, bodies=(b"", b"refuse", b""))),
        ((SESSION_WINDOW + 5,), numbered(6, 7, 8)),
    ],
)
def test_new_numbers_of_a_session_become_the_same_together_and_one_by_one(
    before: tuple[int, ...], entry: Publish
) -> None:
    together, apart = (Publishers(LIMITS, 7, Stored()) for _ in range(2))
    for publishers in (together, apart):
        if before:
            publishers.publish(numbered(*before), 5)

    results = list(together.publish(entry, 10))
    singly = [
        apart.publish(numbered(ordinal, bodies=(draft.body,)), 10)[0]
        for ordinal, draft in zip(entry.ordinals, entry.drafts, strict=True)
    ]

    assert results == singly
    assert together.collect() == apart.collect()


def test_batch_of_new_numbers_is_stored_as_one(publishers: Publishers, store: Stored) -> None:
    entry = numbered(1, 2, 3)

    publishers.publish(entry, 10)

    assert store.entries == [entry]


def test_refused_publish_may_be_tried_again(publishers: Publishers, store: Stored) -> None:
    first = publishers.publish(numbered(1, 2, bodies=(b"refuse", b"")), 10)
    second = publishers.publish(numbered(1, 2), 20)

    assert list(first) == [Result.QUEUE_FULL, 1]
    assert list(second) == [2, 1]
    assert len(store.entries) == 2


def test_changed_publishers_are_collected_once_and_forgotten_ones_as_none(publishers: Publishers) -> None:
    publishers.publish(Publish("q", [Draft(b"")], id=ID), 10)
    publishers.publish(numbered(1), 10)
    first = publishers.collect()
    nothing = publishers.collect()

    publishers.publish(numbered(1, session="another"), 200)
    ids, sessions = publishers.collect()

    assert [[name for name, _ in rows] for rows in first] == [[ID], [SESSION]]
    assert nothing == ([], [])
    assert ids == [(ID, None)]
    assert {name: session is None for name, session in sessions} == {SESSION: True, "another": False}


def test_collected_session_does_not_change_with_the_session(publishers: Publishers) -> None:
    publishers.publish(numbered(1), 10)
    ((_, collected),) = publishers.collect()[1]
    assert collected is not None

    publishers.publish(numbered(2), 20)

    assert (collected.highest, collected.used_ms, list(collected.outcomes)) == (1, 10, [1])


def test_ids_are_collected_again_with_their_old_numbers_in_a_new_incarnation(publishers: Publishers) -> None:
    publishers.publish(Publish("q", [Draft(b"")], id=ID), 10)
    publishers.collect()

    publishers.begin_incarnation(8)

    assert publishers.collect()[0] == [(ID, (7, 1, 1, 10))]
    assert publishers.queue_id == 8


def test_restored_publishers_recognise_repeated_publishes(publishers: Publishers, store: Stored) -> None:
    publishers.publish(Publish("q", [Draft(b"")] * 2, id=ID), 10)
    publishers.publish(numbered(4), 10)
    ids, sessions = publishers.collect()

    restored = Publishers(LIMITS, 7, store)
    restored.restore(
        [(name, once) for name, once in ids if once], [(name, session) for name, session in sessions if session]
    )

    assert list(restored.publish(Publish("q", [Draft(b"")] * 2, id=ID), 20)) == [1, 2]
    assert list(restored.publish(numbered(4), 20)) == [3]
    assert len(store.entries) == 2
