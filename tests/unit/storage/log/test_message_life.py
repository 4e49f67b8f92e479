"""MessageLife: the life of one message in the log and the journal; tests/property/test_message_life.py has any life."""

from pathlib import Path

import pytest

from tests.helpers.journal.files import AT_MS, JOBS, JournalFiles, publish
from wakeq.protocol.log.entries import (
    Ack,
    DeleteQueue,
    Delivered,
    Draft,
    Extended,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Result,
)
from wakeq.protocol.log.format import HEADER_BYTES
from wakeq.storage.log import message_life
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.log.message_life import MessageLife

# The entry that made the queue.
JOBS_ID = 1


def told(
    files: JournalFiles, number: int, *, queue: str = "jobs", queue_id: int = JOBS_ID, living: bool = False
) -> MessageLife:
    life = MessageLife(HistoryFiles(files.log), queue, queue_id, number, is_living=living)
    while not life.step():
        pass
    return life


def words(life: MessageLife) -> list[str]:
    return [event.event for event in life.events]


def delivered(number: int) -> Delivered:
    return Delivered("jobs", JOBS_ID, [number], [AT_MS + 60_000], number, worker=7)


def acked(number: int) -> Ack:
    return Ack("jobs", JOBS_ID, [number], [(1, number)], worker=7)


def failed(number: int) -> Released:
    return Released("jobs", JOBS_ID, [number], [0], [(1, number)], Reason.NACK, "boom")


def test_finished_message_is_found_across_segments_of_journal_and_log(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "b"))
    files.outcomes(0, queues=[(JOBS_ID, 3, "jobs")])
    files.seal()
    files.write(delivered(2), failed(2))
    files.outcomes(2, queues=[(JOBS_ID, 3, "jobs")])
    files.seal()
    files.log.cut_below(3)
    files.write(delivered(2), acked(2), acked(1))
    files.outcomes(4, queues=[(JOBS_ID, 3, "jobs")])

    life = told(files, 2)

    assert words(life) == ["published", "delivered", "failed", "delivered", "acknowledged"]
    assert [event.worker for event in life.events] == [9, 7, 0, 7, 7]
    assert life.events[2].error == "boom"
    assert (life.draft, life.is_complete, life.since_ms) == (Draft(b"b"), True, AT_MS + 1000)


def test_refused_messages_get_no_number_and_refused_entries_are_no_events(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "refused", "b"), publish("nothing"), publish("c"), acked(2), delivered(2), acked(2))
    notes = (2, 1, int(Result.TOO_LARGE)), (3, -1, int(Result.QUEUE_FULL)), (5, 0, int(Result.STALE))
    files.outcomes(0, *notes, queues=[(JOBS_ID, 4, "jobs")])

    found = [told(files, number) for number in (2, 3)]

    assert [life.draft and life.draft.body for life in found] == [b"b", b"c"]
    assert words(found[0]) == ["published", "delivered", "acknowledged"]


def test_count_that_contradicts_the_outcomes_finds_no_publication(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), publish("b"), delivered(2))
    files.outcomes(0, queues=[(JOBS_ID, 9, "jobs")])

    life = told(files, 2)

    assert (life.draft, words(life), life.is_complete) == (None, ["delivered"], False)


def test_message_whose_publication_is_not_kept_has_a_life_that_is_not_complete(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])
    files.seal()
    files.write(delivered(1), acked(1))
    files.outcomes(2, queues=[(JOBS_ID, 2, "jobs")])
    files.log.cut_below(3)
    assert files.log.journal is not None
    files.log.journal.clear()

    life = told(files, 1)

    assert (words(life), life.is_complete, life.since_ms) == (["delivered", "acknowledged"], False, AT_MS + 3000)


def test_gap_in_the_history_makes_a_life_not_complete(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])
    for entry in (delivered(1), failed(1), delivered(1)):
        files.seal()
        files.write(entry)
    files.outcomes(2, queues=[(JOBS_ID, 2, "jobs")], lists_all=False)
    files.log.cut_below(4)
    (tmp_path / "data/journal" / f"raft.log.{3:019d}").unlink()

    life = told(files, 1)

    assert (words(life), life.is_complete) == (["published", "failed", "delivered"], False)


@pytest.mark.parametrize(
    ("entry", "word"), [(PurgeQueue("jobs"), "purged"), (DeleteQueue("jobs"), "deleted with its queue")]
)
def test_end_of_the_queue_is_the_end_of_its_messages(
    tmp_path: Path, entry: PurgeQueue | DeleteQueue, word: str
) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), PurgeQueue("other"), entry, publish("b"), delivered(1))
    files.outcomes(0, queues=[(5, 2, "jobs")])

    life = told(files, 1)

    assert (words(life), life.is_complete) == (["published", word], True)


