"""Which events a report is about: what the user named, and how a lake differs from a journal."""

from pathlib import Path

import pytest

from tests.helpers.journal.files import JournalFiles, publish
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.events import JournalEvents, LakeEvents, events_in, lake_events
from wakeq.pipeline.report.queries import Query
from wakeq.protocol.errors import BadSettings, StorageError


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


def test_only_columns_that_the_queries_need_are_read(data: Path) -> None:
    events = events_in([data])
    assert isinstance(events, JournalEvents)
    some, done = Query("", ("at_ms", "entry")), Query("", ("at_ms", "number"), done_only=True)

    assert events.wanted_by(some, done).columns == ("at", "index", "number", "outcome")
    assert not events.wanted_by(some, done).done_only
    assert events.wanted_by(done).columns == ("at", "number")
    assert events.wanted_by(done).done_only
