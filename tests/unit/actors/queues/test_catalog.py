"""QueueCatalog: what an entry changes of it, or why it changes nothing."""

import pytest

from wakeq.actors.mail import LogItem
from wakeq.actors.queues.catalog import Declined, QueueCatalog
from wakeq.protocol.catalog import Catalog, Policies
from wakeq.protocol.log.entries import (
    CreateQueue,
    DeleteQueue,
    Entry,
    Members,
    PauseQueue,
    PurgeQueue,
    Result,
    UpdateQueue,
)
from wakeq.protocol.queue.outcomes import Outcome
from wakeq.protocol.raft.membership import config_of
from wakeq.storage.state.checkpoint import Grave

Q = "q"
POLICIES = Policies(max_size=5)


class Kept:
    """A catalog with one queue, which entry 3 has created."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.changes = QueueCatalog(Catalog(), self.created.append)
        self.index = 2
        assert self.change(CreateQueue(Q, POLICIES)) is None

    def change(self, entry: Entry) -> Declined | None:
        self.index += 1
        return self.changes.change(LogItem(self.index, 1, 1_000 * self.index, entry))


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_created_queue_has_the_index_of_its_entry_as_id(kept: Kept) -> None:
    record = kept.changes.catalog.queues[Q]

    assert (record.id, record.policies, record.created_ms) == (3, POLICIES, 3_000)
    assert kept.created == [Q]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (CreateQueue(Q, Policies()), Result.EXISTS),
        (UpdateQueue("none", {"max_size": 1}), Result.NO_QUEUE),
        (DeleteQueue("none"), Result.NO_QUEUE),
        (PurgeQueue("none"), Result.NO_QUEUE),
        (PauseQueue("none", 1), Result.NO_QUEUE),
    ],
)
def test_entry_about_a_queue_that_is_there_or_not_is_declined(kept: Kept, entry: Entry, code: Result) -> None:
    before = dict(kept.changes.catalog.queues)

    declined = kept.change(entry)

    assert declined == Declined(Outcome(entry.queue, 0, [code]), int(code))
    assert kept.changes.catalog.queues == before
    assert not kept.changes.has_graves


def test_update_that_makes_no_sense_is_refused_with_the_reason(kept: Kept) -> None:
    declined = kept.change(UpdateQueue(Q, {"structure": "QA"}))

    assert declined is not None
    assert declined.code == Result.REJECTED
    assert "needs priority_min" in declined.answer.detail
    assert kept.changes.catalog.queues[Q].policies == POLICIES


def test_update_changes_policies_and_keeps_the_id(kept: Kept) -> None:
    assert kept.change(UpdateQueue(Q, {"max_size": 7})) is None

    record = kept.changes.catalog.queues[Q]
    assert (record.id, record.policies.max_size, record.created_ms) == (3, 7, 3_000)


def test_default_queue_is_not_deleted(kept: Kept) -> None:
    kept.change(CreateQueue("", Policies()))

    declined = kept.change(DeleteQueue(""))

    assert declined is not None
    assert declined.code == Result.DEFAULT_QUEUE
    assert "" in kept.changes.catalog.queues


def test_purged_queue_begins_anew_under_another_id_and_leaves_a_grave(kept: Kept) -> None:
    assert kept.change(PurgeQueue(Q)) is None

    assert kept.changes.catalog.queues[Q].id == 4
    assert kept.changes.catalog.queues[Q].policies == POLICIES
    assert kept.changes.take_graves() == [Grave(Q, 3)]
    assert kept.changes.take_graves() == []


def test_deleted_queue_leaves_a_grave(kept: Kept) -> None:
    assert kept.change(DeleteQueue(Q)) is None

    assert Q not in kept.changes.catalog.queues
    assert kept.changes.take_graves() == [Grave(Q, 3)]


def test_entry_creates_one_queue_at_most(kept: Kept) -> None:
    item = LogItem(9, 1, 0, CreateQueue("a", Policies()))
    kept.changes.create("a", Policies(), item)

    with pytest.raises(AssertionError, match="makes a second queue"):
        kept.changes.create("b", Policies(), item)


def test_members_are_written_once_as_far_back_as_the_log_reaches(kept: Kept) -> None:
    configs = [config_of([1]), config_of([1, 2]), config_of([1, 2, 3])]
    kept.changes.restore_members([(1, configs[0])])

    answers = [kept.change(Members(config)) for config in configs[1:]]

    assert [declined.code for declined in answers if declined is not None] == [0, 0]
    assert kept.changes.take_members(5) == [(4, configs[1]), (5, configs[2])]
    assert kept.changes.take_members(5) == []
