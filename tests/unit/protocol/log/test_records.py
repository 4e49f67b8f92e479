"""Entries byte by byte: the bytes on disk may only change together with their page and version."""

import struct
from typing import Any, get_args

import msgspec
import pytest

from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import WrongVersion
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Imported,
    Kind,
    Members,
    Noop,
    PauseQueue,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Requeued,
    SetAside,
    Stash,
    Unstash,
    UnstashAction,
    UpdateQueue,
    lengthened,
)
from wakeq.protocol.log.layout import HEAD, ITEM, BadRecord
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.log.records import encode_entry
from wakeq.protocol.log.rows import ROW
from wakeq.protocol.queue.ledger.uniform import UNIFORM_MIN, UniformBatch, uniform_bodies
from wakeq.protocol.raft.membership import Config, Member

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
        CreateQueue("q", Policies()),
        "01080000 00000000" + HEAD_TAIL + "0000000000000000 00000000 01 71" + "80",
    ),
    (
        CreateQueue("q", Policies(wake="ready")),
        "01080000 00000000" + HEAD_TAIL + "0000000000000000 00000000 01 71" + "81 a4 77616b65 a5 7265616479",
    ),
    (
        UpdateQueue("q", {"wake": "sleeper"}),
        "01090000 00000000" + HEAD_TAIL + "0000000000000000 00000000 01 71" + "81 a4 77616b65 a7 736c6565706572",
    ),
    (
        Delivered("q", 7, [1, 3], [16, 17], 32, 9, 2),
        "01020200 00000002" + HEAD_TAIL + "0000000000000007 00000009 01 71"
        + ITEMS + "0000000000000001 0000000000000010 0000000000000000 0000000000000020 " + NO_TIMEOUT_NO_ALIAS
        + ITEMS + "0000000000000003 0000000000000011 0000000000000000 0000000000000021 " + NO_TIMEOUT_NO_ALIAS,
    ),
    (
        Claim("q", 7, ClaimAction.STAGED, "s", 5, [1, 3], [], 32, 2, 16, 9, 1),
        "010f0101 00000002" + HEAD_TAIL + "0000000000000007 00000009 01 71"
        + ITEMS + "0000000000000001 0000000000000010 0000000000000000 0000000000000020 " + NO_TIMEOUT_NO_ALIAS
        + ITEMS + "0000000000000003 0000000000000010 0000000000000000 0000000000000021 " + NO_TIMEOUT_NO_ALIAS
        + "98 a173 05 02 10 20 a0 00 a0",
    ),
    (
        Claim("q", 7, ClaimAction.SETTLED, "s", 5, [1], [(2, 32)]),
        "010f0003 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        + ITEMS + "0000000000000001 0000000000000000 0000000000000002 0000000000000020 " + NO_TIMEOUT_NO_ALIAS
        + "98 a173 05 01 00 00 a0 00 a0",
    ),
    (
        Claim("q", 7, ClaimAction.READ, "s", 5, reader="r", batch=6, run="u"),
        "010f0006 00000000" + HEAD_TAIL + "0000000000000007 00000000 01 71" + "98 a173 05 01 00 00 a172 06 a175",
    ),
    (
        Claim("q", 7, ClaimAction.RENEWED, "s", until_ms=16),
        "010f0002 00000000" + HEAD_TAIL + "0000000000000007 00000000 01 71" + "98 a173 00 01 10 00 a0 00 a0",
    ),
    (
        Stash("q", [Draft(b"hi", -1, 5, 6, 7, b"\x80")], "t", 2, 8, "w", 4, door=3, worker=9),
        "01100301 00000001" + HEAD_TAIL + "0000000000000000 00000009 01 71"
        "0000 0001 00000002 0000000000000000 0000000000000005 ffffffffffffffff 0000000000000006 "
        "0000000000000007 00000000" + "00000008 95 a174 02 08 a177 04" + "6869 80",
    ),
    (
        Unstash("q", UnstashAction.PUBLISHED, [("t", 2)], "w", 3, "u", "i", "r", ["p"]),
        "01110001 00000000" + HEAD_TAIL + "0000000000000000 00000000 01 71"
        + "97 91 92 a174 02 a177 03 a175 a169 a172 91 a170",
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
    (PauseQueue("q", 256), "01120000 00000000" + HEAD_TAIL + "00" * 12 + "01 71 cd 01 00"),
    (
        Requeued("q", 7, [1]),
        "01130001 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71" + ITEMS + "0000000000000001" + "00" * 36,
    ),
    (
        Ack("q", 7, [1], [ANY_TOKEN], [Publish("", [])], moved=True),
        "01130000 00000001" + HEAD_TAIL + "0000000000000007 00000000 01 71"
        + ITEMS + "0000000000000001" + "00" * 36 + "00000000"
        "0000001d" + "01010000 00000000" + HEAD_TAIL + "00" * 12 + "00",
    ),
    (
        Members(Config((Member(1, 7, True, "a:1"),), founded=True, level=2)),
        "010e0000 00000000" + HEAD_TAIL + "00" * 12 + "00" + "93 91 94 01 07 c3 a3 613a31 c3 02",
    ),
    (Imported(), "010d0000 00000000" + HEAD_TAIL + "00" * 12 + "00"),
]  # fmt: skip
HEAD_OF_TWO = "00000002" + HEAD_TAIL + "0000000000000007 00000000 01 71"
MERGED: list[tuple[Entry, str]] = [
    (
        Publish("q", [Draft(b"a", timeout_ms=7), Draft(b"b")], door=2, workers=[8, 9]),
        "01010200 00000002" + HEAD_TAIL + "0000000000000000 00000000 01 71"
        "0000 0000 00000001 0000000000000008" + "00" * 24 + "0000000000000007 00000000"
        "0000 0000 00000001 0000000000000009" + "00" * 36 + "61 62",
    ),
    (
        Delivered("q", 7, [1, 3], [16, 17], 32, door=2, workers=[8, 9]),
        "01020200" + HEAD_OF_TWO
        + ITEMS + "0000000000000001 0000000000000010 0000000000000000 0000000000000020 0000000000000008 00000000"
        + ITEMS + "0000000000000003 0000000000000011 0000000000000000 0000000000000021 0000000000000009 00000000",
    ),
    *(
        (
            Ack("q", 7, [1, 3], [(2, 3), (2, 4)], door=2, workers=[8, 9], dead=kind == "07", moved=kind == "13"),
            "01" + kind + "0200" + HEAD_OF_TWO
            + ITEMS + "0000000000000001 0000000000000000 0000000000000002 0000000000000003 0000000000000008 00000000"
            + ITEMS + "0000000000000003 0000000000000000 0000000000000002 0000000000000004 0000000000000009 00000000"
            + "00000000",
        )
        for kind in ("05", "07", "13")
    ),
]  # fmt: skip


