"""Entries, rows and chunks survive the way to bytes and back; damaged bytes raise BadRecord and nothing else."""

import contextlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wakeq.protocol.catalog import Policies, Retry
from wakeq.protocol.log.entries import (
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
)
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.log.records import encode_entry
from wakeq.protocol.log.rows import DeliveryRecord, FreshRows, Row, decode_drafts, decode_row, encode_row
from wakeq.protocol.queue.bodies import Stretch
from wakeq.protocol.queue.ledger.chunks import CHUNK, Chunk, decode_chunk, encode_chunk
from wakeq.protocol.queue.ledger.uniform import UNIFORM_MIN
from wakeq.protocol.raft.membership import Config, Member

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault

int64 = st.integers(-(2**63), 2**63 - 1)
natural = st.integers(0, 2**63 - 1)
uint32 = st.integers(0, 2**32 - 1)
byte = st.integers(0, 255)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
tokens = st.tuples(natural, natural)

drafts = st.builds(
    Draft,
    body=st.binary(max_size=40),
    priority=int64,
    delay_ms=natural,
    expires_ms=natural,
    timeout_ms=uint32,
    headers=st.binary(max_size=20),
    alias=st.one_of(st.just(""), words),
)
# Enough of them that they are read in one buffer.
alike_drafts = st.builds(
    lambda bodies, priority: [Draft(body, priority) for body in bodies],
    st.lists(st.binary(max_size=3), min_size=UNIFORM_MIN, max_size=UNIFORM_MIN + 2),
    int64,
)
policies = st.builds(
    Policies,
    max_size=st.none() | natural,
    max_bytes=st.none() | natural,
    priority_min=st.none() | int64,
    structure=st.sampled_from(["H4", "QA"]),
    dead_letter=st.none() | names,
    retry=st.builds(Retry, base=st.floats(0, 1e6), jitter=st.floats(0, 1)),
)


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    new = draw(st.lists(drafts, max_size=5) | alike_drafts)
    atomic, has_session = draw(st.booleans()), draw(st.booleans()) and bool(new)
    worker, workers = draw(connections(len(new)))
    return Publish(
        draw(names),
        new,
        atomic=atomic,
        id=draw(st.one_of(st.just(""), words)),
        session=draw(words) if has_session else "",
        ordinals=[draw(natural) for _ in new][: 1 if atomic else None] if has_session else (),
        forced=draw(st.booleans()),
        door=draw(byte),
        worker=worker,
        workers=() if has_session else workers,
    )


@st.composite
def connections(draw: st.DrawFn, count: int) -> tuple[int, Sequence[int]]:
    """The one connection of an entry, or 0 and that of each of its messages."""
    each = draw(st.lists(uint32, min_size=count, max_size=count))
    return (0, each) if len(set(each)) > 1 and draw(st.booleans()) else (draw(uint32), ())


