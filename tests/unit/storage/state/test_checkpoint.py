"""Checkpoints and loading: the records that a change writes, the queues that are loaded, and damage that is noticed."""

import msgspec
import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import REBUILD, DamagedFile
from wakeq.protocol.log.entries import Ack, Delivered, Draft, Publish, Reason, Released
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import DeliveryRecord, Row, decode_row, encode_row
from wakeq.protocol.queue.bodies import Stretch
from wakeq.protocol.queue.ledger.ledger import Delta, Ledger
from wakeq.protocol.queue.ledger.publishers import Limits, Once, Session
from wakeq.storage.state.checkpoint import (
    BY_ALIAS,
    BY_ID,
    BY_SESSION,
    ID,
    KEY,
    Grave,
    QueueDelta,
    StoredQueue,
    key_of,
    load_queue,
    load_queues,
    load_skipped,
    make_checkpoint,
)
from wakeq.storage.state.memory import MemoryStore
from wakeq.storage.state.store import (
    DEDUP,
    GRAVES,
    INDEX,
    MESSAGES,
    QUEUES,
    Checkpoint,
    with_checksum,
    without_checksum,
)

QUEUE_ID = 7
UID = "0000007_0000000{}".format
NOTHING = Delta()
META = msgspec.msgpack.encode({"name": "q-1"})


