"""Messages of a lake, published again: which there are, in which order, and where a load continues."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from tests.helpers.journal.files import CLUSTER, JournalFiles
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.lake import Lake, archive
from wakeq.pipeline.load import messages
from wakeq.pipeline.load.load import Progress, count, load
from wakeq.pipeline.load.messages import LakeMessages
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.protocol.log.entries import CreateQueue, Draft, Publish, Stash, Unstash, UnstashAction


class Killed(BaseException):
    """The run ends here."""


def jobs(tmp_path: Path, cluster: bytes = CLUSTER) -> JournalFiles:
    files = JournalFiles(tmp_path / cluster.hex(), cluster=cluster)
    files.write(CreateQueue("jobs", Policies()))
    return files


def archived(files: JournalFiles, lake: Path) -> LakeMessages:
    archive([files.path], lake, bodies=True)
    return LakeMessages(Lake(lake), "jobs")


def numbered(tmp_path: Path, count: int = 10) -> tuple[JournalFiles, Path]:
    """A history of messages m1, m2 ..., three in each entry, with priority 7 for the first of them."""
    files = jobs(tmp_path)
    for first in range(1, count + 1, 3):
        numbers = range(first, min(first + 3, count + 1))
        files.write(Publish("jobs", [Draft(b"m%d" % number, 7 if number == first else 0) for number in numbers]))
    files.outcomes(0, queues=[(1, count + 1, "jobs")])
    return files, tmp_path / "lake"


def bodies_in(source: LakeMessages, rows: int = 100) -> list[bytes]:
    batches = [batch for part in source.parts for batch in source.batches(part, 0, rows)]
    assert all(0 < batch.messages.num_rows <= rows for batch in batches)
    return [body for batch in batches for body in batch.messages.column("body").to_pylist()]


def fetched(client: BulkClient) -> list[bytes]:
    return [message.body for message in client.fetch_many("q", 1000)]


def test_queue_that_a_lake_does_not_know_is_an_error(tmp_path: Path) -> None:
    files, folder = numbered(tmp_path)
    archived(files, folder).check_queue()

    with pytest.raises(BadSettings, match=f"{folder} has no events of queue jobz"):
        LakeMessages(Lake(folder), "jobz").check_queue()


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_messages_have_the_order_of_the_log(tmp_path: Path, rows: int) -> None:
    files, lake = numbered(tmp_path)

    assert bodies_in(archived(files, lake), rows) == [b"m%d" % number for number in range(1, 11)]


def test_messages_have_the_order_of_the_log_also_if_the_files_have_another(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)
    known = Lake(lake)
    (cluster,) = known.clusters
    events = known.dataset(cluster).to_table()
    backwards: Any = SimpleNamespace(
        address=str(lake), clusters=[cluster], columns=known.columns, has_bodies=True,
        dataset=lambda _cluster: events.take(list(reversed(range(events.num_rows)))),
    )  # fmt: skip

    assert bodies_in(LakeMessages(backwards, "jobs"), 3) == [b"m%d" % number for number in range(1, 11)]


def test_messages_get_their_old_body_and_priority(client: MemoryClient, tmp_path: Path) -> None:
    files, lake = numbered(tmp_path, 3)

    load(client, archived(files, lake), "q")

    assert [(one.body, one.priority) for one in client.fetch_many("q", 10)] == [(b"m2", 0), (b"m3", 0), (b"m1", 7)]


def test_condition_chooses_messages_by_columns_of_the_lake(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)

    by_priority = LakeMessages(Lake(lake), "jobs", "priority = 7 -- the first ones")
    by_moment = LakeMessages(Lake(lake), "jobs", "published >= '2023-11-14 22:13:24'")

    assert bodies_in(by_priority) == [b"m1", b"m4", b"m7", b"m10"]
    assert bodies_in(by_moment) == [b"m7", b"m8", b"m9", b"m10"], "the third entry is written in this second of UTC"


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("nope = 1", 'Referenced column "nope" not found'),
        ("priority >", "syntax error"),
        ("uid::INT > 0", "Could not convert string"),
    ],
)
def test_wrong_condition_is_one_line(tmp_path: Path, where: str, complaint: str) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)

    with pytest.raises(BadSettings, match=f"--where .*{complaint}") as refused:
        bodies_in(LakeMessages(Lake(lake), "jobs", where))

    assert "\n" not in str(refused.value)


def test_condition_cannot_bring_back_what_was_published(client: MemoryClient, tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)

    with pytest.raises(BadSettings, match=r"--where .*syntax error"):
        load(client, LakeMessages(Lake(lake), "jobs", "true) OR (true"), "q")


def test_condition_of_a_lake_reads_no_files(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)
    other = next(lake.glob("date=*/*.parquet"))

    with pytest.raises(BadSettings, match=r"--where .*file system operations are disabled"):
        bodies_in(LakeMessages(Lake(lake), "jobs", f"uid IN (SELECT uid FROM '{other}')"))


def test_stash_is_loaded_with_its_fields_once_it_is_published(tmp_path: Path) -> None:
    files, rows = jobs(tmp_path), [Draft(b"x", 7), Draft(b"y")]
    files.write(
        Stash("jobs", rows, "lost attempt", 0, 1000),
        Stash("jobs", rows, "attempt", 0, 1000),
        Stash("jobs", [Draft(b"undecided")], "undecided", 0, 1000),
        Publish("jobs", [Draft(b"z")]),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Unstash("jobs", UnstashAction.LAPSED, [("lost attempt", 0)]),
    )
    files.outcomes(0, (6, 2, 3), (7, 2, 1), queues=[(1, 7, "jobs")])
    source = archived(files, tmp_path / "lake")

    assert bodies_in(source) == [b"z", b"x", b"y"]
    assert bodies_in(LakeMessages(Lake(tmp_path / "lake"), "jobs", "priority = 7")) == [b"x"]


def test_stash_that_ends_after_an_archive_is_behind_every_position(client: MemoryClient, tmp_path: Path) -> None:
    files, lake = jobs(tmp_path), tmp_path / "lake"
    files.write(Stash("jobs", [Draft(b"x")], "attempt", 0, 1000), Publish("jobs", [Draft(b"y")]))
    files.outcomes(0, queues=[(1, 3, "jobs")])
    load(client, archived(files, lake), "q")
    before = fetched(client)

    files.write(Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1))
    files.outcomes(3, (4, 1, 1), queues=[(1, 3, "jobs")], lists_all=False)
    load(client, archived(files, lake), "q")

    assert (before, fetched(client)) == ([b"y"], [b"x"])


def test_clusters_with_equal_counters_are_kept_apart(client: MemoryClient, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for cluster, body in ((CLUSTER, b"x"), (CLUSTER[::-1], b"y")):
        files = jobs(tmp_path, cluster)
        attempt = Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1)
        files.write(Stash("jobs", [Draft(body)], "attempt", 0, 1000), attempt)
        files.outcomes(0, (3, 1, 1), queues=[(1, 2, "jobs")])
        source = archived(files, lake)

    done = load(client, source, "q")

    assert (done.rows, fetched(client)) == (2, [b"x", b"y"])


@pytest.mark.parametrize("is_published", [False, True])
def test_load_that_is_killed_at_every_batch_while_the_lake_grows_publishes_each_message_once(
    client: MemoryClient, tmp_path: Path, is_published: bool
) -> None:
    class Dies(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            if is_published or kills % 2:
                super().publish_stashes(*args, **named)
            raise Killed

    files, lake = numbered(tmp_path)
    other = jobs(tmp_path, CLUSTER[::-1])
    other.write(Publish("jobs", [Draft(b"o1"), Draft(b"o2")]))
    other.outcomes(0, queues=[(1, 3, "jobs")])
    archived(other, lake)
    kills = 0

    while kills < 50:
        if kills == 3:
            files.write(Publish("jobs", [Draft(b"m11"), Draft(b"m12")]))
            files.outcomes(files.log.last_index - 1, queues=[(1, 13, "jobs")], lists_all=False)
        try:
            load(Dies(client.machine), archived(files, lake), "q", batch_rows=2 + kills % 2)
        except Killed:
            kills += 1
        else:
            break

    assert load(client, archived(files, lake), "q") == Progress(0, continues=True)
    assert sorted(fetched(client)) == sorted([b"m%d" % number for number in range(1, 13)] + [b"o1", b"o2"])


def test_lake_that_was_moved_to_another_file_system_is_continued(client: MemoryClient, tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    address = f"memory://{tmp_path.name}/lake"
    load(client, archived(files, lake), "q")
    files.write(Publish("jobs", [Draft(b"m11")]))
    files.outcomes(files.log.last_index - 1, queues=[(1, 12, "jobs")], lists_all=False)
    archive([files.path], address, bodies=True)

    done = load(client, LakeMessages(Lake(address), "jobs"), "q")

    assert done == Progress(1, continues=True)
    assert len(fetched(client)) == 11


def test_cluster_whose_days_were_removed_has_no_messages(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    other = jobs(tmp_path, CLUSTER[::-1])
    other.outcomes(0, queues=[(1, 1, "jobs")])
    archived(other, lake)
    for path in lake.glob("date=*/*.parquet"):
        path.unlink()

    assert bodies_in(archived(files, lake)) == [b"m%d" % number for number in range(1, 11)]


def test_count_says_what_the_load_would_publish(client: MemoryClient, tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    source = archived(files, lake)

    before = count(client, source, "q")
    load(client, source, "q")

    assert (before, count(client, source, "q")) == (10, 0)


def test_only_messages_of_the_queue_are_loaded(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake, bodies=True)

    assert bodies_in(LakeMessages(Lake(lake), "it's empty")) == []


def test_lake_without_bodies_is_refused(tmp_path: Path) -> None:
    files, lake = numbered(tmp_path)
    archive([files.path], lake)

    with pytest.raises(BadSettings, match="has no bodies; archive with --bodies, into another place"):
        LakeMessages(Lake(lake), "jobs")


def test_entry_with_more_messages_than_a_position_can_count_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, lake = numbered(tmp_path)
    source = archived(files, lake)
    monkeypatch.setattr(messages, "PLACES", 2)

    with pytest.raises(StorageError, match="entry 2 published more than 2 messages"):
        bodies_in(source, rows=3)
