"""Which events a report is about: what the user named, and how a lake differs from a journal."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.journal.files import JournalFiles, publish
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.events import JournalEvents, LakeEvents, events_in, incarnation_of, lake_events
from wakeq.pipeline.report.queries import Query
from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.protocol.uid import QUEUE_DIGITS, QUEUE_ID_MAX, uid_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files = JournalFiles(tmp_path / "data")
    files.write(publish("x"))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    return files.path


def test_folder_of_an_archive_is_read_as_a_lake(data: Path, tmp_path: Path) -> None:
    archive([data], tmp_path / "lake")

    assert isinstance(events_in([tmp_path / "lake"]), LakeEvents)
    assert isinstance(events_in([data]), JournalEvents)


def test_lake_and_data_directory_together_are_refused(data: Path, tmp_path: Path) -> None:
    archive([data], tmp_path / "lake")

    with pytest.raises(BadSettings, match="is a lake; name it alone"):
        events_in([data, tmp_path / "lake"])


def test_data_directory_is_no_lake(data: Path) -> None:
    with pytest.raises(StorageError, match="is not a lake"):
        lake_events(data)


@given(st.integers(1, QUEUE_ID_MAX), st.integers(1, 10**9))
def test_incarnation_is_known_from_the_text_of_a_lake(queue_id: int, number: int) -> None:
    assert incarnation_of(uid_of(queue_id, number)[:QUEUE_DIGITS]) == incarnation_of(queue_id) == queue_id


def test_text_that_is_no_part_of_a_uid_is_no_incarnation() -> None:
    assert [incarnation_of(text) for text in (None, "", "foreign-", "a b c d")] == [None] * 4


def test_only_columns_that_the_queries_need_are_read(data: Path) -> None:
    events = events_in([data])
    assert isinstance(events, JournalEvents)
    some, done = Query("", ("at_ms", "entry")), Query("", ("at_ms", "number"), done_only=True)

    assert events.wanted_by(some, done).columns == ("at", "index", "number", "outcome")
    assert not events.wanted_by(some, done).done_only
    assert events.wanted_by(done).columns == ("at", "number")
    assert events.wanted_by(done).done_only
