"""The life of a message in a ledger: deliveries, imported uids, what is written down."""

from msgspec.structs import astuple

from tests.helpers.models.ledger_by_hand import (
    NOW_MS,
    OTHER_ID,
    QUEUE_ID,
    TERM,
    WINDOW_MS,
    ack,
    ack_foreign,
    deliver,
    drafts,
    make,
    put,
    put_numbered,
    put_once,
    release,
)
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Delivered,
    Draft,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Result,
)
from wakeq.protocol.queue.ledger.chunks import CHUNK
from wakeq.protocol.queue.ledger.deliveries import ERROR_CHARS_MAX
from wakeq.protocol.uid import UidMaker

# Deliveries -----------------------------------------------------------------------------------------------------------


def test_delivered_message_is_out_until_it_is_released() -> None:
    ledger = make()
    put(ledger)

    deliver(ledger, 1, 4, until_ms=NOW_MS + 5)
    assert ledger.deliveries.is_leased(1)
    assert (ledger.deliveries.leased, ledger.size) == (1, 0)

    assert release(ledger, 1, token=(TERM, 4), due_ms=NOW_MS + 9, error="why") == Result.DONE
    side = ledger.deliveries.records[1]
    assert not ledger.deliveries.is_leased(1)
    assert (ledger.deliveries.leased, ledger.size, ledger.due_of(1)) == (0, 1, NOW_MS + 9)
    assert (side.deliveries, side.nacks, side.error) == (1, 1, "why")


def test_cancelled_messages_are_those_of_the_last_acknowledgement_alone() -> None:
    ledger = make()
    put(ledger, *drafts(3))
    deliver(ledger, 2, 4)

    told = []
    for entry in (
        Ack("q", QUEUE_ID, [1, 2], [ANY_TOKEN] * 2),
        Ack("q", QUEUE_ID, [3], [ANY_TOKEN], moved=True),
    ):
        ledger.acknowledge(entry)
        told.append(list(ledger.cancelled))

    assert told == [[0], []]


def test_reasons_of_releases_are_counted() -> None:
    ledger = make()
    put(ledger)
    for sequence, reason in enumerate((Reason.NACK, Reason.TIMEOUT, Reason.TIMEOUT, Reason.DISCONNECT), 1):
        deliver(ledger, 1, sequence)
        ledger.release(Released("q", QUEUE_ID, [1], [NOW_MS], [ANY_TOKEN], reason))

    side = ledger.deliveries.records[1]
    assert (side.deliveries, side.nacks, side.timeouts, side.disconnects) == (4, 1, 2, 1)


def test_returned_message_counts_a_delivery_and_no_failure() -> None:
    ledger = make()
    put(ledger)
    for sequence, reason in enumerate((Reason.NACK, Reason.RETURNED, Reason.RETURNED, Reason.TIMEOUT), 1):
        deliver(ledger, 1, sequence)
        assert ledger.release(Released("q", QUEUE_ID, [1], [NOW_MS], [ANY_TOKEN], reason, "why")) == [Result.DONE]

    side = ledger.deliveries.records[1]
    assert (side.deliveries, side.failures, side.error) == (4, 2, "why")
    assert (ledger.deliveries.leased, ledger.totals.released) == (0, 4)


def test_dead_letter_is_made_only_of_a_leased_message() -> None:
    ledger = make()
    put(ledger)
    deliver(ledger, 1, 1)
    letter = Ack("q", QUEUE_ID, [1], [(TERM, 1)], dead=True)

    while_out = ledger.judge_ack(letter)
    release(ledger, 1)

    assert (while_out, ledger.judge_ack(letter)) == (Result.DONE, Result.UNKNOWN)
    assert ledger.judge_ack(Ack("q", QUEUE_ID, [1], [(TERM, 1)])) == Result.DONE


def test_deliveries_count_on_beyond_255() -> None:
    ledger = make()
    put(ledger)

    for sequence in range(1, 301):
        deliver(ledger, 1, sequence)
        release(ledger, 1)

    assert ledger.deliveries.records[1].deliveries == 300


