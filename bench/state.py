"""The state store by itself: the cost of putting, reading, deleting and sweeping a million records.

    python -m bench.state            prints a table and keeps it in bench/results/<date>-state.md

By the clock on the wall, with the syncs that a node makes, on the disk that WAKEQ_BENCH_DIR names.
"""

import datetime
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from bench.peers.peer import REPOSITORY
from bench.report import table
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.store import GRAVES, MESSAGES, Checkpoint

RECORDS = 1_000_000
VALUE = bytes(1_050)
TOGETHER = 20_000  # in a commit
READ_TOGETHER = 256
READS = 1_000
SWEPT = 200_000
RESULTS = Path(__file__).parent / "results"

Row = tuple[str, str]


def keys(queue: str, count: int) -> list[bytes]:
    """Return the keys of so many messages of a queue, as they follow each other."""
    return [b"%s_%08d" % (queue.encode(), number) for number in range(count)]


def checkpoints(store: StateStore, found: list[bytes], *, delete: bool = False) -> Iterator[Checkpoint]:
    """Put or delete these, so many in a commit."""
    for first in range(0, len(found), TOGETHER):
        part = found[first : first + TOGETHER]
        index = store.applied().log_index + 1
        if delete:
            yield Checkpoint(index, 1, index, deletes=[(MESSAGES, part)])
        else:
            yield Checkpoint(index, 1, index, puts=[(MESSAGES, [(key, VALUE) for key in part])])


def commit_all(store: StateStore, found: list[bytes], *, delete: bool = False) -> tuple[float, float]:
    """Return the seconds of all commits, and the longest one."""
    spans_s = [seconds(partial(store.commit, each)) for each in checkpoints(store, found, delete=delete)]
    return sum(spans_s), max(spans_s)


def seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def used_bytes(store: StateStore) -> int:
    stats = store.stats()
    return (stats.pages - stats.free_pages) * stats.page_bytes


def measure(directory: Path) -> Iterator[Row]:
    """Measure everything; about half a minute."""
    store = StateStore.open(directory, cluster_id=b"bench".ljust(16), node_id=1)
    last, middle = keys("0000002", RECORDS), keys("0000001", SWEPT)
    took_s, longest_s = commit_all(store, last)
    yield "put, behind all others", f"{RECORDS / took_s:,.0f} a second, longest commit {longest_s * 1000:.0f} ms"
    appended_bytes = used_bytes(store)
    yield "on disk, behind all others", f"{appended_bytes / RECORDS:,.0f} bytes each"
    commit_all(store, middle)
    yield "on disk, between others", f"{(used_bytes(store) - appended_bytes) / SWEPT:,.0f} bytes each"
    starts = random.Random(1).choices(range(RECORDS - READ_TOGETHER), k=READS)
    reads_s = [seconds(partial(store.get_many, last[first : first + READ_TOGETHER])) for first in starts]
    yield f"`get_many` of {READ_TOGETHER} in a row", f"{median(reads_s) * 1e6:,.0f} microseconds at the median"
    index = store.applied().log_index + 1
    store.commit(Checkpoint(index, 1, index, puts=[(GRAVES, [((1).to_bytes(8, "big"), b"0000001_")])]))
    yield f"sweep of {SWEPT:,}", f"{seconds(partial(sweep, store)):.1f} s"
    took_s, _ = commit_all(store, last, delete=True)
    yield "delete", f"{RECORDS / took_s:,.0f} a second"
    store.close()


def sweep(store: StateStore) -> None:
    while store.sweep():
        pass


def main() -> None:
    parent = Path(os.environ.get("WAKEQ_BENCH_DIR") or REPOSITORY.parent)
    with tempfile.TemporaryDirectory(dir=parent, prefix="wakeq-bench-") as directory:
        rows = list(measure(Path(directory) / "state"))
    today = datetime.datetime.now(datetime.UTC).date()
    about = f"{RECORDS:,} records of {len(VALUE):,} bytes, {TOGETHER:,} in a commit, Python {sys.version.split()[0]}."
    reached = table(("figure", "reached"), rows)
    text = f"# The state store, {today}\n\n    python -m bench.state\n\n{about}\n\n{reached}\n"
    (RESULTS / f"{today}-state.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
