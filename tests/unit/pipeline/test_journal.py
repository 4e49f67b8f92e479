"""The journal's reader: one row an event, from files live, stopped, copied, torn, damaged, old, or of several nodes."""

import shutil
from itertools import permutations
from pathlib import Path

import pytest

from tests.helpers.broker import Broker
from tests.helpers.journal_files import CLUSTER, EVERYTHING, JournalFiles, rows_of
from wakeq.pipeline import journal_files, journal_plan
from wakeq.pipeline.journal_plan import History
from wakeq.pipeline.journal_schema import Wanted
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
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
from wakeq.protocol.errors import DamagedFile, HistoryGone, StorageError
from wakeq.protocol.outcomes import WHOLE
from wakeq.protocol.uid import uid_of
from wakeq.storage.journal import Keep

JOBS = CreateQueue("jobs", Policies())


def publish(*bodies: str, queue: str = "jobs") -> Publish:
    return Publish(queue, [Draft(body.encode()) for body in bodies], door=1, worker=9)


def short(path: Path, *more: Path) -> list[tuple[object, ...]]:
    return [(row["index"], row["event"], row["uid"], row["outcome"]) for row in rows_of(path, *more)]


def test_each_kind_of_entry_is_an_event(tmp_path: Path) -> None:
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


def test_an_acknowledgement_that_is_the_delivery_too_is_two_events(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "b"), Ack("jobs", 1, [1, 2], [(0, 0)] * 2, delivered=True))
    files.outcomes(0, (3, 1, -1), queues=[(1, 3, "jobs")])

    assert short(files.path)[3:] == [
        (3, "delivered", uid_of(1, 1), "done"),
        (3, "delivered", uid_of(1, 2), "unknown"),
        (3, "acked", uid_of(1, 1), "done"),
        (3, "acked", uid_of(1, 2), "unknown"),
    ]


def test_what_was_refused_has_no_number_and_is_told_apart(tmp_path: Path) -> None:
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


def test_what_an_operator_moves_leaves_one_queue_and_is_published_to_the_other(tmp_path: Path) -> None:
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


def test_what_is_acknowledged_and_never_was_handed_out_is_cancelled(tmp_path: Path) -> None:
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


def test_what_is_put_aside_is_published_when_its_stash_is_and_never_if_it_is_dropped(tmp_path: Path) -> None:
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
    repeated = (7, WHOLE, Result.REPEATED)
    files.outcomes(0, (5, 2, 3), repeated, (7, 1, 6), (8, 2, 1), queues=[(1, 8, "jobs")])

    rows = rows_of(files.path, wanted=EVERYTHING)

    told = [(row["index"], row["event"], row["number"], row["outcome"]) for row in rows]
    assert told[1:] == [
        (2, "stashed", 1, "done"), (2, "stashed", 2, "done"),
        (3, "stashed", 3, "done"), (3, "stashed", 4, "done"),
        (4, "published", 5, "done"),
        (5, "published", 3, "done"), (5, "published", 4, "done"),
        (6, "stashed", 6, "done"),
        (7, "published", 6, "repeated"),
        (8, "dropped", 1, "done"), (8, "dropped", 2, "done"),
        (9, "published", 7, "done"),
    ]  # fmt: skip
    stashed, revealed = rows[3], rows[6]
    assert [stashed[name] for name in ("priority", "size", "body")] == [5, 1, b"x"]
    assert (stashed["until"] - stashed["at"]).total_seconds() == 90
    assert [revealed[name] for name in ("uid", "body", "size", "until")] == [uid_of(1, 3), None, None, None]


def test_a_broker_tells_which_stashes_it_published_and_which_came_again(tmp_path: Path) -> None:
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
    assert [(event, outcome) for event, _, outcome in told[2:]] == [("published", "repeated"), ("dropped", "done")]
    assert len({uid for _, uid, _ in told}) == 4


@pytest.mark.parametrize("more", [0, 2])
def test_a_note_about_an_item_that_an_entry_does_not_have_is_about_no_other_entry(tmp_path: Path, more: int) -> None:
    files = JournalFiles(tmp_path / "data")
    renewal = Claim("jobs", 1, ClaimAction.RENEWED, "s", until_ms=9)
    files.write(JOBS, publish("a"), renewal, *[publish("innocent")] * more)
    files.outcomes(0, (3, 0, Result.EPOCH_EXPIRED), queues=[(1, 2 + more, "jobs")])

    assert short(files.path)[1:] == [
        (2, "published", uid_of(1, 1), "done"),
        *((4 + place, "published", uid_of(1, 2 + place), "done") for place in range(more)),
    ]