def test_examples_cover_every_kind_of_entry() -> None:
    entries = [entry for entry, _ in SPELLED]

    assert {encode_entry(entry, 1)[1] for entry in entries} == set(Kind)
    assert set(map(type, entries)) == set(get_args(Entry))


@pytest.mark.parametrize(("entry", "spelled"), SPELLED + MERGED, ids=lambda value: type(value).__name__)
def test_entry_on_disk_is_as_documented(entry: Entry, spelled: str) -> None:
    payload = bytes.fromhex(spelled)

    assert encode_entry(entry, AT) == payload
    assert decode_entry(payload) == (entry, AT)


@pytest.mark.parametrize("entry", [entry for entry, _ in MERGED], ids=lambda entry: type(entry).__name__)
def test_merged_entry_cut_anywhere_is_damage(entry: Entry) -> None:
    payload = encode_entry(entry, AT)

    for size in range(len(payload)):
        with pytest.raises(BadRecord):
            decode_entry(payload[:size])


BODIES = (b"a", b"", b"bcd")


@pytest.mark.parametrize(
    "once",
    [
        {"atomic": False},
        {"atomic": False, "session": "s", "ordinals": [7, 8, 9]},
        {},
        {"id": "i"},
        {"session": "s", "ordinals": [7]},
        {"atomic": False, "worker": 0, "workers": [8, 9, 8]},
    ],
    ids=str,
)
def test_publish_from_one_buffer_is_encoded_like_separate_drafts(once: dict[str, Any]) -> None:
    drafts = [Draft(body, -1, 5, 6, 7) for body in BODIES]
    entry = Publish("q", drafts, **({"atomic": True, "worker": 9} | once))

    alike = msgspec.structs.replace(entry, drafts=uniform_bodies(BODIES, Draft(b"", -1, 5, 6, 7)))

    assert encode_entry(alike, AT) == encode_entry(entry, AT)


