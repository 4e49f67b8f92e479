"""DuckDB in this process: a failure of any part ends the whole, soon and in one line, and no thread is left."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.journal.files import JournalFiles, publish
from wakeq.pipeline.journal import walk
from wakeq.pipeline.report import embedded as module
from wakeq.pipeline.report.embedded import BATCHES_MAX, Embedded, Feed
from wakeq.pipeline.report.events import JournalEvents, Stream, events_in
from wakeq.pipeline.report.queries import Query
from wakeq.protocol.errors import DamagedFile, QueryFailed

DEADLINE_S = 10.0
ENTRIES = 10 * BATCHES_MAX
COUNT = Query("select cast(count(*) as bigint) as events from {events}", ("event",))
DONE = Query(COUNT.sql, COUNT.columns, done_only=True)
ENDLESS = Query("select cast(sum(n.range) as double) from range(1000000000000) n, {events}", ("event",))
WRONG = Query("select cast(event as int) from {events}", ("event",))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()).difference(before)
    assert [thread.name for thread in left if "wakeq" in thread.name] == []


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JournalFiles:
    """A journal that is read in more batches than may wait for a query; of the last entry nothing is known."""
    monkeypatch.setattr(walk, "PIECE_BYTES", 64)
    files = JournalFiles(tmp_path / "data")
    for number in range(ENTRIES):
        files.write(publish(str(number)))
    files.outcomes(0, queues=[(1, ENTRIES + 1, "jobs")])
    files.write(publish("open"))
    events = events_in([files.path])
    assert isinstance(events, JournalEvents)
    assert len(list(events.stream(COUNT).batches)) == ENTRIES + 1
    return files


def test_queries_of_all_events_and_of_those_that_took_effect_share_one_read(
    journal: JournalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, seen = list[JournalEvents](), list[int]()
    stream = JournalEvents.stream

    def counted(events: JournalEvents, *queries: Query) -> Stream:
        reads.append(events)
        return stream(events, *queries)

    monkeypatch.setattr(JournalEvents, "stream", counted)

    tables = Embedded(seen.append).run(events_in([journal.path]), COUNT, DONE)

    assert [table["events"].to_pylist() for table in tables] == [[ENTRIES + 1], [ENTRIES]]
    assert len(reads) == 1
    assert seen[-1] == ENTRIES + 1


@pytest.mark.parametrize("queries", [(WRONG, COUNT), (COUNT, WRONG), (WRONG, WRONG)])
def test_query_that_fails_ends_the_others_in_one_line(journal: JournalFiles, queries: tuple[Query, Query]) -> None:
    with pytest.raises(QueryFailed, match=r"^DuckDB failed: .*published.*$"):
        Embedded().run(events_in([journal.path]), *queries)


def test_damaged_journal_ends_the_queries(journal: JournalFiles) -> None:
    path = journal.path / "consensus" / "raft.log"
    data = bytearray(path.read_bytes())
    # In the first entry, which is followed by others.
    data[data.index(b"jobs")] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedFile):
        Embedded().run(events_in([journal.path]), COUNT, COUNT)


def test_interrupt_while_the_journal_is_read_ends_the_queries(journal: JournalFiles) -> None:
    def interrupt(events: int) -> None:
        if events > BATCHES_MAX:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Embedded(interrupt).run(events_in([journal.path]), COUNT, COUNT)


def test_interrupt_does_not_wait_for_a_long_query(journal: JournalFiles) -> None:
    def interrupt(_events: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Embedded(interrupt).run(events_in([journal.path]), ENDLESS, ENDLESS)


def test_feed_of_a_query_that_has_ended_takes_batches_without_waiting() -> None:
    schema = pa.schema([("a", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"a": 1}], schema)
    feed = Feed(schema)
    for _ in range(BATCHES_MAX):
        feed.put(batch)

    feed.close()
    for _ in range(2 * BATCHES_MAX):
        feed.put(batch)
    feed.put(None)

    # Else a reader that waits for a place would wait for ever.
    assert feed._waiting.qsize() < BATCHES_MAX
    assert feed.is_over


def test_thread_of_duckdb_that_waits_for_a_query_that_has_ended_goes_on() -> None:
    """DuckDB 1.4 leaves such a thread behind, and the process would never end."""
    feed = Feed(pa.schema([("a", pa.int64())]))
    waits = threading.Thread(target=list, args=(feed,), daemon=True)
    waits.start()

    feed.close()
    waits.join(DEADLINE_S)

    assert not waits.is_alive()


def test_groups_that_do_not_fit_into_memory_go_to_files(journal: JournalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SETTINGS, "memory_limit", "70MB")
    monkeypatch.setitem(module.SETTINGS, "threads", 1)
    rows = 1_000_000
    large = Query(
        "select cast(count(*) as bigint) as groups from ("
        f"select n.range % {rows // 2} as a, max(n.range) as b, min(n.range) as c, sum(n.range) as d "
        f"from {{events}}, range({rows}) n where number = 1 group by 1)",
        ("number",),
    )

    (table,) = Embedded().run(events_in([journal.path]), large)

    assert table["groups"].to_pylist() == [rows // 2]
