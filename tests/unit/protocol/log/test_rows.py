"""Rows byte by byte: the bytes on disk may only change together with their page and version."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import (
    DeliveryRecord,
    FreshRows,
    Row,
    decode_drafts,
    decode_row,
    encode_row,
    with_deliveries,
)
from wakeq.protocol.queue.bodies import Stretch
from wakeq.protocol.queue.ledger.uniform import uniform_bodies

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "lmdb_records.json").read_text())["vectors"]
DOCUMENT_ROW = struct.Struct(">BQQQ")  # Status | Timeout | Delay | Expires of the document


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_row_has_the_documented_order_and_widths(vector: dict[str, Any]) -> None:
    """Section 8 of the file formats: Status, Timeout, Delay, Expires at the same places, in milliseconds here."""
    fields = vector["fields"]
    status, item = fields["status"], fields["item"].encode()
    side = DeliveryRecord(deliveries=status, due_ms=fields["delay"] * 1000) if status else None
    times = (fields["timeout"] * 1000, fields["delay"] * 1000, fields["expires"] * 1000)

    value = encode_row(Row(item, timeout_ms=times[0], due_ms=times[1], expires_ms=times[2], side=side))

    old = bytes.fromhex(vector["value_hex"])
    seconds = DOCUMENT_ROW.unpack_from(old)
    assert DOCUMENT_ROW.unpack_from(value) == (seconds[0], *[second * 1000 for second in seconds[1:]])
    assert value.endswith(old[DOCUMENT_ROW.size :])


def test_row_on_disk_is_as_documented() -> None:
    side = DeliveryRecord(3, 1, 1, 0, 2, 9, until_ms=0x51, due_ms=0x22, error="no")
    row = Row(b"body", b"\x80", -1, 0x11, 0x99, 0x33, 0x44, side)
    spelled = (
        "03 0000000000000011 0000000000000022 0000000000000033 ffffffffffffffff"
        "00000003 00000001 00000001 00000000 0000000000000002 0000000000000009 0000000000000051 0000000000000044"
        "0001 0002"
    ).replace("03 ", "02 ", 1)  # the current delivery is under lease and has not failed yet
    head, tail = bytes.fromhex(spelled), bytes.fromhex("80 6e6f 626f6479")

    assert encode_row(row) == head + struct.pack(">I", zlib.crc32(head + tail)) + tail


def test_status_byte_saturates_and_the_count_does_not() -> None:
    for deliveries, status in ((255, 255), (256, 255), (300, 255), (254, 254)):
        value = encode_row(Row(b"", side=DeliveryRecord(deliveries=deliveries, due_ms=1)))

        side = decode_row(value).side
        assert value[0] == status
        assert side is not None
        assert side.deliveries == deliveries


def test_status_does_not_count_a_delivery_under_lease() -> None:
    assert encode_row(Row(b"", side=DeliveryRecord(deliveries=1, until_ms=5)))[0] == 0
    assert encode_row(Row(b"", side=DeliveryRecord(deliveries=1, until_ms=0)))[0] == 1


def test_leased_message_has_no_delay() -> None:
    side = DeliveryRecord(deliveries=1, until_ms=5)

    row = decode_row(encode_row(Row(b"", due_ms=77, side=side)))

    assert row.side == side


def test_released_delivery_counts_in_the_status_and_not_as_failure() -> None:
    value = encode_row(Row(b"", side=DeliveryRecord(deliveries=3, nacks=1, due_ms=1)))

    side = decode_row(value).side

    assert side is not None
    assert (value[0], side.deliveries, side.failures) == (3, 3, 1)


DELIVERED = [
    DeliveryRecord(1, 0, 0, 0, 3, 4, until_ms=9),
    DeliveryRecord(2, 1, 0, 0, 3, 5, due_ms=7, error="no"),
    DeliveryRecord(300, 1, 2, 3, 3, 6, until_ms=9, error="é" * 9),
]
PUBLISHED = [
    Row(b"body", published_ms=5),
    Row(b"", published_ms=5),
    Row(b"body", b"\x80", -7, 11, 22, 33, 44),
]


@pytest.mark.parametrize("side", DELIVERED, ids=lambda side: str(side.deliveries))
@pytest.mark.parametrize("before", [None, *DELIVERED], ids=lambda side: str(side and side.deliveries))
@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: str(row.priority))
def test_row_with_other_deliveries_keeps_what_its_publisher_chose(
    row: Row, before: DeliveryRecord | None, side: DeliveryRecord
) -> None:
    stored = encode_row(replace(row, side=before))

    assert with_deliveries(stored, side) == encode_row(replace(row, side=side))


@pytest.mark.parametrize("side", [None, *DELIVERED], ids=lambda side: str(side and side.deliveries))
def test_drafts_of_delivered_rows_are_as_their_publishers_sent_them(side: DeliveryRecord | None) -> None:
    values = [encode_row(replace(row, side=side)) for row in PUBLISHED]

    expected = [
        (Draft(row.body, row.priority, 0, 0, row.timeout_ms, row.headers), row.published_ms) for row in PUBLISHED
    ]
    assert decode_drafts(values) == expected


@pytest.mark.parametrize("side", [None, *DELIVERED], ids=lambda side: str(side and side.deliveries))
def test_damaged_row_is_refused_at_every_byte(side: DeliveryRecord | None) -> None:
    value = encode_row(Row(b"body", b"\x80", -7, 11, 22, 33, 44, side))

    for place in range(len(value)):
        damaged = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
        for cut in (damaged, value[:place]):
            with pytest.raises(BadRecord):
                decode_drafts([cut])
            with pytest.raises(BadRecord):
                with_deliveries(cut, DELIVERED[0])


def test_fresh_rows_equal_rows_encoded_one_by_one() -> None:
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
    columns, sides = {7: (20, 30)}, {8: DeliveryRecord(deliveries=1, until_ms=9)}

    moments = [(1, 10), (4, 11), (8, 10)]
    drafts = [draft for draft, _ in fresh.values()]
    rows = FreshRows([Stretch(1, drafts[:5], None), Stretch(6, drafts[5:], None)], moments, columns, sides)

    expected = [
        encode_row(
            Row(d.body, d.headers, d.priority, d.timeout_ms, *columns.get(n, (0, 0)), at_ms, sides.get(n))
        )
        for n, (d, at_ms) in fresh.items()
    ]  # fmt: skip
    assert list(rows) == expected
    assert list(rows) == expected  # a repeated transaction iterates a second time


@pytest.mark.parametrize("shape", [Draft(b""), Draft(b"", priority=2), Draft(b"", timeout_ms=3)], ids=str)
@pytest.mark.parametrize("side", [{}, {4: DeliveryRecord(deliveries=1, until_ms=9)}], ids=["", "delivered"])
@pytest.mark.parametrize("gone", [(), (3, 900)], ids=["", "gone"])
def test_fresh_rows_of_one_buffer_equal_rows_encoded_one_by_one(
    shape: Draft, side: dict[int, DeliveryRecord], gone: tuple[int, ...]
) -> None:
    bodies = [b"%d" % i * (i % 5) for i in range(3, 1_003)]
    stays = bytes(number not in gone for number in range(3, 1_003)) if gone else None

    rows = FreshRows([Stretch(3, uniform_bodies(bodies, shape), stays)], [(1, 8), (500, 10)], {}, side)

    assert list(rows) == [
        encode_row(Row(body, b"", shape.priority, shape.timeout_ms, 0, 0, 8 if n < 500 else 10, side.get(n)))
        for n, body in enumerate(bodies, 3)
        if n not in gone
    ]


@pytest.mark.parametrize("gone", [(), (2,), (3,), (2, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("side", [{}, {4: DeliveryRecord(deliveries=1, until_ms=9)}], ids=["", "delivered"])
def test_fresh_rows_keep_their_moments_when_neighbours_are_removed(
    gone: tuple[int, ...], side: dict[int, DeliveryRecord]
) -> None:
    moments = [(1, 10), (2, 11), (3, 12)]  # two messages were published at the third moment
    published = {1: 10, 2: 11, 3: 12, 4: 12}
    drafts = {number: Draft(b"%d" % number) for number in published}
    stays = bytes(number not in gone for number in published) if gone else None

    rows = FreshRows([Stretch(1, list(drafts.values()), stays)], moments, {}, side)

    assert list(rows) == [
        encode_row(Row(draft.body, published_ms=published[n], side=side.get(n)))
        for n, draft in drafts.items()
        if n not in gone
    ]


def test_fresh_row_keeps_its_priority_among_plain_ones() -> None:
    drafts = [Draft(b"a"), Draft(b"b", priority=3)]

    rows = FreshRows([Stretch(1, drafts, None)], [(1, 10), (2, 11)], {}, {})

    assert list(rows) == [encode_row(Row(b"a", published_ms=10)), encode_row(Row(b"b", priority=3, published_ms=11))]