@pytest.mark.parametrize("numbers", [{}, {"session": "s", "ordinals": [7, 8, 9]}, {"workers": [8, 9, 8]}], ids=str)
def test_publish_marked_alike_is_encoded_like_any_other(numbers: dict[str, Any]) -> None:
    entry = Publish("q", [Draft(body, -1, 5, 6, 7) for body in BODIES], **numbers)

    assert encode_entry(msgspec.structs.replace(entry, alike=True), AT) == encode_entry(entry, AT)


def test_stash_from_one_buffer_is_encoded_like_separate_drafts() -> None:
    entry = Stash("q", list(map(Draft, BODIES)), "t", 2, 8, worker=9)

    alike = msgspec.structs.replace(entry, drafts=uniform_bodies(BODIES))

    assert encode_entry(alike, AT) == encode_entry(entry, AT)


@pytest.mark.parametrize("count", [1, UNIFORM_MIN - 1, UNIFORM_MIN, 1_000])
@pytest.mark.parametrize("more", [{}, {"priority": 3}, {"delay_ms": 4, "expires_ms": 5, "timeout_ms": 6}], ids=str)
@pytest.mark.parametrize("kind", [Publish, Stash])
def test_drafts_that_are_alike_are_decoded_into_one_buffer(kind: type, more: dict[str, int], count: int) -> None:
    drafts = [Draft(b"x" * (i % 7 * 300), **more) for i in range(count)]
    entry = Publish("q", drafts) if kind is Publish else Stash("q", drafts, "s", 0, 1)

    read, _ = decode_entry(encode_entry(entry, AT))

    assert isinstance(read, Publish | Stash)
    assert read == entry
    assert (type(read.drafts) is UniformBatch) == (count >= UNIFORM_MIN)


@pytest.mark.parametrize("place", [0, 1, 9])
@pytest.mark.parametrize("other", [{"priority": 1}, {"delay_ms": 1}, {"headers": b"h"}, {"alias": "a"}], ids=str)
def test_draft_that_differs_is_decoded_as_it_was(other: dict[str, Any], place: int) -> None:
    drafts = [Draft(b"body", **(other if place == i else {})) for i in range(10)]

    read, _ = decode_entry(encode_entry(Publish("q", drafts), AT))

    assert read == Publish("q", drafts)
    assert isinstance(read, Publish)
    assert type(read.drafts) is list


@pytest.mark.parametrize("numbers", ["session", "workers"])
@pytest.mark.parametrize("first_and_last", [(8, 9), (8, 8), (0, 0), (2**32 - 1, 0)], ids=str)
def test_publishes_that_differ_in_their_numbers_are_decoded_as_one_buffer(
    first_and_last: tuple[int, int], numbers: str
) -> None:
    first, last = first_and_last
    each = [first, *range(256, 256 * UNIFORM_MIN, 256), last]
    about: dict[str, Any] = {"session": "s", "ordinals": each} if numbers == "session" else {"workers": each}
    entry = Publish("q", [Draft(b"x" * size, 3) for size in range(len(each))], **about)

    read, _ = decode_entry(encode_entry(entry, AT))

    assert isinstance(read, Publish)
    assert read == entry
    assert type(read.drafts) is UniformBatch
    assert encode_entry(read, AT) == encode_entry(entry, AT)