def test_a_queue_is_there_although_its_creation_was_set_aside(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, (1, WHOLE, Result.SET_ASIDE), queues=[(1, 2, "jobs")])

    assert short(files.path)[1:] == [(2, "published", uid_of(1, 1), "done")]


def test_the_end_of_which_nothing_is_known_is_open(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("b"))

    assert short(files.path)[1:] == [
        (2, "published", uid_of(1, 1), "done"),
        (3, "published", uid_of(1, 2), "open"),
    ]
    assert History([files.path]).spans(cores=1, settled_only=True)[0].stretches[-1].last_index == 2


def test_what_no_file_tells_of_is_open_and_uids_go_on_behind_the_next_note_of_the_counters(tmp_path: Path) -> None:
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


def test_where_the_journal_begins_in_the_middle_uids_are_known_from_the_first_note_of_the_counters_on(
    tmp_path: Path,
) -> None:
    files = JournalFiles(tmp_path / "data", first_index=50)
    files.write(publish("a"), publish("b"))
    files.outcomes(40, queues=[(7, 12, "jobs")])
    files.write(publish("c"))
    files.seal()
    files.outcomes(51, queues=[(7, 13, "jobs")])

    assert [row["uid"] for row in rows_of(files.path)] == [None, None, uid_of(7, 12)]


def test_a_torn_tail_ends_at_the_last_right_record(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), publish("b"))
    files.outcomes(0)
    log = files.path / "consensus" / "raft.log"
    whole = log.read_bytes().rstrip(b"\0")

    log.write_bytes(whole[:-1])

    assert [row["index"] for row in rows_of(files.path)] == [1, 2]


def test_a_damaged_block_of_a_sealed_segment_says_so(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a" * 1000))
    files.seal()
    files.outcomes(0)
    path = next((files.path / "consensus").glob("raft.log.0*"))
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedFile, match="the block of entry 1"):
        rows_of(files.path)


def test_a_log_without_outcomes_as_older_releases_left_it_is_read_with_what_it_tells(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data", first_index=50)
    files.write(publish("a"), Delivered("jobs", 7, [3], [99_000], 1), PurgeQueue("jobs"), publish("b"))

    assert short(files.path) == [
        (50, "published", None, "open"),
        (51, "delivered", uid_of(7, 3), "open"),
        (52, "purged", None, "open"),
        (53, "published", uid_of(52, 1), "open"),
    ]


def test_history_is_one_over_sealed_segments_the_journal_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_plan, "SPAN_BYTES_MIN", 1)
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.seal()
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("b"))
    files.seal()
    files.write(publish("c"))
    files.outcomes(2, queues=[(1, 4, "jobs")])

    files.log.cut_below(3)

    assert [path.name for path in (files.path / "journal").glob("raft.log.*")] == [f"raft.log.{1:019d}"]
    assert len(History([files.path]).spans(cores=1000)) > 1
    assert [row["uid"] for row in rows_of(files.path, cores=1000)][1:] == [uid_of(1, number) for number in (1, 2, 3)]


