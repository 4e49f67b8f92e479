"""The journal's reader: each entry is one row an event, and what became of it is told."""

from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.journal.files import EVERYTHING, JOBS, JournalFiles, publish, rows_of, short
from wakeq.pipeline.journal.plan import History
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    Delivered,
    Draft,
    Expired,
    Extended,
    Noop,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Requeued,
    Result,
    Stash,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.outcomes import WHOLE
from wakeq.protocol.uid import uid_of
from wakeq.storage.log.journal import Keep


def test_entries_of_every_kind_are_events(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(
        JOBS,
        Publish("jobs", [Draft(b"one", 7, delay_ms=500), Draft(b"two")], door=3, worker=9),
        Delivered("jobs", 1, [1], [123_000], 4, worker=2, door=1),
        Extended("jobs", 1, [1], [124_000]),
        Released("jobs", 1, [1], [125_000], [(1, 4)], Reason.TIMEOUT, "slow"),
        Ack("jobs", 1, [2], [(1, 5)], worker=2, door=1),
        Expired("jobs", 1, [1]),
        PurgeQueue("jobs"),
        Noop(),
    )
    files.outcomes(0)

    rows = rows_of(files.path, wanted=EVERYTHING)

    first = uid_of(1, 1)
    assert [(row["event"], row["uid"]) for row in rows] == [
        ("created", None), ("published", first), ("published", uid_of(1, 2)), ("delivered", first),
        ("extended", first), ("released", first), ("acked", uid_of(1, 2)), ("expired", first), ("purged", None),
    ]  # fmt: skip
    told = rows[1]
    assert (told["priority"], told["size"], told["body"], told["door"], told["worker"]) == (7, 3, b"one", "taskflux", 9)
    assert (told["until"] - told["at"]).total_seconds() == 0.5
    assert (rows[3]["delivery"], rows[3]["worker"], rows[3]["until"].timestamp()) == (4, 2, 123)
    assert (rows[5]["reason"], rows[5]["delivery"], rows[5]["until"].timestamp()) == ("timeout", 4, 125)
    assert rows[2]["until"] is None
    assert rows[6]["body"] is None
    assert {row["queue"] for row in rows} == {"jobs"}


def test_bodies_are_found_behind_ids_sessions_headers_and_aliases(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    drafts = [Draft(b"one", headers=b"\x81\xa1a\xa1b", alias="old"), Draft(b""), Draft(b"three")]
    files.write(JOBS, Publish("jobs", drafts, id="i", session="sess", ordinals=[1, 2, 3]))
    files.outcomes(0)

    rows = rows_of(files.path, wanted=EVERYTHING)

    assert [row["body"] for row in rows[1:]] == [b"one", b"", b"three"]


def test_acknowledgement_that_includes_its_delivery_is_two_events(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "b"), Ack("jobs", 1, [1, 2], [(0, 0)] * 2, delivered=True))
    files.outcomes(0, (3, 1, -1), queues=[(1, 3, "jobs")])

    assert short(files.path)[3:] == [
        (3, "delivered", uid_of(1, 1), "done"),
        (3, "delivered", uid_of(1, 2), "unknown"),
        (3, "acked", uid_of(1, 1), "done"),
        (3, "acked", uid_of(1, 2), "unknown"),
    ]


def test_merged_entries_name_the_connection_of_each_message(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    two, leases, each = [1, 2], [(1, 4), (1, 5)], [8, 9]
    drafts = [Draft(b"a", timeout_ms=700), Draft(b"b")]
    letter = Publish("dead", [Draft(b"a")], forced=True)
    files.write(
        JOBS,
        Publish("jobs", drafts, workers=each),
        Delivered("jobs", 1, two, [123_000, 124_000], 4, workers=each),
        Ack("jobs", 1, two, leases, workers=each),
        Ack("jobs", 1, two, leases, workers=each, delivered=True),
        Ack("jobs", 1, two, leases, [letter], workers=each, dead=True),
        Ack("jobs", 1, two, leases, workers=each, moved=True),
    )
    files.outcomes(0)

    told = [(row["event"], row["worker"]) for row in rows_of(files.path)]

    events = ("published", "delivered", "acked", "delivered", "acked", "dead")
    assert told == [
        ("created", None), *((event, worker) for event in events for worker in each),
        ("published", None), ("moved", 8), ("moved", 9),
    ]  # fmt: skip


def test_entries_of_one_connection_are_of_that_in_their_head(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    drafts = [Draft(b"a", timeout_ms=700), Draft(b"b", timeout_ms=800)]
    files.write(
        JOBS,
        Publish("jobs", drafts, session="s", ordinals=[4, 5], worker=3),
        Publish("jobs", drafts, session="s", ordinals=[6], atomic=True),
        Stash("jobs", drafts, "stash", 0, 1000, worker=3),
        Delivered("jobs", 1, [1, 2], [123_000] * 2, 4, worker=3),
        Claim("jobs", 1, ClaimAction.STAGED, "s", 1, [3, 4], first_sequence=6, until_ms=123_000, worker=3),
    )
    files.outcomes(0)

    told = [(row["event"], row["worker"]) for row in rows_of(files.path)]

    assert told == [
        ("created", None), *[("published", 3)] * 2, *[("published", None)] * 2, *[("stashed", 3)] * 2,
        *[("delivered", 3)] * 4,
    ]  # fmt: skip


def test_merged_commands_are_listed_by_connection(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.send({"cmd": "PUB", "qname": "q", "message": "x"})
    published = [client.take()[0]["uid"] for client in clients]
    for client in clients:
        client.send({"cmd": "FET", "qname": "q"})
    fetched = [client.take()[0] for client in clients]
    for client, message in zip(clients, fetched, strict=True):
        client.send({"cmd": "ACK", "qname": "q", "uid": message["uid"], "lease": message["lease"]})
    assert [client.words() for client in clients] == [["okack"]] * 3
    broker.advance(0.1)
    broker.flush()
    broker.close()

    rows = rows_of(tmp_path / "data")

    numbers = [client.process.number for client in clients]
    of_fetched = list(zip([message["uid"] for message in fetched], numbers, strict=True))
    for event, told in (
        ("published", list(zip(published, numbers, strict=True))), ("delivered", of_fetched), ("acked", of_fetched)
    ):  # fmt: skip
        mine = [row for row in rows if row["event"] == event]
        assert [(row["uid"], row["worker"]) for row in mine] == told
        assert len({row["index"] for row in mine}) == 1, f"the three {event} are one entry"


def test_refused_and_repeated_publishes_have_no_number_and_differ(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "full", "b"), publish("again"), publish("c"))
    files.outcomes(0, (2, 1, -3), (3, 0, -13), queues=[(1, 4, "jobs")])

    assert short(files.path)[1:] == [
        (2, "published", uid_of(1, 1), "done"),
        (2, "published", None, "queue_full"),
        (2, "published", uid_of(1, 2), "done"),
        (3, "published", None, "repeated"),
        (4, "published", uid_of(1, 3), "done"),
    ]


def test_moved_message_leaves_one_queue_and_is_published_to_the_other(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    to_other = publish("a", "b", queue="other")
    files.write(
        JOBS,
        publish("a", "b", "c", "d"),
        Ack("jobs", 1, [1, 2], [(0, 0)] * 2, publishes=[to_other], moved=True),
        Ack("jobs", 1, [3, 9], [(0, 0)] * 2, moved=True),
        Requeued("jobs", 1, [4]),
        publish("later", queue="other"),
    )
    files.outcomes(0, (4, 1, Result.UNKNOWN), queues=[(1, 5, "jobs"), (3, 4, "other")])

    assert short(files.path)[5:] == [
        (3, "moved", uid_of(1, 1), "done"),
        (3, "moved", uid_of(1, 2), "done"),
        (3, "published", uid_of(3, 1), "done"),
        (3, "published", uid_of(3, 2), "done"),
        (4, "moved", uid_of(1, 3), "done"),
        (4, "moved", uid_of(1, 9), "unknown"),
        (5, "requeued", uid_of(1, 4), "done"),
        (6, "published", uid_of(3, 3), "done"),
    ]
    bodies = [row["body"] for row in rows_of(files.path, wanted=EVERYTHING) if row["queue"] == "other"]
    assert bodies == [b"a", b"b", b"later"]


def test_ends_of_claims_are_told_apart(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    client = broker.client()
    uids = [client.publish("q") for _ in range(4)]
    for epoch, source in enumerate(("settled", "published", "released", "lapsed"), 1):
        client.call("STAGE", "q", source=source, epoch=epoch, count=1, timeout=10)
    client.call("SETTLE", "q", source="settled", epoch=1)
    client.call("SLICE", "q", source="published", epoch=2, reader="r", batch=1)
    client.call("UNSTASH", "q", stashes=[], writer="w", epoch=1, reader="r")
    client.call("RELEASE", "q", source="released")
    broker.advance(11)
    broker.flush()
    broker.close()

    rows = rows_of(tmp_path / "data")
    told = [(row["event"], row["uid"], row["outcome"], row["reason"]) for row in rows]

    assert [row for row in told if row[0] in ("acked", "released")] == [
        ("acked", uids[0], "done", None),
        ("released", uids[2], "done", "returned"),
        ("released", uids[3], "done", "timeout"),
        ("acked", uids[1], "done", None),
    ]


def test_attempts_that_do_not_count_are_dropped_by_the_entry_that_publishes_the_others(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    client = broker.client()
    for name, count in (("failed", 2), ("counts", 3), ("twice", 1)):
        client.call("STASH", "q", stash=name, messages=["x"] * count, writer="w", epoch=1)
    client.call("UNSTASH", "q", stashes=[("counts", 3)], writer="w", epoch=1)
    broker.advance(0.1)
    broker.flush()
    broker.close()

    rows = rows_of(tmp_path / "data", wanted=EVERYTHING)
    told = [(row["event"], row["number"], row["outcome"]) for row in rows if row["event"] in ("published", "dropped")]

    assert sorted(told) == [
        *[("dropped", number, "done") for number in (1, 2, 6)],
        *[("published", number, "done") for number in (3, 4, 5)],
    ]
    assert len({row["index"] for row in rows if row["event"] in ("published", "dropped")}) == 1


def test_queue_that_is_made_by_a_publish_of_nothing_has_its_index_as_id(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    client = broker.client()
    client.call("UNSTASH", "q", stashes=[], writer="w", epoch=1)
    uid = client.publish("q")
    broker.advance(0.1)
    broker.flush()
    broker.close()

    assert [row["uid"] for row in rows_of(tmp_path / "data") if row["event"] == "published"] == [uid]


def test_message_acknowledged_without_a_delivery_is_cancelled(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    client = broker.client()
    waiting, worked = (client.publish("q") for _ in range(2))
    client.call("ACK", "q", uid=waiting)
    client.fetch("q")
    client.call("ACK", "q", uid=worked)
    broker.advance(0.1)
    broker.flush()
    broker.close()

    told = [(row["event"], row["uid"], row["outcome"]) for row in rows_of(tmp_path / "data") if row["uid"]]

    assert told[2:] == [("cancelled", waiting, "done"), ("delivered", worked, "done"), ("acked", worked, "done")]


def test_stashed_message_is_published_with_its_stash_or_never(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(
        JOBS,
        Stash("jobs", [Draft(b"lost"), Draft(b"lost")], "lost attempt", 0, 1000, worker=4),
        Stash("jobs", [Draft(b"x", 5, delay_ms=90_000), Draft(b"y")], "attempt", 0, 1000),
        publish("between"),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Stash("jobs", [Draft(b"x")], "again", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("again", 1)], "writer", 1),
        Unstash("jobs", UnstashAction.LAPSED, [("lost attempt", 0)]),
        publish("later"),
    )
    files.outcomes(0, (5, 2, 3), (7, WHOLE - 1, 6), (8, WHOLE - 2, 1), queues=[(1, 8, "jobs")])

    rows = rows_of(files.path, wanted=EVERYTHING)

    told = [(row["index"], row["event"], row["number"], row["outcome"]) for row in rows]
    assert told[1:] == [
        (2, "stashed", 1, "done"), (2, "stashed", 2, "done"),
        (3, "stashed", 3, "done"), (3, "stashed", 4, "done"),
        (4, "published", 5, "done"),
        (5, "published", 3, "done"), (5, "published", 4, "done"),
        (6, "stashed", 6, "done"),
        (7, "dropped", 6, "done"),
        (8, "dropped", 1, "done"), (8, "dropped", 2, "done"),
        (9, "published", 7, "done"),
    ]  # fmt: skip
    stashed, revealed = rows[3], rows[6]
    assert [stashed[name] for name in ("priority", "size", "body")] == [5, 1, b"x"]
    assert (stashed["until"] - stashed["at"]).total_seconds() == 90
    assert [revealed[name] for name in ("uid", "body", "size", "until")] == [uid_of(1, 3), None, None, None]


def test_published_and_dropped_stashes_differ(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", keep=Keep(1 << 40, 1 << 40))
    client = broker.client()
    for name, count in (("attempt", 2), ("again", 1), ("lost", 1)):
        client.call("STASH", "q", stash=name, messages=["x"] * count)
    for stash in (("attempt", 2), ("again", 1)):
        client.call("UNSTASH", "q", writer="w", epoch=1, stashes=[stash])
    client.call("UNSTASH", "q", stashes=[("lost", 1)])
    uids = [client.call("FET", "q")["uid"] for _ in range(2)]
    broker.advance(0.1)
    broker.flush()
    broker.close()

    rows = rows_of(tmp_path / "data")
    told = [(row["event"], row["uid"], row["outcome"]) for row in rows if row["event"] in ("published", "dropped")]

    assert told[:2] == [("published", uid, "done") for uid in uids]
    assert [(event, outcome) for event, _, outcome in told[2:]] == [("dropped", "done")] * 2
    assert len({uid for _, uid, _ in told}) == 4


@pytest.mark.parametrize("more", [0, 2])
def test_note_about_a_missing_item_concerns_no_other_entry(tmp_path: Path, more: int) -> None:
    files = JournalFiles(tmp_path / "data")
    renewal = Claim("jobs", 1, ClaimAction.RENEWED, "s", until_ms=9)
    files.write(JOBS, publish("a"), renewal, *[publish("innocent")] * more)
    files.outcomes(0, (3, 0, Result.EPOCH_EXPIRED), queues=[(1, 2 + more, "jobs")])

    assert short(files.path)[1:] == [
        (2, "published", uid_of(1, 1), "done"),
        *((4 + place, "published", uid_of(1, 2 + place), "done") for place in range(more)),
    ]


def test_queue_exists_although_its_creation_was_skipped(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, (1, WHOLE, Result.SET_ASIDE), queues=[(1, 2, "jobs")])

    assert short(files.path)[1:] == [(2, "published", uid_of(1, 1), "done")]


def test_unknown_end_is_open(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("b"))

    assert short(files.path)[1:] == [
        (2, "published", uid_of(1, 1), "done"),
        (3, "published", uid_of(1, 2), "open"),
    ]
    assert History([files.path]).spans(cores=1, settled_only=True)[0].stretches[-1].last_index == 2


def test_missing_entries_are_open_and_uids_continue_at_the_next_counters(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("refused"), publish("b"))
    files.write(publish("c"))
    files.outcomes(4, queues=[(1, 4, "jobs")])
    files.write(publish("d"))
    files.outcomes(5, queues=[(1, 5, "jobs")])
    files.write(publish("e"))

    told = [(row["index"], row["uid"], row["outcome"]) for row in rows_of(files.path)]

    assert [(index, outcome) for index, _, outcome in told] == [
        (1, "done"), (2, "done"), (3, "open"), (4, "open"), (5, "done"), (6, "done"), (7, "open"),
    ]  # fmt: skip
    assert [uid for _, uid, _ in told[4:]] == [None, uid_of(1, 4), uid_of(1, 5)]


def test_uids_are_known_from_the_first_counters_of_a_journal_on(
    tmp_path: Path,
) -> None:
    files = JournalFiles(tmp_path / "data", first_index=50)
    files.write(publish("a"), publish("b"))
    files.outcomes(40, queues=[(7, 12, "jobs")])
    files.write(publish("c"))
    files.seal()
    files.outcomes(51, queues=[(7, 13, "jobs")])

    assert [row["uid"] for row in rows_of(files.path)] == [None, None, uid_of(7, 12)]