def test_older_token_is_stale_and_one_that_the_log_does_not_know_is_taken() -> None:
    ledger = make()
    put(ledger, *drafts(3))
    for number in (1, 2, 3):
        deliver(ledger, number, number)
    deliver(ledger, 1, 9)

    assert release(ledger, 1, token=(TERM, 1)) == Result.STALE
    assert ack(ledger, 1, (TERM, 1)) == Result.STALE
    assert ack(ledger, 1, (TERM - 1, 99)) == Result.STALE
    assert ledger.deliveries.is_leased(1)
    assert ack(ledger, 1, (TERM, 9)) == Result.DONE
    assert ack(ledger, 2, (TERM, 77)) == Result.DONE
    assert ack(ledger, 3, ANY_TOKEN) == Result.DONE


def test_message_that_is_not_leased_is_neither_released_nor_extended() -> None:
    ledger = make()
    put(ledger)

    assert release(ledger, 1) == Result.UNKNOWN
    ledger.extend(Extended("q", QUEUE_ID, [1, 99], [NOW_MS, NOW_MS]))
    assert ledger.deliveries.records == {}

    deliver(ledger, 1, 1)
    ledger.extend(Extended("q", QUEUE_ID, [1], [NOW_MS + 1]))
    assert ledger.deliveries.records[1].until_ms == NOW_MS + 1
    release(ledger, 1)
    ledger.extend(Extended("q", QUEUE_ID, [1], [NOW_MS + 2]))
    assert ledger.deliveries.records[1].until_ms == 0


def test_delivery_of_a_removed_message_is_not_counted() -> None:
    ledger = make()
    put(ledger, *drafts(2))
    ack(ledger, 1)

    ledger.deliver(Delivered("q", QUEUE_ID, [1, 2], [NOW_MS, NOW_MS], 3), TERM)

    assert (ledger.deliveries.leased, ledger.totals.delivered, list(ledger.deliveries.records)) == (1, 1, [2])
    assert ledger.deliveries.records[2].sequence == 4


def test_entry_of_another_incarnation_changes_nothing() -> None:
    ledger = make()
    put(ledger, Draft(b"x", expires_ms=1), Draft(b"y", alias="old-1"), Draft(b"z"))
    deliver(ledger, 3, 1)
    ledger.collect()

    ledger.deliver(Delivered("q", OTHER_ID, [1], [NOW_MS], 1), TERM)
    ledger.extend(Extended("q", OTHER_ID, [3], [1]))
    assert ledger.release(Released("q", OTHER_ID, [3], [1], [ANY_TOKEN], Reason.NACK)) == [Result.UNKNOWN]
    assert ledger.expire(Expired("q", OTHER_ID, [1]), NOW_MS + 5) == [Result.UNKNOWN]
    assert [ack(ledger, number, queue_id=OTHER_ID) for number in (1, 2, 3)] == [Result.UNKNOWN] * 3
    assert ledger.judge_ack(Ack("q", OTHER_ID, [2], [ANY_TOKEN])) == Result.UNKNOWN
    assert (ledger.columns.living, ledger.deliveries.leased) == (3, 1)
    assert not any(astuple(ledger.collect()))


def test_error_text_is_bounded() -> None:
    ledger = make()
    put(ledger)
    deliver(ledger, 1, 1)

    release(ledger, 1, error="é" * 100_000)

    assert len(ledger.deliveries.records[1].error) == ERROR_CHARS_MAX


# Imported uids --------------------------------------------------------------------------------------------------------


def test_message_of_version_1_is_acknowledged_by_its_own_uid() -> None:
    ledger = make()
    put(ledger, Draft(b"a"), Draft(b"b", alias="aB1440000000_250"))

    assert ack_foreign(ledger, "aB1440000000_999") == Result.UNKNOWN
    assert ack_foreign(ledger, "aB1440000000_250") == Result.DONE
    assert ack_foreign(ledger, "aB1440000000_250") == Result.UNKNOWN
    assert list(ledger.columns.living_numbers()) == [1]


