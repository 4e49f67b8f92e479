"""BrokerFiles: the history over HTTP is that of the directory, whatever happens to the files meanwhile."""

import pickle
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.journal.files import CLUSTER, EVERYTHING, JOBS, JournalFiles, publish, rows_of
from tests.helpers.journal.random_life import SEGMENT_BYTES, Life, broker_of_one
from tests.helpers.journal.served import Served, log_in
from tests.helpers.network.certificates import Authority
from wakeq.actors.sessions.access import Gate
from wakeq.client.admin import AdminClient
from wakeq.pipeline.journal import broker as journal_broker
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.journal import walk
from wakeq.pipeline.journal.broker import BrokerFiles
from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.table import events_of, period_of
from wakeq.protocol.access import Book, Grant, Right, digest_of
from wakeq.protocol.errors import (
    BadSettings,
    BrokerUnreachable,
    Busy,
    Forbidden,
    HistoryGone,
    Refused,
    StorageError,
    Unauthorized,
)
from wakeq.protocol.log.outcomes import Outcomes

READER, OTHER = "reader-secret", "other-secret"


@pytest.fixture
def files(tmp_path: Path) -> JournalFiles:
    """A history of two sealed segments, one of them in the journal, and an active one."""
    files = JournalFiles(tmp_path / "data")
    files.write(JOBS, publish("a"))
    files.seal()
    files.outcomes(0, queues=[(1, 2, "jobs")])
    files.write(publish("b"))
    files.seal()
    files.write(publish("c"))
    files.outcomes(2, queues=[(1, 4, "jobs")])
    files.log.cut_below(3)
    return files


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The ranges that are read, as paths and numbers of bytes."""
    asked, read_range = list[tuple[str, int]](), AdminClient.read_range

    def note(client: AdminClient, path: str, start: int, size: int, **query: Any) -> tuple[bytes, int]:
        data, of_file = read_range(client, path, start, size, **query)
        asked.append((path, len(data)))
        return data, of_file

    monkeypatch.setattr(AdminClient, "read_range", note)
    return asked


def gate() -> Gate:
    rights = {READER: ("*", Right.FETCH), OTHER: ("jobs", Right.FETCH)}
    grants = [
        Grant(right.value, digest_of(token).hex(), (queues,), (right,), datetime.now(UTC))
        for token, (queues, right) in rights.items()
    ]
    return Gate(Book(grants), lambda: 0)


def rows_in(spans: Any) -> list[dict[str, Any]]:
    return [row for span in spans for batch in events_of(span, EVERYTHING) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(4))
def test_history_over_http_is_that_of_the_directory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_plan, "SPAN_BYTES_MIN", SEGMENT_BYTES)
    with memory_folder() as folder:
        life = Life(broker_of_one(folder / "data"), random.Random(seed))
        for _ in range(200):
            life.step()
        life.end()
        rows = rows_of(folder / "data", wanted=EVERYTHING)
        since_ms = int(rows[len(rows) // 2]["at"].timestamp() * 1000)
        log = log_in(folder / "data")

        with Served(log) as served:
            assert len(History([served.url]).spans(cores=1000)) > 1
            assert rows_of(served.url, wanted=EVERYTHING, cores=1000) == rows
            directory, remote = History([folder / "data"]), History([served.url])
            assert rows_in(remote.spans(cores=None, since_ms=since_ms)) == rows_in(
                directory.spans(cores=None, since_ms=since_ms)
            )
            assert period_of(remote) == period_of(directory)
        log.close()


def test_history_is_one_over_the_journal_the_log_and_the_active_segment(files: JournalFiles) -> None:
    with Served(files.log) as served:
        rows = rows_of(served.url, wanted=EVERYTHING)

    assert rows == rows_of(files.path, wanted=EVERYTHING)
    assert [row["body"] for row in rows[1:]] == [b"a", b"b", b"c"]


def test_nodes_of_a_cluster_are_read_together(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", node=2)
    for files in (one, two):
        files.write(JOBS, publish("a"))
    one.seal()
    for files in (one, two):
        files.write(publish("b"))
    one.write(publish("c"))
    one.outcomes(0)
    two.outcomes(0)

    with Served(one.log) as first, Served(two.log) as second:
        assert rows_of(first.url, second.url) == rows_of(one.path, two.path)
        assert rows_of(second.url, str(one.path)) == rows_of(one.path, two.path)


def test_segment_sealed_and_moved_after_the_plan_is_read(files: JournalFiles) -> None:
    with Served(files.log) as served:
        spans = History([served.url]).spans(cores=1)
        files.seal()
        files.write(publish("d"))
        files.log.cut_below(5)

        rows = rows_in(spans)

    assert [row["body"] for row in rows[1:]] == [b"a", b"b", b"c"]


def test_segment_that_is_removed_after_the_plan_is_gone(files: JournalFiles) -> None:
    with Served(files.log) as served:
        spans = History([served.url]).spans(cores=1)
        assert files.log.journal is not None
        files.log.journal.clear()

        with pytest.raises(HistoryGone, match="the segment from entry 1 was removed"):
            rows_in(spans)


def test_entries_written_while_the_active_segment_is_read_are_no_damage(
    files: JournalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "PIECE_BYTES", 700)
    for number in range(20):
        files.write(publish(f"{number}" * 100))
    read_range = AdminClient.read_range

    def publish_meanwhile(client: AdminClient, path: str, start: int, size: int, **query: Any) -> tuple[bytes, int]:
        if files.log.last_index < 60:
            files.write(publish("meanwhile" * 30), publish("too" * 30))
        return read_range(client, path, start, size, **query)

    with Served(files.log) as served:
        spans = History([served.url]).spans(cores=1)
        monkeypatch.setattr(AdminClient, "read_range", publish_meanwhile)
        rows = rows_in(spans)

    indexes = [row["index"] for row in rows]
    assert indexes == list(range(1, len(rows) + 1))
    assert len(rows) >= 60


def test_unwritten_end_of_the_active_segment_is_not_served(files: JournalFiles) -> None:
    active = files.path / "consensus" / "raft.log"
    with active.open("r+b") as file:
        file.seek(files.log._active.end)
        file.write(b"half a record")

    with Served(files.log) as served:
        rows = rows_of(served.url)

    assert [row["index"] for row in rows] == [1, 2, 3, 4]


def test_span_travels_to_another_process_with_its_token(files: JournalFiles) -> None:
    with Served(files.log, gate()) as served:
        spans = History([BrokerFiles.at(served.url, token=READER)]).spans(cores=1)

        copies = pickle.loads(pickle.dumps(spans))

        assert rows_in(copies) == rows_of(files.path, wanted=EVERYTHING)
    assert READER not in repr(spans)


@pytest.mark.parametrize(("token", "error"), [(None, Unauthorized), ("wrong-secret", Unauthorized), (OTHER, Forbidden)])
def test_token_without_the_right_to_read_all_queues_is_refused(
    files: JournalFiles, monkeypatch: pytest.MonkeyPatch, token: str | None, error: type[Exception]
) -> None:
    monkeypatch.delenv("WAKEQ_TOKEN", raising=False)
    monkeypatch.delenv("WAKEQ_TOKEN_FILE", raising=False)
    with Served(files.log, gate()) as served, pytest.raises(error) as refused:
        History([BrokerFiles.at(served.url, token=token)])

    assert token is None or token not in str(refused.value)


def test_token_comes_from_a_file_or_the_environment(
    files: JournalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{READER}\n")
    with Served(files.log, gate()) as served:
        from_file = History([BrokerFiles.at(served.url, token_file=str(token_file))])
        monkeypatch.setenv("WAKEQ_TOKEN", READER)
        from_environment = History([served.url])
        monkeypatch.delenv("WAKEQ_TOKEN")

        assert from_file.through == from_environment.through == 4
        assert len(rows_in(from_environment.spans(cores=1))) == 4, "executors have another environment"


def test_period_and_plan_read_no_more_than_the_last_block(files: JournalFiles, requests: list[tuple[str, int]]) -> None:
    for _ in range(12):
        files.write(publish("x" * 400_000))
    expected = period_of(History([files.path]))
    with Served(files.log) as served:
        history = History([served.url])
        history.spans(cores=1, since_ms=0, until_ms=2**40)
        assert [path for path, _ in requests if path == "/journal/segment"] == []

        period = period_of(history)

    assert period == expected
    assert sum(size for path, size in requests if path == "/journal/segment") < 1_500_000


def test_later_entries_of_the_active_segment_are_read_from_their_block(
    files: JournalFiles, requests: list[tuple[str, int]]
) -> None:
    for _ in range(12):
        files.write(publish("x" * 400_000))
    with Served(files.log) as served:
        (stretch,) = History([served.url]).stretches[2:]

        found = list(walk.pieces_of(replace(stretch, first_index=12, last_index=13)))

    assert [(piece.first_index, len(piece.starts)) for piece in found] == [(12, 2)]
    assert sum(size for path, size in requests if path == "/journal/segment") < 3_000_000


@pytest.mark.parametrize("later", [["y", "z"], ["y" * 2_000_000, *"zzzzz"]])
def test_active_segment_that_was_cut_off_since_it_was_listed_is_read_from_its_beginning(
    files: JournalFiles, later: list[str]
) -> None:
    for _ in range(6):
        files.write(publish("x" * 400_000))
    with Served(files.log) as served:
        history = History([served.url])
        files.log.truncate_from(6)
        # The last block began in the middle of a record now, and later records prove that this record was on disk.
        for body in later:
            files.write(publish(body))

        period = period_of(history)

    assert period == period_of(History([files.path]))


def test_another_node_behind_the_same_address_is_refused(files: JournalFiles, tmp_path: Path) -> None:
    other = JournalFiles(tmp_path / "other", node=2)
    other.write(JOBS, publish("a"))
    with Served(other.log) as served:
        spans = History([served.url]).spans(cores=1)
        segment = spans[0].stretches[0].segment
        with Served(files.log) as elsewhere, pytest.raises(HistoryGone, match="the file is of another node"):
            BrokerFiles(elsewhere.url).open(segment)


def test_address_with_another_history_is_not_taken_for_a_removed_one(tmp_path: Path) -> None:
    one, two = JournalFiles(tmp_path / "one"), JournalFiles(tmp_path / "two", cluster=CLUSTER[::-1])
    for files in (one, two):
        files.write(JOBS)

    (span,) = History([one.path]).spans(cores=1)
    (tmp_path / "one").rename(tmp_path / "three")
    (tmp_path / "two").rename(tmp_path / "one")

    with pytest.raises(StorageError, match="the same for all who read"):
        list(events_of(span))


def test_outcomes_removed_while_they_are_read_are_left_out(files: JournalFiles) -> None:
    with Served(files.log) as served:
        opening = served.journal._files.open_outcomes
        served.journal._files.open_outcomes = lambda index: opening(index + 1000)  # type: ignore[method-assign]

        assert History([served.url]).through == 0


def test_outcomes_longer_than_one_part_are_read_whole(files: JournalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_broker, "PART_BYTES", 7)
    with Served(files.log) as served:
        found: list[Outcomes] = BrokerFiles(served.url).contents().outcomes

    assert found == History([files.path])._outcomes


def test_busy_broker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(journal_broker.time, "sleep", pauses.append)
    answers = iter([Busy("later"), Busy("later"), "done"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Busy):
            raise answer
        return answer

    assert journal_broker.patiently(ask) == "done"
    assert len(pauses) == 2


def test_broker_that_stays_busy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_broker.time, "sleep", lambda _: None)

    def ask() -> str:
        raise Busy("later")

    with pytest.raises(Busy, match="later"):
        journal_broker.patiently(ask)


@pytest.mark.parametrize("others", ["", "http://127.0.0.1:1,", "127.0.0.1:1,"])
def test_address_with_a_password_is_refused_without_showing_it(others: str) -> None:
    with pytest.raises(BadSettings, match="give a token") as refused:
        BrokerFiles.at(f"{others}http://me:secret@127.0.0.1:8080")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["nothing", ""])
def test_file_of_a_token_or_of_authorities_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    no_authorities = tmp_path / "ca.pem"
    no_authorities.write_text(text)

    with pytest.raises(BadSettings, match="no-token cannot be read: No such file"):
        BrokerFiles.at("http://127.0.0.1:1", token_file=str(tmp_path / "no-token"))
    with pytest.raises(BadSettings, match=r"no\.pem cannot be read: No such file .*; check the option tls"):
        BrokerFiles.at("http://127.0.0.1:1", tls=str(tmp_path / "no.pem"))
    with pytest.raises(BadSettings, match=r"ca\.pem is not a file of certificates"):
        BrokerFiles.at("http://127.0.0.1:1", tls=str(no_authorities))


def test_comments_between_authorities_may_be_in_any_language(tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes("# Főtanúsítvány\n".encode("iso8859-2") + Authority(tmp_path).ca.cert.read_bytes())

    files = BrokerFiles.at("https://127.0.0.1:1", tls=str(authorities))

    assert files.authorities is not None
    assert files.authorities.isascii()


def test_unreachable_broker_is_named() -> None:
    with pytest.raises(BrokerUnreachable, match=r"http://127\.0\.0\.1:1"):
        History(["http://127.0.0.1:1"])


def test_task_that_does_not_reach_the_broker_names_its_machine(files: JournalFiles) -> None:
    with Served(files.log) as served:
        spans = History([served.url]).spans(cores=1)

    with pytest.raises(BrokerUnreachable, match=f"^{gethostname()} does not reach the broker"):
        rows_in(spans)


def test_answer_of_a_later_release_is_refused(files: JournalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdminClient, "call", lambda *_: {"segments": "elsewhere"})
    with pytest.raises(Refused, match="does not know such a journal"):
        History(["http://127.0.0.1:1"])