def test_numbers_of_a_session_are_no_connections() -> None:
    entry = Publish("q", [Draft(b"")] * 2, session="s", ordinals=[8, 9])

    read, _ = decode_entry(encode_entry(entry, AT))

    assert isinstance(read, Publish)
    assert (read.ordinals, read.workers) == ([8, 9], ())


def test_entry_that_ends_inside_a_body_is_damage() -> None:
    payload = encode_entry(Publish("q", [Draft(b"body")] * 9), AT)

    with pytest.raises(BadRecord, match="inside a body"):
        decode_entry(payload[:-1])


@pytest.mark.parametrize("kind", [Publish, Stash])
def test_lengthened_delay_is_encoded(kind: type) -> None:
    drafts = uniform_bodies([b"x", b"y"], Draft(b"", delay_ms=100_000))
    entry = Publish("q", drafts) if kind is Publish else Stash("q", drafts, "s", 0, 1)

    longer = lengthened(entry, 5_000)
    written, _ = decode_entry(encode_entry(longer, AT))

    assert isinstance(longer, Publish | Stash)
    assert isinstance(written, Publish | Stash)
    assert written.drafts == longer.drafts == [Draft(b"x", delay_ms=101_000), Draft(b"y", delay_ms=101_000)]


def test_fixed_parts_have_their_documented_sizes() -> None:
    assert (HEAD.size, ITEM.size, ROW.size) == (29, 52, 89)


def test_alias_is_counted_in_bytes() -> None:
    entry = Publish("q", [Draft(b"1", alias="é"), Draft(b"2")])

    assert decode_entry(encode_entry(entry, 1)) == (entry, 1)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"", "cannot be decoded"),
        (b"\x02" + encode_entry(Noop(), 1)[1:], "version 2"),
        (b"\x01\xff" + encode_entry(Noop(), 1)[2:], "kind 255, which only a later release knows"),
        (encode_entry(Expired("q", 1, [1, 2]), 1)[:-1], "inside its items"),
        (encode_entry(Expired("q", 1, [1, 2]), 1)[: -ITEM.size], "inside its items"),
        (encode_entry(DeleteQueue("name"), 1)[:-1], "within a field"),
        (encode_entry(Publish("q", [Draft(b"body")]), 1)[:-1], "inside a body"),
        (encode_entry(Publish("q", [], id="id"), 1)[:-1], "within a field"),
        (encode_entry(Ack("q", 1, [], [], [Publish("q", [])]), 1)[:-1], "within a field"),
        (encode_entry(CreateQueue("q", Policies()), 1)[:-1] + b"\xc1", "cannot be decoded"),
        (encode_entry(DeleteQueue("q"), 1)[:-1] + b"\xff", "cannot be decoded"),
    ],
)
def test_damaged_entry_is_refused_with_the_reason(damaged: bytes, why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        decode_entry(damaged)


@pytest.mark.parametrize("later", [b"\x02" + encode_entry(Noop(), 1)[1:], b"\x01\xff" + encode_entry(Noop(), 1)[2:]])
def test_entry_of_a_later_release_has_the_exit_status_of_a_wrong_version(later: bytes) -> None:
    with pytest.raises(BadRecord) as refused:
        decode_entry(later)

    assert refused.value.exit_status == WrongVersion.exit_status


def test_follow_up_that_is_no_publish_is_refused_at_any_depth() -> None:
    payload = encode_entry(Ack("q", 1, [], []), 1)
    for _ in range(2_000):
        payload = encode_entry(Ack("q", 1, [], []), 1) + struct.pack(">I", len(payload)) + payload

    with pytest.raises(BadRecord, match="not a publish"):
        decode_entry(payload)


def test_deeply_nested_policies_are_refused() -> None:
    head = encode_entry(UpdateQueue("q", {}), 1)[:-1]

    with pytest.raises(BadRecord, match="cannot be decoded"):
        decode_entry(head + b"\x81\xa1a" + b"\x91" * 100_000)


def test_policies_are_encoded_by_name() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Policies(timeout=5))) == {"timeout": 5}