def test_uid_of_a_message_that_just_left_is_known_until_it_is_collected() -> None:
    ledger = make()
    put(ledger, Draft(b"", alias="old-1"))
    ledger.collect()
    entry = Ack("q", 0, [-1], [ANY_TOKEN], foreign={0: "old-1"})

    ledger.acknowledge(entry)

    assert ledger.resolved(entry) == [1]  # whoever keeps its body or lease can still find it
    assert ledger.columns.aliased == {1: "old-1"}
    assert ledger.collect().aliases_gone == ["old-1"]
    assert (ledger.columns.aliases, ledger.columns.aliased, ledger.collect().aliases_gone) == ({}, {}, ())


def test_uid_of_this_incarnation_beside_one_of_another_is_found() -> None:
    """The door can give an entry one queue id only: that of its first uid."""
    ledger = make()
    put(ledger)
    foreign = {1: UidMaker(QUEUE_ID).uid(1), 2: UidMaker(QUEUE_ID + 1).uid(1)}

    results = ledger.acknowledge(Ack("q", OTHER_ID, [1, -1, -1], [ANY_TOKEN] * 3, foreign=foreign))

    assert results == [Result.UNKNOWN, Result.DONE, Result.UNKNOWN]


def test_new_incarnation_knows_no_imported_uid() -> None:
    ledger = make()
    put(ledger, Draft(b"", alias="old-1"))

    ledger.begin(8, Policies())
    put(ledger)

    assert ack_foreign(ledger, "old-1") == Result.UNKNOWN
    assert ledger.columns.living == 1


# Writing down ---------------------------------------------------------------------------------------------------------


def test_collected_delta_does_not_change_with_the_ledger() -> None:
    ledger = make()
    put_numbered(ledger, 1)
    put(ledger, Draft(b"", priority=1))
    delta = ledger.collect()

    put_numbered(ledger, 2)
    ack(ledger, 1)

    ((_, session),) = delta.sessions
    ((_, chunk, _),) = delta.chunks
    assert session is not None
    assert chunk is not None
    assert (session.highest, session.outcomes) == (1, {1: (QUEUE_ID, 1, 1)})
    assert list(chunk.sizes) == [0, 5, 1]


def test_changes_alone_are_collected_and_only_once() -> None:
    ledger = make()
    put(ledger, *drafts(2 * CHUNK))
    ledger.collect()

    deliver(ledger, 3, 1)
    ack(ledger, CHUNK + 1)
    put_once(ledger, "a")

    delta = ledger.collect()
    assert delta.touched == [3]
    assert sorted((chunk_id, sides) for chunk_id, _, sides in delta.chunks) == [(0, [3]), (1, []), (2, [])]
    assert delta.ids == [("a", (QUEUE_ID, 2 * CHUNK + 1, 1, NOW_MS))]
    assert not any(astuple(ledger.collect()))


def test_removed_rows_are_collected_as_removed() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)
    deliver(ledger, 1, 1)
    ledger.collect()

    ack(ledger, 1)
    ack(ledger, 2)
    ledger.publish(Publish("q", drafts(1), atomic=True, id="b"), NOW_MS + WINDOW_MS)
    ack(ledger, 3)

    delta = ledger.collect()
    assert not delta.touched
    assert delta.chunks == [(0, None, ())]
    assert dict(delta.ids)["a"] is None
    assert delta.sessions == [("s", None)]


def test_purge_writes_the_publishers_down_again() -> None:
    ledger = make()
    put_once(ledger, "a")
    put_numbered(ledger, 1)
    ledger.collect()

    ledger.begin(9, Policies())

    delta = ledger.collect()
    assert delta.ids == [("a", (QUEUE_ID, 1, 1, NOW_MS))]
    assert [name for name, _ in delta.sessions] == ["s"]
