"""Loading: every row once, however often it is begun anew, and wherever it is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.load.files import Files, Mapping
from wakeq.pipeline.load.load import Batch, Progress, count, load
from wakeq.protocol.errors import Disconnected


class Killed(BaseException):
    """The run ends here."""


class Numbers:
    """A source of two parts with the numbers 1 to 10 each; those that `is_wanted` refuses are left out."""

    identity = "numbers"
    parts = ("a", "b")

    def __init__(self, is_wanted: Any = lambda number: True) -> None:
        self._is_wanted = is_wanted

    def count(self, part: str, after: int) -> int:
        return sum(batch.messages.num_rows for batch in self.batches(part, after, 10))

    def batches(self, part: str, after: int, rows: int) -> Iterator[Batch]:
        for start in range(after + 1, 11, rows):
            numbers = range(start, min(start + rows, 11))
            bodies = [f"{part}{number}" for number in numbers if self._is_wanted(number)]
            if bodies:
                yield Batch(numbers[-1], pa.RecordBatch.from_pydict({"body": bodies}))


def bodies(client: BulkClient) -> list[bytes]:
    return [message.body for message in client.fetch_many("q", 1000)]


def texts_of(file: Path) -> Files:
    return Files([file], Mapping(body="text"))


def texts_in(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"text": "m{i}"}}\n' for i in range(count)))
    return path


def test_repeated_load_continues_behind_published_rows(client: MemoryClient, tmp_path: Path) -> None:
    file = texts_in(tmp_path / "a.jsonl", 10)

    class Breaks(MemoryClient):
        published = 0

        def publish_stashes(self, *args: Any, **named: Any) -> int:
            rows = super().publish_stashes(*args, **named)
            self.published += 1
            if self.published == 2:
                raise Disconnected("as if it had been killed behind the second batch")
            return rows

    with pytest.raises(Disconnected):
        load(Breaks(client.machine), texts_of(file), "q", batch_rows=3)

    done = load(client, texts_of(file), "q", batch_rows=3)

    assert done == Progress(4, continues=True)
    assert load(client, texts_of(file), "q", batch_rows=3).rows == 0
    assert bodies(client) == [f"m{i}".encode() for i in range(10)]


def test_repeated_load_at_another_rate_continues(client: MemoryClient, tmp_path: Path) -> None:
    file = texts_in(tmp_path / "a.jsonl", 10)

    class Stopped(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            super().publish_stashes(*args, **named)
            raise Disconnected("as if it had been stopped because it was too fast")

    with pytest.raises(Disconnected):
        load(Stopped(client.machine), texts_of(file), "q", batch_rows=4)

    done = load(client, texts_of(file), "q", rate=10_000, batch_rows=3)

    assert done == Progress(6, continues=True)
    assert bodies(client) == [f"m{i}".encode() for i in range(10)]


def test_named_load_continues_although_its_file_was_moved(client: MemoryClient, tmp_path: Path) -> None:
    first, longer = tmp_path / "a.jsonl", tmp_path / "moved.jsonl"
    first.write_text('{"n": 1}\n')
    longer.write_text('{"n": 1}\n{"n": 2}\n')

    load(client, Files([first], Mapping()), "q", name="orders")
    done = load(client, Files([longer], Mapping()), "q", name="orders")

    assert done == Progress(1, continues=True)
    assert bodies(client) == [b'{"n": 1}', b'{"n": 2}']


def test_concurrent_loads_of_one_file_publish_each_row_once(client: MemoryClient, tmp_path: Path) -> None:
    file = texts_in(tmp_path / "a.jsonl", 9)

    class Overtaken(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            load(client, texts_of(file), "q", batch_rows=3)
            return super().publish_stashes(*args, **named)

    done = load(Overtaken(client.machine), texts_of(file), "q", batch_rows=3)

    assert done == Progress(0, continues=True)
    assert bodies(client) == [f"m{i}".encode() for i in range(9)]
    assert client.stats("q")["stashed"] == 0


def test_stashed_batch_is_published_once_by_the_next_load(client: MemoryClient, tmp_path: Path) -> None:
    file = texts_in(tmp_path / "a.jsonl", 1)

    class Dies(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            raise Disconnected("as if it had been killed before")

    with pytest.raises(Disconnected):
        load(Dies(client.machine), texts_of(file), "q")
    load(client, texts_of(file), "q")

    assert bodies(client) == [b"m0"]
    assert client.stats("q")["stashed"] == 0


@pytest.mark.parametrize("after_publish", [False, True])
@pytest.mark.parametrize("batch_rows", [1, 3, 4])
def test_load_that_is_killed_at_every_batch_publishes_each_row_once(
    client: MemoryClient, batch_rows: int, after_publish: bool
) -> None:
    class Dies(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            if after_publish:
                super().publish_stashes(*args, **named)
                raise Killed
            if len(killed) % 2:
                killed.append(super().publish_stashes(*args, **named))
            else:
                killed.append(0)
            raise Killed

    killed: list[int] = []
    for run in range(50):
        try:
            load(Dies(client.machine), Numbers(), "q", batch_rows=batch_rows + run % 2)
        except Killed:
            continue
        break

    assert load(client, Numbers(), "q") == Progress(0, continues=True)
    assert sorted(bodies(client)) == sorted(f"{part}{i}".encode() for part in "ab" for i in range(1, 11))


def test_position_does_not_depend_on_the_condition(client: MemoryClient) -> None:
    class Stopped(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            super().publish_stashes(*args, **named)
            raise Killed

    with pytest.raises(Killed):
        load(Stopped(client.machine), Numbers(lambda number: number > 1), "q", batch_rows=3)

    load(client, Numbers(lambda number: number != 4), "q")

    assert bodies(client)[:9] == [b"a2", b"a3", *(b"a%d" % number for number in range(5, 11)), b"b1"]


def test_count_says_what_the_load_would_publish(client: MemoryClient) -> None:
    class Stopped(MemoryClient):
        def publish_stashes(self, *args: Any, **named: Any) -> int:
            super().publish_stashes(*args, **named)
            raise Killed

    source = Numbers(lambda number: number % 2 == 0)
    before = count(client, source, "q")
    with pytest.raises(Killed):
        load(Stopped(client.machine), source, "q", batch_rows=4)

    assert (before, count(client, source, "q")) == (10, 8)
    assert load(client, source, "q").rows == 8