def columns(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    """Lists of one length, at least 1."""
    rows = st.lists(st.tuples(*kinds), min_size=1, max_size=5)
    return rows.map(lambda given: [list(column) for column in zip(*given, strict=True)])


@st.composite
def claims(draw: st.DrawFn, name: str, queue_id: int, numbers: list[int], pairs: list[Any]) -> Claim:
    action = draw(st.sampled_from(ClaimAction))
    is_staged = action is ClaimAction.STAGED
    first, slices, until_ms = draw(st.integers(0, 2**40)), draw(st.integers(1, 9)), draw(natural)
    about = draw(words), draw(natural), numbers, [] if is_staged else pairs, first, slices, until_ms
    return Claim(name, queue_id, action, *about, draw(uint32), draw(byte), draw(words), draw(natural), draw(words))


members = st.lists(st.builds(Member, natural, natural, st.booleans(), words), max_size=3).map(tuple)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    name, queue_id = draw(names), draw(int64)
    numbers, moments, pairs = draw(columns(int64, int64, tokens))
    (worker, workers), door = draw(connections(len(numbers))), draw(byte)
    kinds: list[Callable[[], Entry]] = [
        lambda: draw(publishes()),
        lambda: Delivered(name, queue_id, numbers, moments, draw(st.integers(0, 2**40)), worker, door, workers),
        lambda: Extended(name, queue_id, numbers, moments),
        lambda: Released(name, queue_id, numbers, moments, pairs, draw(st.sampled_from(Reason)), draw(words)),
        lambda: Ack(
            name,
            queue_id,
            numbers,
            pairs,
            draw(st.lists(publishes(), max_size=3)),
            draw(st.dictionaries(st.integers(0, 10), words, max_size=3)),
            draw(st.booleans()),
            worker,
            door,
            workers=workers,
        ),
        lambda: Expired(name, queue_id, numbers),
        lambda: draw(claims(name, queue_id, numbers, pairs)),
        lambda: Stash(
            name,
            [msgspec.structs.replace(draft, alias="") for draft in draw(st.lists(drafts, max_size=4))],
            draw(words),
            draw(natural),
            draw(natural),
            draw(words),
            draw(natural),
            door,
            worker,
        ),
        lambda: Unstash(
            name,
            draw(st.sampled_from(UnstashAction)),
            draw(st.lists(st.tuples(words, natural), max_size=3)),
            draw(words),
            draw(natural),
            draw(words),
            draw(words),
            draw(words),
            draw(st.lists(words, max_size=2)),
        ),
        lambda: CreateQueue(name, draw(policies)),
        lambda: UpdateQueue(name, draw(st.dictionaries(words, st.none() | int64 | words | st.floats(0, 1)))),
        lambda: DeleteQueue(name),
        lambda: PurgeQueue(name),
        lambda: SetAside(name, draw(natural), draw(words)),
        lambda: PauseQueue(name, draw(natural)),
        lambda: Requeued(name, queue_id, numbers),
        lambda: Ack(name, queue_id, numbers, pairs, draw(st.lists(publishes(), max_size=3)), moved=True),
        lambda: Members(Config(draw(members), draw(st.booleans()), draw(natural)), name),
        lambda: Imported(name),
        lambda: Noop(name),
    ]
    return draw(st.sampled_from(kinds))()


@patient
@given(entry=entries(), at_ms=int64)
def test_entry_is_decoded_as_it_was_encoded(entry: Entry, at_ms: int) -> None:
    assert decode_entry(encode_entry(entry, at_ms)) == (entry, at_ms)


@patient
@given(entry=entries(), data=st.data())
def test_cut_entry_is_a_bad_record_or_an_entry(entry: Entry, data: st.DataObject) -> None:
    payload = encode_entry(entry, 5)

    with contextlib.suppress(BadRecord):
        decode_entry(payload[: data.draw(st.integers(0, len(payload) - 1))])


@patient
@given(entry=entries(), data=st.data())
def test_entry_with_a_flipped_bit_is_a_bad_record_or_an_entry(entry: Entry, data: st.DataObject) -> None:
    payload = flipped(encode_entry(entry, 5), data)

    with contextlib.suppress(BadRecord):
        decode_entry(payload)


@patient
@given(payload=st.binary(max_size=200))
@example(b"\x01\x09" + bytes(27) + b"\x81\xa1a" + b"\x91" * 5_000)
def test_garbage_is_a_bad_record_or_an_entry(payload: bytes) -> None:
    with contextlib.suppress(BadRecord):
        decode_entry(payload)


def flipped(value: bytes, data: st.DataObject) -> bytes:
    place = data.draw(st.integers(0, 8 * len(value) - 1), label="bit")
    copy = bytearray(value)
    copy[place // 8] ^= 1 << place % 8
    return bytes(copy)


# Rows -------------------------------------------------------------------------------------------------------------

sides = st.builds(
    DeliveryRecord,
    deliveries=st.integers(1, 2**32 - 1),
    nacks=uint32,
    timeouts=uint32,
    disconnects=uint32,
    term=natural,
    sequence=natural,
    until_ms=natural,
    due_ms=natural,
    error=st.one_of(st.just(""), words),
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    side = draw(st.none() | sides)
    due_ms = draw(natural) if side is None else side.due_ms
    timing = (draw(natural), due_ms, draw(natural), draw(natural))
    return Row(draw(st.binary(max_size=40)), draw(st.binary(max_size=20)), draw(int64), *timing, side)


@patient
@given(row=rows())
def test_row_is_decoded_as_it_was_encoded(row: Row) -> None:
    assert decode_row(encode_row(row)) == row


plain_rows = st.builds(Row, st.binary(max_size=40), published_ms=st.sampled_from((0, 1, 77)))


@patient
@given(several=st.lists(rows() | plain_rows, max_size=8))
def test_rows_decoded_together_equal_the_published_drafts(several: list[Row]) -> None:
    found = decode_drafts(map(encode_row, several))

    asked = [Draft(row.body, row.priority, 0, 0, row.timeout_ms, row.headers) for row in several]
    assert found == [(draft, row.published_ms) for draft, row in zip(asked, several, strict=True)]


@patient
@given(several=st.lists(rows() | plain_rows, min_size=1, max_size=3), data=st.data())
def test_damaged_row_among_rows_decoded_together_is_a_bad_record(several: list[Row], data: st.DataObject) -> None:
    values = list(map(encode_row, several))
    place = data.draw(st.integers(0, len(values) - 1), label="place")
    cut = values[place][: data.draw(st.integers(0, len(values[place]) - 1), label="cut")]

    for damaged in (cut, flipped(values[place], data), values[place] + b"\x00"):
        with contextlib.suppress(BadRecord):
            raise AssertionError(decode_drafts([*values[:place], damaged, *values[place + 1 :]]))


@patient
@given(row=rows(), data=st.data())
def test_damaged_row_is_a_bad_record(row: Row, data: st.DataObject) -> None:
    value = encode_row(row)
    cut = value[: data.draw(st.integers(0, len(value) - 1), label="cut")]

    for damaged in (cut, flipped(value, data), value + b"\x00"):
        with contextlib.suppress(BadRecord):
            raise AssertionError(decode_row(damaged))


@patient
@given(new=st.lists(st.tuples(drafts, st.integers(0, 3)), max_size=8), data=st.data())
def test_rows_encoded_together_equal_rows_encoded_one_by_one(new: list[tuple[Draft, int]], data: st.DataObject) -> None:
    every = dict(enumerate(new, 1))
    moments = [(number, at_ms) for number, (_, at_ms) in every.items() if number == 1 or every[number - 1][1] != at_ms]
    gone = data.draw(st.sets(st.sampled_from(sorted(every)))) if every else set[int]()
    fresh = {number: kept for number, kept in every.items() if number not in gone}
    some = st.sets(st.sampled_from(sorted(fresh))) if fresh else st.just(set[int]())
    timed = {number: (data.draw(natural), data.draw(natural)) for number in data.draw(some)}
    delivered = {number: data.draw(sides) for number in data.draw(some)}

    stays = bytes(number not in gone for number in every)
    values = FreshRows([Stretch(1, [draft for draft, _ in new], stays)], moments, timed, delivered)

    for (number, (draft, at_ms)), value in zip(fresh.items(), values, strict=True):
        due_ms, expires_ms = timed.get(number, (0, 0))
        side = delivered.get(number)
        row = Row(draft.body, draft.headers, draft.priority, draft.timeout_ms, due_ms, expires_ms, at_ms, side)
        assert value == encode_row(row)


# Chunks -----------------------------------------------------------------------------------------------------------

COLUMNS = ("priorities", "dues", "expiries", "timeouts")


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Chunk, list[int]]:
    size = draw(st.one_of(st.integers(0, 6), st.just(CHUNK)))
    chunk = Chunk()
    for name in COLUMNS:
        values = int64
        if draw(st.booleans()):
            column = [draw(values)] * (size // 2) + [draw(values)] * (size - size // 2)
            chunk.put(name, array("q", column))
    chunk.sizes = array("I", [draw(uint32)] * (size // 2) + [0] * (size - size // 2))
    living = [offset for offset, value in enumerate(chunk.sizes) if value]
    chunk.living = len(living)
    return chunk, sorted(draw(st.sets(st.sampled_from(living), max_size=5))) if living else []


@patient
@given(made=chunks())
def test_chunk_is_decoded_as_it_was_encoded(made: tuple[Chunk, list[int]]) -> None:
    chunk, offsets = made

    again, offsets_again = decode_chunk(encode_chunk(chunk, offsets))

    for name in (*COLUMNS, "sizes", "living"):
        assert getattr(again, name) == getattr(chunk, name)
    assert offsets_again == offsets


@patient
@given(made=chunks(), data=st.data())
def test_damaged_chunk_is_a_bad_record(made: tuple[Chunk, list[int]], data: st.DataObject) -> None:
    value = encode_chunk(*made)
    cut = value[: data.draw(st.integers(0, len(value) - 1), label="cut")]

    for damaged in (cut, flipped(value, data), value + b"\x00"):
        with contextlib.suppress(BadRecord):
            raise AssertionError(decode_chunk(damaged))