def test_end_of_a_living_message_was_refused(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"), acked(1), delivered(1))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])

    assert words(told(files, 1, living=True)) == ["published", "delivered"]


def test_uid_of_another_queue_tells_nothing(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, Publish("secret", [Draft(b"secret")]), publish("a"), delivered(1))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs"), (2, 2, "secret")])

    foreign = told(files, 1, queue="jobs", queue_id=2)

    assert (foreign.events, foreign.draft) == ([], None)
    assert told(files, 1, queue="secret", queue_id=2).draft == Draft(b"secret")


def test_uid_of_a_queue_that_a_follow_up_made_is_of_no_message_here(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    both = [publish("of jobs"), Publish("fresh", [Draft(b"of fresh")])]
    files.write(JOBS, publish("a"), Ack("jobs", JOBS_ID, [1], [(1, 1)], both))
    files.outcomes(0, queues=[(JOBS_ID, 3, "jobs"), (3, 2, "fresh")])

    assert told(files, 1, queue="jobs", queue_id=3).draft is None
    assert told(files, 1, queue="fresh", queue_id=3).draft == Draft(b"of fresh")


def test_entry_with_a_wrong_checksum_is_not_told(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])
    files.seal()
    files.write(acked(1))
    files.outcomes(2, queues=[(JOBS_ID, 2, "jobs")], lists_all=False)
    files.seal()
    path = tmp_path / "data/consensus" / f"raft.log.{3:019d}"
    data = bytearray(path.read_bytes())
    # In the payload of the acknowledgement, behind its moment.
    data[HEADER_BYTES + 28 + 4] ^= 1
    path.write_bytes(data)

    life = told(files, 1)

    assert (words(life), life.is_complete) == (["published"], False)


def test_entry_whose_outcome_is_not_written_down_is_not_believed(tmp_path: Path) -> None:
    """A refused publish and a refused acknowledgement look like others until their outcomes are written down."""
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("refused"), publish("a"))
    early = told(files, 1)
    files.outcomes(0, (2, -1, int(Result.QUEUE_FULL)), queues=[(JOBS_ID, 2, "jobs")])
    files.write(delivered(1), acked(1))
    later = told(files, 1)
    files.outcomes(3, (5, 0, int(Result.STALE)), queues=[(JOBS_ID, 2, "jobs")], lists_all=False)
    whole = told(files, 1)

    assert (early.draft, words(early), early.is_complete) == (None, [], False)
    assert (later.draft, words(later), later.is_complete) == (Draft(b"a"), ["published"], False)
    assert (whole.draft, words(whole), whole.is_complete) == (Draft(b"a"), ["published", "delivered"], True)


def test_gap_in_the_outcomes_finds_no_publication_behind_it(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])
    files.write(publish("b"))
    files.write(publish("c"))
    files.outcomes(3, queues=[(JOBS_ID, 4, "jobs")], lists_all=False)

    assert told(files, 1).draft == Draft(b"a")
    assert told(files, 3).draft is None


def test_very_many_events_are_folded_and_cut_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_life, "EVENTS_MAX", 10)
    files = JournalFiles(tmp_path / "data")
    extended = Extended("jobs", JOBS_ID, [1], [AT_MS])
    files.write(JOBS, publish("a"), delivered(1), *[extended] * 50, *[failed(1), delivered(1)] * 20)
    files.outcomes(0, queues=[(JOBS_ID, 2, "jobs")])

    life = told(files, 1, living=True)

    assert (len(life.events), life.left_out) == (10, 33)
    assert words(life)[:4] == ["published", "delivered", "extended", "failed"]
    assert (life.events[2].times, life.events[2].at_ms) == (50, AT_MS + 1000 * 53)
    assert words(life)[-2:] == ["failed", "delivered"]


def test_blocks_without_the_number_are_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a", "b"))
    files.outcomes(0, queues=[(JOBS_ID, 3, "jobs")])
    for _ in range(5):
        files.seal()
        files.write(*[delivered(1)] * 50)
    files.seal()
    files.write(acked(2))
    files.outcomes(2, queues=[(JOBS_ID, 3, "jobs")], lists_all=False)
    walked = []
    walk = MessageLife._records
    monkeypatch.setattr(
        MessageLife, "_records", lambda self, data, *more: walked.append(len(data)) or walk(self, data, *more)
    )

    life = told(files, 2)

    assert (words(life), len(walked)) == (["published", "acknowledged"], 2)


def test_search_goes_on_in_pieces_and_can_be_ended(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    for _ in range(3):
        files.seal()
        files.write(delivered(1))
    life = MessageLife(HistoryFiles(files.log), "jobs", JOBS_ID, 1, is_living=True)

    steps = [life.step() for _ in range(3)]
    life.close()

    assert steps == [False] * 3
    assert life.step()
