"""H4 and QA by themselves: the cost of a million records with few and with many distinct keys, and of a heap by hand.

    python -m bench.structures            prints a table and keeps it in bench/results/<date>-structures.md

CPU time of one process, the keys drawn with a fixed seed; memory as `tracemalloc` counts it, in a run of its own.
"""

import datetime
import gc
import heapq
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.report import table
from wakeq.protocol.queue.order.key_order import KeyHeap, KeyOrder, qa_order
from wakeq.protocol.queue.order.ready_line import ReadyLine

RECORDS = 1_000_000
WIDE = 1 << 40  # keys in a range that no array could have
RESULTS = Path(__file__).parent / "results"

Row = tuple[str, str, float, float, float]


class FourAryHeap:
    """A heap with four children for each node, in Python: what H4 is in the original."""

    def __init__(self) -> None:
        self._keys: list[int] = []

    def push(self, key: int) -> None:
        keys = self._keys
        place = len(keys)
        keys.append(key)
        while place:
            parent = (place - 1) >> 2
            if keys[parent] <= key:
                break
            keys[place], place = keys[parent], parent
        keys[place] = key

    def pop(self) -> int:
        keys = self._keys
        first, last = keys[0], keys.pop()
        if keys:
            self._sift_down(last)
        return first

    def _sift_down(self, key: int) -> None:
        keys, place, size = self._keys, 0, len(self._keys)
        while (child := 4 * place + 1) < size:
            least = min(range(child, min(child + 4, size)), key=keys.__getitem__)
            if key <= keys[least]:
                break
            keys[place], place = keys[least], least
        keys[place] = key


def line_costs(make: Callable[[], KeyOrder], keys: Sequence[int]) -> tuple[float, float, float]:
    """Return microseconds to put one, to take one, and bytes for each while all are inside."""
    line = ReadyLine(make)
    put_us = _timed(lambda: [line.push(key, number) for number, key in enumerate(keys, 1)]) / len(keys)
    take_us = _timed(lambda: [line.take(1) for _ in keys]) / len(keys)
    gc.collect()
    tracemalloc.start()
    line = ReadyLine(make)
    for number, key in enumerate(keys, 1):
        line.push(key, number)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return put_us, take_us, held_bytes / len(keys)


def heap_costs(push: Callable[[int], object], pop: Callable[[], int], keys: Sequence[int]) -> tuple[float, float]:
    """Return microseconds to put one key and to take one."""
    put_us = _timed(lambda: [push(key) for key in keys]) / len(keys)
    return put_us, _timed(lambda: [pop() for _ in keys]) / len(keys)


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e6


def measure() -> list[Row]:
    """Measure everything; some twenty seconds for a million records."""
    draw = random.Random(1)
    few = [draw.randrange(3) for _ in range(RECORDS)]
    many = [draw.randrange(RECORDS) for _ in range(RECORDS)]
    wide = [draw.randrange(WIDE) for _ in range(RECORDS)]
    rows: list[Row] = [
        ("H4", "3 keys", *line_costs(KeyHeap, few)),
        ("QA", "3 keys, range of 3", *line_costs(lambda: qa_order(0, 2), few)),
        ("H4", "a million keys", *line_costs(KeyHeap, many)),
        ("QA", "a million keys, range of a million", *line_costs(lambda: qa_order(0, RECORDS - 1), many)),
        ("QA", f"a million keys, range of {WIDE:,}", *line_costs(lambda: qa_order(0, WIDE - 1), wide)),
    ]
    binary: list[int] = []
    nan = float("nan")
    rows.append(
        ("the keys alone: heapq", "a million keys",
         *heap_costs(lambda key: heapq.heappush(binary, key), lambda: heapq.heappop(binary), many), nan)
    )  # fmt: skip
    four = FourAryHeap()
    rows.append(("the keys alone: 4-ary, in Python", "a million keys", *heap_costs(four.push, four.pop, many), nan))
    return rows


def main() -> None:
    head = ("structure", "records", "put, us", "take, us", "bytes each")
    rows = [(name, keys, f"{put:.2f}", f"{take:.2f}", "" if size != size else f"{size:.0f}")
            for name, keys, put, take, size in measure()]  # fmt: skip
    today = datetime.datetime.now(datetime.UTC).date()
    version = sys.version.split()[0]
    about = f"{RECORDS:,} records, Python {version}, CPU time."
    text = f"# H4 and QA, {today}\n\n    python -m bench.structures\n\n{about}\n\n{table(head, rows)}\n"
    (RESULTS / f"{today}-structures.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
