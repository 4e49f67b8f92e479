"""MemoryStore: its own rules, and the refusals of every store.  tests/property proves that it agrees with LMDB."""

import pytest

from wakeq.protocol.errors import Busy
from wakeq.storage.state.memory import MemoryStore
from wakeq.storage.state.store import (
    DEDUP,
    INDEX,
    MESSAGES,
    META,
    Applied,
    Checkpoint,
    arrange,
    decode_applied,
    decode_number,
    encode_applied,
    encode_number,
    with_checksum,
    without_checksum,
)


def puts(index: int, *pairs: tuple[bytes, bytes], table: int = MESSAGES) -> Checkpoint:
    return Checkpoint(index, 1, 10 * index, puts=[(table, list(pairs))])


def deletes(index: int, *keys: bytes, table: int = MESSAGES) -> Checkpoint:
    return Checkpoint(index, 1, 10 * index, deletes=[(table, list(keys))])


def test_checkpoint_is_sorted_by_table_and_key() -> None:
    checkpoint = Checkpoint(
        1,
        1,
        1,
        puts=[(INDEX, [(b"b", b"1"), (b"a", b"2")]), (MESSAGES, [(b"z", b"3")])],
        deletes=[(DEDUP, [b"y", b"x"])],
    )

    arranged = arrange(checkpoint)

    assert [(table, list(puts), deletes) for table, puts, deletes in arranged] == [
        (MESSAGES, [(b"z", b"3")], []),
        (INDEX, [(b"a", b"2"), (b"b", b"1")], []),
        (DEDUP, [], [b"x", b"y"]),
    ]


def test_put_that_is_deleted_in_one_checkpoint_is_left_out() -> None:
    checkpoint = Checkpoint(1, 1, 1, puts=[(MESSAGES, [(b"a", b"1"), (b"b", b"2")])], deletes=[(MESSAGES, [b"a"])])

    (messages,) = arrange(checkpoint)

    assert list(messages.puts) == [(b"b", b"2")]
    assert messages.deletes == [b"a"]  # the table may have an older record of that key


@pytest.mark.parametrize("key", [b"", b"x" * 512])
def test_key_beyond_the_limits_of_lmdb_is_a_bug(key: bytes) -> None:
    with pytest.raises(AssertionError):
        MemoryStore().commit(puts(1, (key, b"")))
    with pytest.raises(AssertionError):
        MemoryStore().commit(deletes(1, key))


def test_checkpoint_for_meta_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        MemoryStore().commit(puts(1, (b"applied", b""), table=META))


def test_applied_index_never_falls() -> None:
    store = MemoryStore()
    store.commit(Checkpoint(5, 2, 50))

    with pytest.raises(AssertionError):
        store.commit(Checkpoint(4, 2, 60))

    assert store.applied() == Applied(5, 2, 50)


def test_view_does_not_change() -> None:
    store = MemoryStore()
    store.commit(puts(1, (b"q-a", b"1"), (b"q-b", b"2")))

    with store.read() as view:
        store.commit(puts(2, (b"q-a", b"changed"), (b"q-c", b"3")))
        store.commit(deletes(3, b"q-b"))

        assert list(view.scan(MESSAGES)) == [(b"q-a", b"1"), (b"q-b", b"2")]
        assert view.get(MESSAGES, b"q-a") == b"1"
        assert view.applied() == Applied(1, 1, 10)
        assert view.count(MESSAGES) == 2
    assert store.get_many([b"q-a", b"q-b", b"q-c"]) == [b"changed", None, b"3"]


def test_view_is_refused_after_its_block() -> None:
    store = MemoryStore()
    store.commit(puts(1, (b"a", b"1"), (b"b", b"2")))
    with store.read() as view:
        scan = view.scan(MESSAGES)
        next(scan)

    with pytest.raises(Busy):
        view.get(MESSAGES, b"a")
    with pytest.raises(Busy):
        next(scan)


def test_table_is_copied_only_while_a_view_uses_it() -> None:
    store = MemoryStore()
    store.commit(puts(1, (b"a", b"1")))
    with store.read():
        store.commit(puts(2, (b"b", b"2")))
        own = store._tables[MESSAGES]
        store.commit(puts(3, (b"c", b"3")))
        assert store._tables[MESSAGES] is own
    with store.read():
        pass
    store.commit(puts(4, (b"d", b"4")))

    assert store._tables[MESSAGES] is own
    assert store.stats().readers == 0


def test_scan_is_in_key_order_after_deletes_and_new_puts() -> None:
    store = MemoryStore()
    store.commit(puts(1, *((b"%03d" % number, b"") for number in range(0, 100, 2))))
    with store.read() as view:
        assert len(list(view.scan(MESSAGES))) == 50
    store.commit(deletes(2, *(b"%03d" % number for number in range(0, 100, 4))))
    store.commit(puts(3, *((b"%03d" % number, b"") for number in range(0, 100, 3))))

    with store.read() as view:
        keys = [key for key, _ in view.scan(MESSAGES)]

    assert keys == sorted(set(keys))
    assert keys == [b"%03d" % n for n in range(100) if n % 3 == 0 or (n % 2 == 0 and n % 4 != 0)]


def test_closed_store_refuses_reads_and_writes() -> None:
    store = MemoryStore()
    store.close()
    store.close()

    with pytest.raises(Busy):
        store.get_many([b"a"])
    with pytest.raises(Busy):
        store.commit(Checkpoint(1, 1, 1))


def test_records_of_meta_round_trip_and_reveal_damage() -> None:
    applied = Applied(2**63, 7, 1_700_000_000_000)
    record = encode_applied(applied)

    assert decode_applied(record) == applied
    assert decode_number(encode_number(12)) == 12
    assert without_checksum(with_checksum(b"")) == b""
    for position in range(len(record)):
        broken = bytearray(record)
        broken[position] ^= 1
        assert decode_applied(bytes(broken)) is None
        assert decode_applied(record[:position]) is None
    assert decode_number(record) is None
