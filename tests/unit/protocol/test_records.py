"""Entries, rows and chunks byte by byte: what stands on disk may only change together with its page and version."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.chunks import Chunk, decode_chunk, encode_chunk
from wakeq.protocol.commands import (
    ANY_TOKEN,
    Ack,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Imported,
    Noop,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    SetAside,
    UpdateQueue,
)
from wakeq.protocol.records import HEAD, ITEM, BadRecord, decode_entry, encode_entry
from wakeq.protocol.rows import ROW, Row, Side, decode_row, encode_fresh, encode_row

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "lmdb_records.json").read_text())["vectors"]
DOCUMENT_ROW = struct.Struct(">BQQQ")  # Status | Timeout | Delay | Expires of the document
AT = 0x0102030405060708
HEAD_TAIL = "0102030405060708"  # its moment
ITEMS = "00000000" + "00000000"  # an item's reason, sizes
NO_TIMEOUT_NO_ALIAS = "0000000000000000" + "00000000"  # how most items end

# Each as its page spells it: entry, hexadecimal text of its bytes.
SPELLED: list[tuple[Entry, str]] = [
    (Noop(), "01000000 00000000" + HEAD_TAIL + "00" * 12 + "00"),
    (DeleteQueue("ab"), "010a0000 00000000" + HEAD_TAIL + "00" * 12 + "02 6162"),
    (
        Publish("q", [Draft(b"hi", -1, 5, 6, 7, b"\x80", "al")], atomic=True, id="I", door=3, worker=9),
        "01010303 00000001" + HEAD_TAIL + "0000000000000000 00000009 01 71"
        "0000 0001 00000002 0000000000000000 0000000000000005 ffffffffffffffff 0000000000000006 "
        "0000000000000007 00000002"
        "0001 49" + "6869 80 616c",
    ),
    (
        Publish("", [Draft(b"a"), Draft(b"b")], session="s", ordinals=[4, 5], forced=True),
        "0101000c 00000002" + HEAD_TAIL + "00" * 12 + "00"
        "0000 0000 00000001 0000000000000004" + "00" * 36 + "0000 0000 00000001 0000000000000005" + "00" * 36
        + "0001 73" + "61 62",
    ),
    (
        Delivered("q", 7, [1, 3], [16, 17], 32, 9, 2),
        "01020200 00000002" + HEAD_TAIL + "0000000000000007 00000009 01 71"
        + ITEMS + "0000000000000001 0000000000000010 0000000000000000 0000000000000020 " + NO_TIMEOUT_NO_ALIAS
        + ITEMS + "0000000000000003 0000000000000011 0000000000000000 0000000000000021 " + NO_TIMEOUT_NO_ALIAS,
    ),
    (
        Extended("q", 7, [1], [16]),
        "01030000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        + ITEMS + "0000000000000001 0000000000000010" + "00" * 28,
    ),
    (
        Released("q", 7, [1], [16], [(2, 3)], Reason.TIMEOUT, "é"),
        "01040000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        "0002 0000 00000000 0000000000000001 0000000000000010 0000000000000002 0000000000000003"
        + NO_TIMEOUT_NO_ALIAS + " c3a9",
    ),
    (
        Released("q", 7, [1], [0], [(2, 3)], Reason.RETURNED),
        "01040000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        "0004 0000 00000000 0000000000000001 0000000000000000 0000000000000002 0000000000000003"
        + NO_TIMEOUT_NO_ALIAS,
    ),
    (
        Ack("q", 7, [1], [(2, 3)], worker=9, door=2),
        "01050200 00000001" + HEAD_TAIL + "0000000000000007 00000009 01 71"
        + ITEMS + "0000000000000001 0000000000000000 0000000000000002 0000000000000003 "
        + NO_TIMEOUT_NO_ALIAS + "00000000",
    ),
    (
        Ack("q", 7, [1], [(2, 3)], worker=9, door=3, delivered=True),
        "01050340 00000001" + HEAD_TAIL + "0000000000000007 00000009 01 71"
        + ITEMS + "0000000000000001 0000000000000000 0000000000000002 0000000000000003 "
        + NO_TIMEOUT_NO_ALIAS + "00000000",
    ),
    (
        Publish("q", [Draft(b"a")], door=3, must_exist=True),
        "01010310 00000001" + HEAD_TAIL + "00" * 12 + "01 71" + "0000 0000 00000001" + "00" * 44 + "61",
    ),
    (
        Publish("q", [Draft(b""), Draft(b"")], must_exist=True, oversized=True),
        "01010030 00000002" + HEAD_TAIL + "00" * 12 + "01 71" + "00" * 104,
    ),
    (
        Ack("q", 7, [-1], [ANY_TOKEN], [Publish("", [])], {0: "u"}, dead=True),
        "01070000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        + ITEMS + "ffffffffffffffff" + "00" * 36 + "00000004 8100a175"
        "0000001d" + "01010000 00000000" + HEAD_TAIL + "00" * 12 + "00",
    ),
    (
        Expired("q", 7, [1]),
        "01060000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71" + ITEMS + "0000000000000001" + "00" * 36,
    ),
    (
        CreateQueue("q", Policies(max_size=5)),
        "01080000 00000000" + HEAD_TAIL + "00" * 12 + "01 71 81 a8 6d61785f73697a65 05",
    ),
    (
        UpdateQueue("q", {"max_size": None}),
        "01090000 00000000" + HEAD_TAIL + "00" * 12 + "01 71 81 a8 6d61785f73697a65 c0",
    ),
    (PurgeQueue("q"), "010b0000 00000000" + HEAD_TAIL + "00" * 12 + "01 71"),
    (SetAside("q", 6, "x"), "010c0000 00000000" + HEAD_TAIL + "00" * 12 + "01 71 92 06 a1 78"),
    (Imported(), "010d0000 00000000" + HEAD_TAIL + "00" * 12 + "00"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "spelled"), SPELLED, ids=lambda value: type(value).__name__)
def test_an_entry_is_what_its_page_says(entry: Entry, spelled: str) -> None:
    payload = bytes.fromhex(spelled)

    assert encode_entry(entry, AT) == payload
    assert decode_entry(payload) == (entry, AT)


def test_the_fixed_parts_have_the_sizes_that_readers_count_on() -> None:
    assert (HEAD.size, ITEM.size, ROW.size) == (29, 52, 89)


def test_an_alias_is_counted_in_bytes() -> None:
    entry = Publish("q", [Draft(b"1", alias="é"), Draft(b"2")])

    assert decode_entry(encode_entry(entry, 1)) == (entry, 1)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"", "cannot be decoded"),
        (b"\x02" + encode_entry(Noop(), 1)[1:], "version 2"),
        (b"\x01\xff" + encode_entry(Noop(), 1)[2:], "not a valid Kind"),
        (encode_entry(Expired("q", 1, [1, 2]), 1)[:-1], "cannot be decoded"),
        (encode_entry(Expired("q", 1, [1, 2]), 1)[: -ITEM.size], "inside its items"),
        (encode_entry(DeleteQueue("name"), 1)[:-1], "within a field"),
        (encode_entry(Publish("q", [Draft(b"body")]), 1)[:-1], "inside a body"),
        (encode_entry(Publish("q", [], id="id"), 1)[:-1], "within a field"),
        (encode_entry(Ack("q", 1, [], [], [Publish("q", [])]), 1)[:-1], "within a field"),
        (encode_entry(CreateQueue("q", Policies()), 1)[:-1] + b"\xc1", "cannot be decoded"),
        (encode_entry(DeleteQueue("q"), 1)[:-1] + b"\xff", "cannot be decoded"),
    ],
)
def test_a_damaged_entry_says_what_is_wrong(damaged: bytes, why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        decode_entry(damaged)


def test_a_follow_up_can_only_be_a_publish_and_goes_no_deeper() -> None:
    payload = encode_entry(Ack("q", 1, [], []), 1)
    for _ in range(2_000):
        payload = encode_entry(Ack("q", 1, [], []), 1) + struct.pack(">I", len(payload)) + payload

    with pytest.raises(BadRecord, match="not a publish"):
        decode_entry(payload)


def test_policies_that_are_nested_without_end_are_refused() -> None:
    head = encode_entry(UpdateQueue("q", {}), 1)[:-1]

    with pytest.raises(BadRecord, match="cannot be decoded"):
        decode_entry(head + b"\x81\xa1a" + b"\x91" * 100_000)


# Rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_row_keeps_the_documents_order_and_widths(vector: dict[str, Any]) -> None:
    """Section 8 of the file formats: Status, Timeout, Delay, Expires at the same places, in milliseconds here."""
    fields = vector["fields"]
    status, item = fields["status"], fields["item"].encode()
    side = Side(deliveries=status, due_ms=fields["delay"] * 1000) if status else None
    times = (fields["timeout"] * 1000, fields["delay"] * 1000, fields["expires"] * 1000)

    value = encode_row(Row(item, timeout_ms=times[0], due_ms=times[1], expires_ms=times[2], side=side))

    old = bytes.fromhex(vector["value_hex"])
    seconds = DOCUMENT_ROW.unpack_from(old)
    assert DOCUMENT_ROW.unpack_from(value) == (seconds[0], *[second * 1000 for second in seconds[1:]])
    assert value.endswith(old[DOCUMENT_ROW.size :])


def test_a_row_is_what_its_page_says() -> None:
    side = Side(3, 1, 1, 0, 2, 9, until_ms=0x51, due_ms=0x22, error="no")
    row = Row(b"body", b"\x80", -1, 0x11, 0x99, 0x33, 0x44, side)
    spelled = (
        "03 0000000000000011 0000000000000022 0000000000000033 ffffffffffffffff"
        "00000003 00000001 00000001 00000000 0000000000000002 0000000000000009 0000000000000051 0000000000000044"
        "0001 0002"
    ).replace("03 ", "02 ", 1)  # out with a worker: this delivery has not failed yet
    head, tail = bytes.fromhex(spelled), bytes.fromhex("80 6e6f 626f6479")

    assert encode_row(row) == head + struct.pack(">I", zlib.crc32(head + tail)) + tail


def test_the_status_byte_saturates_and_the_count_does_not() -> None:
    for deliveries, status in ((255, 255), (256, 255), (300, 255), (254, 254)):
        value = encode_row(Row(b"", side=Side(deliveries=deliveries, due_ms=1)))

        side = decode_row(value).side
        assert value[0] == status
        assert side is not None
        assert side.deliveries == deliveries


def test_the_status_counts_failures_so_a_first_delivery_is_none() -> None:
    assert encode_row(Row(b"", side=Side(deliveries=1, until_ms=5)))[0] == 0
    assert encode_row(Row(b"", side=Side(deliveries=1, until_ms=0)))[0] == 1


def test_what_is_out_has_no_delay_even_if_it_was_published_with_one() -> None:
    side = Side(deliveries=1, until_ms=5)

    row = decode_row(encode_row(Row(b"", due_ms=77, side=side)))

    assert row.side == side


def test_what_was_returned_counts_as_not_acknowledged_and_not_as_failed() -> None:
    value = encode_row(Row(b"", side=Side(deliveries=3, nacks=1, due_ms=1)))

    side = decode_row(value).side

    assert side is not None
    assert (value[0], side.deliveries, side.failures) == (3, 3, 1)


def test_new_rows_are_what_they_would_be_one_by_one() -> None:
    fresh = {
        1: (Draft(b"a"), 10),
        2: (Draft(b"b"), 10),
        3: (Draft(b"c", priority=4), 10),
        4: (Draft(b""), 11),
        5: (Draft(b"e", headers=b"\x80"), 11),
        6: (Draft(b"f", timeout_ms=5), 11),
        7: (Draft(b"g"), 11),
        8: (Draft(b"h"), 10),
    }
    columns, sides = {7: (20, 30)}, {8: Side(deliveries=1, until_ms=9)}

    rows = encode_fresh(fresh, columns, sides)

    assert rows == [
        encode_row(
            Row(d.body, d.headers, d.priority, d.timeout_ms, *columns.get(n, (0, 0)), at_ms, sides.get(n))
        )
        for n, (d, at_ms) in fresh.items()
    ]  # fmt: skip


# Chunks -----------------------------------------------------------------------------------------------------------


def small_chunk() -> Chunk:
    chunk = Chunk(1)
    chunk.fill("priorities", [0, -2])
    chunk.fill("timeouts", [0, 0])
    chunk.sizes.extend([3, 1])
    chunk.living = 2
    chunk.level()
    return chunk


def test_a_chunk_is_what_its_page_says() -> None:
    head = bytes.fromhex("01 11 0003")  # version, priorities and sides, rows
    body = bytes.fromhex("00000000 00000003 00000001" + "00" * 16 + "fffffffffffffffe" + "0002")

    assert encode_chunk(small_chunk(), [2]) == head + struct.pack(">I", zlib.crc32(head + body)) + body


def test_a_column_begins_when_a_value_needs_it() -> None:
    chunk = small_chunk()
    chunk.fill("dues", [5])
    chunk.sizes.append(1)
    chunk.level()

    copy, sides = decode_chunk(encode_chunk(chunk, []))

    assert list(copy.sizes) == [0, 3, 1, 1]
    assert list(copy.priorities or []) == [0, 0, -2, 0]
    assert list(copy.dues or []) == [0, 0, 0, 5]
    assert copy.expiries is copy.timeouts is None
    assert (copy.living, sides) == (3, [])


@pytest.mark.parametrize("place", range(8))
def test_a_damaged_head_of_a_chunk_is_noticed(place: int) -> None:
    value = bytearray(encode_chunk(small_chunk(), [2]))
    value[place] ^= 1

    with pytest.raises(BadRecord):
        decode_chunk(bytes(value))


def test_a_chunk_of_a_later_version_is_named() -> None:
    head = bytes.fromhex("02 00 0000")

    with pytest.raises(BadRecord, match="version 2"):
        decode_chunk(head + struct.pack(">I", zlib.crc32(head)))
    with pytest.raises(BadRecord, match="at least 8"):
        decode_chunk(head)


def test_policies_are_stored_by_name_so_that_a_later_release_may_add_some() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Policies(timeout=5))) == {"timeout": 5}
