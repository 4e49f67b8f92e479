"""A lake as its readers see it: what was never there for anybody is no arrival."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.journal_files import JournalFiles
from wakeq.pipeline.archive import archive
from wakeq.pipeline.forecast import forecast
from wakeq.pipeline.replay import published
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import CreateQueue, Draft, Publish, Stash, Unstash, UnstashAction

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_what_a_lost_attempt_had_put_aside_is_neither_replayed_nor_counted_as_an_arrival(
    spark: Any, tmp_path: Path
) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    rows = [Draft(b"x"), Draft(b"y")]
    files.write(
        CreateQueue("jobs", Policies()),
        Stash("jobs", rows, "lost attempt", 0, 1000),
        Stash("jobs", rows, "attempt", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Unstash("jobs", UnstashAction.LAPSED, [("lost attempt", 0)]),
        Publish("jobs", [Draft(b"z")]),
    )
    files.outcomes(0, (5, 2, 1), queues=[(1, 6, "jobs")])
    archive([files.path], lake, bodies=True)

    again = [bytes(row.body) for row in published(spark, lake, "jobs", "true").collect()]
    (hour,) = forecast(spark, lake, wait_s=1, percent=95)

    assert sorted(again) == [b"x", b"y", b"z"]
    assert hour.arrivals_mean * 3600 == pytest.approx(3)