class Stored:
    """A ledger, its bodies, and the store to which they are flushed."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.ledger = Ledger("q-1", QUEUE_ID, Policies(), Limits())
        self.fresh: dict[int, Draft] = {}
        self.index = 0

    def publish(self, *drafts: Draft, once: str = "", session: str = "") -> None:
        ordinals = list(range(1, len(drafts) + 1)) if session else []
        entry = Publish("q-1", list(drafts), id=once, session=session, ordinals=ordinals)
        self.fresh.update(zip(self.ledger.publish(entry, 100), drafts, strict=True))

    def part(self, *, gone: tuple[int, ...] = ()) -> QueueDelta:
        ledger, fresh, self.fresh = self.ledger, self.fresh, {}
        delta = ledger.collect()
        return QueueDelta(
            "q-1",
            ledger.id,
            [Stretch(number, [draft], None) for number, draft in fresh.items()],
            [(1, 100)],
            {number: ledger.columns.aliased[number] for number in fresh if number in ledger.columns.aliased},
            {number: (ledger.columns.published_due_of(number), ledger.columns.expires_of(number)) for number in fresh},
            {number: ledger.deliveries.records[number] for number in fresh if number in ledger.deliveries.records},
            {UID(number): ledger.deliveries.records[number] for number in delta.touched if number not in fresh},
            list(gone),
            delta,
            META,
            ledger.columns.next_number,
        )

    def flush(
        self, *parts: QueueDelta, graves: tuple[Grave, ...] = (), skipped: dict[int, bytes] | None = None
    ) -> Checkpoint:
        self.index += 1
        checkpoint = make_checkpoint(self.store, (self.index, 1, 100), parts, graves, skipped or {})
        self.store.commit(checkpoint)
        return checkpoint

    def records(self, table: int) -> dict[bytes, bytes]:
        with self.store.read() as view:
            return dict(view.scan(table))

    def load(self) -> list[StoredQueue]:
        with self.store.read() as view:
            return list(load_queues(view))

    def load_one(self, name: str) -> StoredQueue | None:
        with self.store.read() as view:
            return load_queue(view, name)

    def overwrite(self, table: int, key: bytes, value: bytes | None) -> None:
        puts, deletes = ([(table, [(key, value)])], []) if value is not None else ([], [(table, [key])])
        self.store.commit(Checkpoint(self.index, 1, 100, puts, deletes))


@pytest.fixture
def stored() -> Stored:
    return Stored()


def test_new_message_is_one_record_under_name_and_uid(stored: Stored) -> None:
    stored.publish(Draft(b"body", 3, delay_ms=5, expires_ms=50, timeout_ms=7, headers=b"\x80"))

    stored.flush(stored.part())

    ((key, value),) = stored.records(MESSAGES).items()
    assert key == b"q-1-0000007_00000001"
    assert decode_row(value) == Row(b"body", b"\x80", 3, 7, 105, 150, 100)
    assert list(stored.records(INDEX)) == [KEY.pack(QUEUE_ID, 0)]
    assert stored.records(QUEUES) == {ID.pack(QUEUE_ID): with_checksum(META)}


def test_deliveries_of_a_stored_message_keep_its_body(stored: Stored) -> None:
    stored.publish(Draft(b"body", 3, headers=b"\x80"))
    stored.flush(stored.part())
    stored.ledger.deliver(Delivered("q-1", QUEUE_ID, [1], [500], 9), 2)
    stored.flush(stored.part())
    stored.ledger.release(Released("q-1", QUEUE_ID, [1], [600], [(2, 9)], Reason.NACK, "why"))

    stored.flush(stored.part())

    row = decode_row(stored.records(MESSAGES)[key_of("q-1", UID(1))])
    assert row == Row(b"body", b"\x80", 3, 0, 600, 0, 100, DeliveryRecord(1, 1, 0, 0, 2, 9, 0, 600, "why"))


def test_message_delivered_before_the_first_flush_is_stored_as_delivered(stored: Stored) -> None:
    stored.publish(Draft(b"body"))
    stored.ledger.deliver(Delivered("q-1", QUEUE_ID, [1], [500], 9), 2)

    stored.flush(stored.part())

    (queue,) = stored.load()
    assert queue.sides == {1: DeliveryRecord(1, 0, 0, 0, 2, 9, 500)}


def test_acknowledged_message_leaves_no_record(stored: Stored) -> None:
    stored.publish(Draft(b"body"))
    stored.flush(stored.part())
    stored.ledger.acknowledge(Ack("q-1", QUEUE_ID, [1], [(0, 0)]))

    stored.flush(stored.part(gone=(1,)))

    assert stored.records(MESSAGES) == stored.records(INDEX) == {}
    assert stored.records(QUEUES) != {}  # the queue still exists, without messages


def test_records_of_publishers_and_imported_uids_have_a_checksum(stored: Stored) -> None:
    stored.publish(Draft(b""), once="I")
    stored.publish(Draft(b""), session="S")
    stored.publish(Draft(b"", alias="old-1"))

    stored.flush(stored.part())

    values = {key: without_checksum(value) for key, value in stored.records(DEDUP).items()}
    start = ID.pack(QUEUE_ID)
    assert {key: msgspec.msgpack.decode(value or b"") for key, value in values.items()} == {
        start + BY_ID + b"I": [7, 1, 1, 100],
        start + BY_SESSION + b"S": {"highest": 1, "used_ms": 100, "outcomes": {1: [7, 2, 1]}},
        start + BY_ALIAS + b"old-1": 3,
    }
    assert b"q-1-old-1" in stored.records(MESSAGES)
    (queue,) = stored.load()
    assert queue.aliases == {3: "old-1"}
    assert queue.ids == [("I", (7, 1, 1, 100))]
    assert [(name, session.outcomes) for name, session in queue.sessions] == [("S", {1: (7, 2, 1)})]


def test_messages_removed_in_any_order_lose_only_their_own_records(stored: Stored) -> None:
    stored.publish(*[Draft(b"")] * 8)
    stored.flush(stored.part())

    stored.flush(stored.part(gone=(7, 2, 4, 3)))

    assert list(stored.records(MESSAGES)) == [key_of("q-1", UID(number)) for number in (1, 5, 6, 8)]


def test_imported_message_is_stored_under_its_imported_uid(stored: Stored) -> None:
    stored.publish(Draft(b""), Draft(b"", alias="line\nend"), Draft(b""))

    stored.flush(stored.part())

    uids = (UID(1), UID(3), "line\nend")
    assert list(stored.records(MESSAGES)) == [key_of("q-1", uid) for uid in uids]


def test_imported_message_is_loaded_with_its_uid_and_lease(stored: Stored) -> None:
    stored.publish(Draft(b""), Draft(b"", alias="old-1"))
    stored.ledger.deliver(Delivered("q-1", QUEUE_ID, [2], [500], 9), 2)
    sides = dict(stored.ledger.deliveries.records)
    stored.flush(stored.part())

    (loaded,) = stored.load()

    assert loaded.aliases == {2: "old-1"}
    assert loaded.sides == sides
    assert sides.keys() == {2}


def test_removed_imported_message_loses_its_uid_record(stored: Stored) -> None:
    stored.publish(Draft(b"", alias="old-1"))
    stored.flush(stored.part())
    stored.ledger.acknowledge(Ack("q-1", 0, [-1], [(0, 0)], foreign={0: "old-1"}))

    stored.flush(stored.part())

    assert stored.records(MESSAGES) == stored.records(DEDUP) == {}


def test_imported_messages_of_a_purged_queue_are_removed(stored: Stored) -> None:
    stored.publish(Draft(b"", alias="old-1"))
    stored.flush(stored.part())
    stored.ledger.begin(QUEUE_ID + 1, Policies())
    stored.ledger.begin(QUEUE_ID + 2, Policies())

    stored.flush(stored.part(), graves=(Grave("q-1", QUEUE_ID), Grave("q-1", QUEUE_ID + 1)))

    assert stored.records(MESSAGES) == {}


def test_ids_and_sessions_are_loaded_oldest_first(stored: Stored) -> None:
    moments = {"b": 10, "a": 30, "c": 20}
    ids: list[tuple[str, Once | None]] = [(name, (7, 1, 1, at_ms)) for name, at_ms in moments.items()]
    sessions: list[tuple[str, Session | None]] = [(name, Session(1, at_ms, {})) for name, at_ms in moments.items()]

    stored.flush(QueueDelta("q-1", QUEUE_ID, {}, [], {}, {}, {}, {}, [], Delta([], [], ids, sessions), META, 1))

    (queue,) = stored.load()
    assert [name for name, _ in queue.ids] == ["b", "c", "a"]
    assert [name for name, _ in queue.sessions] == ["b", "c", "a"]


def test_deleted_queue_becomes_a_grave_and_is_not_loaded(stored: Stored) -> None:
    stored.publish(Draft(b""))
    stored.flush(stored.part())

    stored.flush(graves=(Grave("q-1", QUEUE_ID),))

    assert stored.load() == []
    assert stored.records(GRAVES) == {ID.pack(QUEUE_ID): b"q-1-0000007_"}
    assert stored.store.sweep() is False
    assert stored.records(MESSAGES) == stored.records(INDEX) == {}


def test_queues_are_loaded_with_their_own_records_beside_a_deleted_one(stored: Stored) -> None:
    stored.publish(*[Draft(b"")] * 3, once="once")
    part = stored.part()
    ids = range(QUEUE_ID, QUEUE_ID + 4)
    empty = QueueDelta("q-1", ids[2], {}, [], {}, {}, {}, {}, [], Delta(), META, 1)
    stored.flush(*(part._replace(queue_id=queue_id) for queue_id in (ids[0], ids[1], ids[3])), empty)

    stored.flush(graves=(Grave("q-1", ids[1]),))

    first, second, third = stored.load()
    assert [[number for number, _ in queue.chunks] for queue in (first, second, third)] == [[0], [], [0]]
    assert [[name for name, _ in queue.ids] for queue in (first, second, third)] == [["once"], [], ["once"]]
    alone = stored.load_one("q-1")
    assert alone is not None
    assert (len(alone.chunks), alone.ids) == (1, first.ids)
    assert stored.load_one("q-2") is None


def test_part_of_a_deleted_queue_only_removes_records(stored: Stored) -> None:
    stored.publish(Draft(b"", alias="old-1"))
    stored.flush(stored.part())
    stored.publish(Draft(b""))
    part = stored.part()

    stored.flush(part._replace(queue_id=0, delta=Delta(aliases_gone=["old-1"])), graves=(Grave("q-1", QUEUE_ID),))

    assert stored.records(MESSAGES) == stored.records(QUEUES) == {}


def test_skipped_entry_is_loaded_and_is_not_a_queue(stored: Stored) -> None:
    stored.publish(Draft(b""))

    stored.flush(stored.part(), skipped={12: b"why"})

    assert len(stored.load()) == 1
    with stored.store.read() as view:
        assert load_skipped(view) == {12: b"why"}


def test_numbers_across_chunks_are_loaded(stored: Stored) -> None:
    stored.publish(*[Draft(b"x")] * 1_200)
    stored.ledger.acknowledge(Ack("q-1", QUEUE_ID, list(range(1, 600)), [(0, 0)] * 599))
    stored.ledger.deliver(Delivered("q-1", QUEUE_ID, [1_100], [500], 9), 2)
    stored.fresh = {number: draft for number, draft in stored.fresh.items() if number >= 600}

    stored.flush(stored.part())

    (queue,) = stored.load()
    assert [(chunk_id, chunk.living) for chunk_id, chunk in queue.chunks] == [(1, 424), (2, 177)]
    assert list(queue.sides) == [1_100]


# Damage -----------------------------------------------------------------------------------------------------------


def delivered(stored: Stored) -> bytes:
    stored.publish(Draft(b"body"), once="I")
    stored.ledger.deliver(Delivered("q-1", QUEUE_ID, [1], [500], 9), 2)
    stored.flush(stored.part())
    return key_of("q-1", UID(1))


def test_load_refuses_message_that_is_only_in_the_index(stored: Stored) -> None:
    stored.overwrite(MESSAGES, delivered(stored), None)

    with pytest.raises(BadRecord, match="0000007_00000001"):
        stored.load()


def test_load_refuses_message_delivered_only_by_its_index(stored: Stored) -> None:
    stored.overwrite(MESSAGES, delivered(stored), encode_row(Row(b"body")))

    with pytest.raises(BadRecord, match="0000007_00000001"):
        stored.load()


@pytest.mark.parametrize("value", [None, encode_row(Row(b"body"))[:-1] + b"X"], ids=["missing", "rotten"])
def test_flush_of_a_damaged_message_is_refused_with_a_hint(stored: Stored, value: bytes | None) -> None:
    stored.overwrite(MESSAGES, delivered(stored), value)
    stored.ledger.release(Released("q-1", QUEUE_ID, [1], [600], [(2, 9)], Reason.NACK))

    with pytest.raises(DamagedFile, match=r"state/data\.mdb: .*0000007_00000001") as refused:
        stored.flush(stored.part())

    assert refused.value.hint == REBUILD


@pytest.mark.parametrize("table", [MESSAGES, INDEX, DEDUP])
def test_load_refuses_record_with_a_flipped_bit(stored: Stored, table: int) -> None:
    delivered(stored)
    ((key, value),) = stored.records(table).items()

    for place in range(len(value)):
        stored.overwrite(table, key, value[:place] + bytes([value[place] ^ 4]) + value[place + 1 :])
        with pytest.raises(BadRecord):
            stored.load()


def test_flush_without_changes_writes_no_messages(stored: Stored) -> None:
    checkpoint = stored.flush(QueueDelta("q-1", QUEUE_ID, {}, [], {}, {}, {}, {}, [], NOTHING, META, 1))

    assert list(dict(checkpoint.puts)[MESSAGES]) == []
    assert list(dict(checkpoint.puts)[QUEUES]) == [(ID.pack(QUEUE_ID), with_checksum(META))]
