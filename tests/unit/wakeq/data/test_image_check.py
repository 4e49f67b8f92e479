"""Image check: a changed number, text or key behind correct checksums is refused, or served without a crash."""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.brokers.node_here import client_of, node_here, run
from tests.helpers.disks.mutated_images import image_of, mutated, replace_header
from tests.helpers.examples import seeds
from wakeq.data.backup import restore
from wakeq.data.opening import open_all
from wakeq.protocol.errors import DamagedFile, WakeqError
from wakeq.storage.state.snapshot import Item, SnapshotHeader, write_snapshot

QUEUES = ("plain", "limited", "slow", "")
Image = tuple[SnapshotHeader, list[Item]]
TOGETHER = 25


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return image_of(tmp_path_factory.mktemp("origin"))


def serve(directory: Path) -> None:
    """Start a broker on a directory, use everything that is in it, and end it."""
    broker = Broker(directory)
    try:
        client = broker.client()
        for name in QUEUES:
            client.call("PUB", name, message="new")
            client.call("FET", name)
            client.call("PEEK", name, count=50, state="any")
            client.call("STATS", name)
        broker.advance(4_000)
        for name in QUEUES:
            for _ in range(8):
                reply = client.call("FET", name)
                if reply["cmd"] == "msg":
                    client.call("NACK", name, uid=reply["uid"], lease=reply["lease"])
        client.call("STAGE", "", source="spark", epoch=3)
        client.call("UNSTASH", "plain", stashes=[("put", 3)], writer="w", epoch=1)
        client.call("SETTLE", "", source="spark", epoch=2)
        client.call("SLICE", "plain", source="read", epoch=5, reader="reader", batch=5, run="another")
        client.call("UNSTASH", "plain", stashes=[], writer="w", epoch=5, reader="reader", run="another")
        client.call("UNSTASH", "slow", stashes=[], writer="writer", epoch=9, drop=True)
        client.call("RELEASE", "plain", source="read")
        broker.flush()
    finally:
        broker.close()


def restored(changed: Image, tmp_path: Path) -> Path | None:
    """Make a data directory of an image; None if it is refused in words."""
    file, directory = tmp_path / "image", tmp_path / "data"
    shutil.rmtree(directory, ignore_errors=True)
    write_snapshot(file, *changed)
    try:
        restore(file, directory)
        return directory
    except WakeqError as error:
        refusal = str(error)
    assert refusal.startswith(f"{file}: at offset"), "else it names a file that nobody has"
    assert not (directory / "VERSION").exists(), "no broker may start on what is left"
    return None


def test_unchanged_image_is_accepted(image: Image, tmp_path: Path) -> None:
    directory = restored(image, tmp_path)

    assert directory is not None
    serve(directory)


@pytest.mark.parametrize("batch", seeds(1, of=16))
def test_changed_image_is_refused_or_served_without_a_crash(image: Image, tmp_path: Path, batch: int) -> None:
    for seed in range(batch * TOGETHER, (batch + 1) * TOGETHER):
        header, items, what = mutated(Random(seed), *image)
        try:
            directory = restored((header, items), tmp_path)
            if directory is not None:
                serve(directory)
        except BaseException:
            print(f"seed {seed}: {what}")
            raise


def test_node_on_an_accepted_changed_image_starts_serves_and_stops(image: Image, tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with node_here(directory) as here:
            async with client_of(here) as client:
                for name in QUEUES:
                    await client.publish(name, "new", priority=0)
                    await client.stats(name)
            assert here.node.failed is not None
            assert not here.node.failed.done()

    taken = 0
    for seed in range(40):
        header, items, _what = mutated(Random(seed), *image)
        directory = restored((header, items), tmp_path)
        if directory is not None and taken < 5:
            taken += 1
            run(story(directory))

    assert taken == 5


@pytest.mark.parametrize(("field", "value"), [("last_index", 1 << 48), ("last_term", 1 << 63), ("clock_ms", 1 << 46)])
def test_image_header_out_of_range_is_refused(image: Image, tmp_path: Path, field: str, value: int) -> None:
    header, items = image

    assert restored((replace_header(header, field, value), items), tmp_path) is None


def test_implausible_snapshot_without_a_state_is_refused_at_every_start(image: Image, tmp_path: Path) -> None:
    directory = restored(image, tmp_path)
    assert directory is not None
    header, items = image
    path = directory / "consensus" / "raft.snapshot"
    opened = open_all(directory, upgrade=False, segment_bytes_max=1 << 20)
    identity = opened.directory.identity
    opened.close()
    wrong = next(place for place, (table, _, _) in enumerate(items) if table == 3)
    items = [*items[:wrong], (3, items[wrong][1][:5], items[wrong][2]), *items[wrong + 1 :]]
    write_snapshot(path, SnapshotHeader(identity, header.last_index, header.last_term, header.clock_ms), items)
    shutil.rmtree(directory / "state")

    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"raft\.snapshot: .* expected a value that a broker can have written"):
            open_all(directory, upgrade=False, segment_bytes_max=1 << 20)