def test_several_nodes_tell_each_entry_once(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", node=2)
    for files in (one, two):
        files.write(JOBS, publish("a"))
    one.seal()
    for files in (one, two):
        files.write(publish("b"))
    two.seal()
    one.write(publish("c"))
    one.outcomes(0)
    two.outcomes(0)

    assert [row["index"] for row in rows_of(one.path, two.path)] == [1, 2, 3, 4]
    assert [row["index"] for row in rows_of(two.path, one.path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_only_a_lost_leader_had_is_not_told_in_place_of_what_was_committed(
    tmp_path: Path, is_sealed: bool
) -> None:
    lost, winner, third = (JournalFiles(tmp_path / str(node), node=node) for node in (1, 2, 3))
    for files in (lost, winner, third):
        files.write(JOBS, publish("a"))
    lost.outcomes(0, queues=[(1, 2, "jobs")])
    lost.write(publish("ghost"), publish("ghost"), publish("ghost"))
    for files in (winner, third):
        files.write(publish("b"), term=2)
    third.outcomes(0, queues=[(1, 3, "jobs")])
    winner.write(publish("c"), term=2)
    winner.outcomes(0, queues=[(1, 4, "jobs")])
    winner.write(publish("open"), term=2)
    if is_sealed:
        lost.seal()
        third.seal()

    expected = rows_of(winner.path, wanted=EVERYTHING)

    assert [(row["body"], row["outcome"]) for row in expected[1:]] == [
        (b"a", "done"), (b"b", "done"), (b"c", "done"), (b"open", "open"),
    ]  # fmt: skip
    for order in permutations([lost.path, winner.path, third.path]):
        assert rows_of(*order, wanted=EVERYTHING) == expected
    assert rows_of(lost.path, third.path, wanted=EVERYTHING) == expected[:3], "the lost one has the lower term"


def test_what_one_node_is_still_writing_and_another_does_not_have_any_more_is_told(tmp_path: Path) -> None:
    slow, fast = (JournalFiles(tmp_path / str(node), node=node) for node in (1, 2))
    for files in (slow, fast):
        files.write(JOBS, publish("a"))
    fast.seal()
    for files in (slow, fast):
        files.write(publish("b"))
    fast.seal()
    fast.write(publish("c"))
    slow.outcomes(0, queues=[(1, 3, "jobs")])
    fast.outcomes(0, queues=[(1, 4, "jobs")])
    next((fast.path / "consensus").glob("raft.log.*1")).unlink()

    assert [row["index"] for row in rows_of(slow.path, fast.path)] == [1, 2, 3, 4]


def test_what_only_a_directory_without_outcomes_has_is_told_as_far_as_it_is_sealed(tmp_path: Path) -> None:
    old, new = JournalFiles(tmp_path / "old"), JournalFiles(tmp_path / "new", node=2, first_index=3)
    old.write(JOBS, publish("a"))
    old.seal()
    old.write(publish("ghost"))
    new.write(publish("b"))
    new.outcomes(2, queues=[(1, 3, "jobs")])

    for order in permutations([old.path, new.path]):
        rows = rows_of(*order, wanted=EVERYTHING)
        assert [(row["body"], row["outcome"]) for row in rows] == [(None, "open"), (b"a", "open"), (b"b", "done")]


def test_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", cluster=CLUSTER[::-1])

    with pytest.raises(StorageError, match="different clusters"):
        History([one.path, two.path])


def test_a_segment_that_is_sealed_or_moved_while_it_is_read_is_found_again(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    segment = History([files.path]).stretches[0].segment

    files.seal()
    files.write(publish("b"))
    files.log.cut_below(3)

    assert segment.open().path.parent.name == "journal"
    shutil.rmtree(files.path / "journal")
    with pytest.raises(HistoryGone, match="removed meanwhile"):
        segment.open()


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_segment_that_is_sealed_between_two_looks_for_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    segment = History([files.path]).stretches[0].segment
    looks, opened = 0, journal_files.OpenSegment.__init__

    def sealed_meanwhile(self: journal_files.OpenSegment, path: Path) -> None:
        nonlocal looks
        looks += 1
        if looks == look:
            files.seal()
        opened(self, path)

    monkeypatch.setattr(journal_files.OpenSegment, "__init__", sealed_meanwhile)

    assert segment.open().path.name == f"raft.log.{1:019d}"


def test_the_first_segment_is_found_although_it_is_sealed_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0)
    exists, active = Path.exists, files.path / "consensus" / "raft.log"
    seals = [files.seal]

    def exists_after_a_seal(path: Path) -> bool:
        if path == active and seals:
            seals.pop()()
            files.write(publish("b"))
        return exists(path)

    monkeypatch.setattr(Path, "exists", exists_after_a_seal)

    assert History([files.path]).first_index == 1


def test_queue_and_time_choose_rows(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), publish("b", queue="other"), publish("c"))
    files.outcomes(0)
    at = {row["index"]: int(row["at"].timestamp() * 1000) for row in rows_of(files.path)}

    chosen = rows_of(files.path, wanted=Wanted(queue="jobs", since_ms=at[2], until_ms=at[4]))

    assert [row["index"] for row in chosen] == [2]
    assert rows_of(files.path, wanted=Wanted(queue="nowhere")) == []


def test_segments_that_are_of_another_time_are_not_read(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS)
    for after in range(6):
        files.write(publish("a"))
        files.outcomes(after + (after > 0), queues=[(1, 2 + after, "jobs")])
        files.seal()
    everything = rows_of(files.path)
    at = {row["index"]: int(row["at"].timestamp() * 1000) for row in everything}

    chosen = Wanted(since_ms=at[4], until_ms=at[6])
    (span,) = History([files.path]).spans(cores=1, since_ms=at[4], until_ms=at[6])

    assert [stretch.first_index for stretch in span.stretches] == [3, 4, 5], "entry 3 may be of the same moment as 4"
    assert rows_of(files.path, wanted=chosen) == [row for row in everything if 4 <= row["index"] < 6]
    assert rows_of(files.path, wanted=Wanted(since_ms=at[7] + 1)) == []
    assert rows_of(files.path, wanted=Wanted(until_ms=at[1])) == []


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no data directory"):
        History([tmp_path])
