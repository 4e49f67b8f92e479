"""The cost of reading history: `python -m bench.journal`.

    a log made by hand: publish, delivery, acknowledgement --> events a second, the whole report, the archive

Each figure is taken warm; the report again with twice the events, for which it may take at most twice the time.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.rows import ALL
from wakeq.pipeline.journal.table import events_of
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.report.run import make_report
from wakeq.pipeline.spark import session_for
from wakeq.protocol.log.entries import Ack, Delivered, Draft, Entry, Publish
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import Outcomes
from wakeq.protocol.log.records import encode_entry
from wakeq.storage.log.journal import OutcomeFiles
from wakeq.storage.log.segmented_log import SegmentedLog

QUEUES = 8
BATCH = 5  # messages of an entry
BODY = b"x" * 100
ENTRIES_A_WRITE = 600
WRITES_A_CUT = 80
AT_MS = 1_790_000_000_000
BARS = {"events_a_s": 1_500_000.0, "report_s": 15.0, "twice": 2.0}


def make_history(path: Path, events: int) -> None:
    """Write the lives of so many messages as a broker would, with sealed segments and outcomes."""
    folder = path / "consensus"
    folder.mkdir(parents=True)
    identity = Identity(bytes(16), 1)
    log = SegmentedLog.open(folder, identity, committed_at_least=0)
    outcomes = OutcomeFiles(path / "journal", identity)
    counters: dict[str, tuple[int, int]] = {}
    lives = _lives(events // (3 * BATCH), counters)
    told = segment = 0
    for write in range(-(-3 * (events // (3 * BATCH)) // ENTRIES_A_WRITE)):
        payloads = [payload for _, payload in zip(range(ENTRIES_A_WRITE), lives, strict=False)]
        log.append_many(log.last_index + 1, 1, payloads)
        batch = log.take_buffer()
        assert batch is not None
        log.write(batch)
        if write % WRITES_A_CUT == 0:
            told, segment = _tell(log, outcomes, counters, told, segment)
            if log.roll_due:
                log.roll(log.last_index)
    _tell(log, outcomes, counters, told, segment)
    log.close()
    outcomes.close()


def _lives(count: int, counters: dict[str, tuple[int, int]]) -> Iterator[bytes]:
    at_ms, index = AT_MS, 1
    for life in range(count):
        name = f"queue-{life % QUEUES}"
        queue_id, first = counters.setdefault(name, (index, 1))
        numbers = list(range(first, first + BATCH))
        tokens = [(1, number) for number in numbers]
        entries: tuple[Entry, ...] = (
            Publish(name, [Draft(BODY)] * BATCH, worker=1, door=1),
            Delivered(name, queue_id, numbers, [at_ms + 60_000] * BATCH, first, worker=life % 16 + 2, door=1),
            Ack(name, queue_id, numbers, tokens, worker=life % 16 + 2, door=1),
        )
        for entry in entries:
            at_ms += 1 + life % 7
            yield encode_entry(entry, at_ms)
        counters[name] = queue_id, first + BATCH
        index += len(entries)


def _tell(
    log: SegmentedLog, outcomes: OutcomeFiles, counters: dict[str, tuple[int, int]], told: int, segment: int
) -> tuple[int, int]:
    queues = [(queue_id, number, name) for name, (queue_id, number) in counters.items()]
    lists_all = log.active_first_index != segment
    outcomes.write(Outcomes(told, log.last_index, lists_all, queues, []))
    return log.last_index, log.active_first_index


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def best(rounds: int, step: Callable[[], object]) -> float:
    """Return the shortest time of several."""
    times = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        step()
        times.append(time.perf_counter() - began_s)
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-") as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        make_history(one, given.events)
        make_history(two, 2 * given.events)
        spans = History([one]).spans(cores=1)
        alone_s = best(given.rounds, lambda: deque((len(b) for span in spans for b in events_of(span)), maxlen=0))
        say(f"{given.events:,} events, {os.cpu_count()} cores, best of {given.rounds}\n")
        say(f"reader alone, one process   {given.events / alone_s:12,.0f} events/s\n")
        archive([one], Path(folder) / "lake-one")
        after_one = peak_mib()
        archive([two], Path(folder) / "lake-two")
        say(f"archive, memory at its peak {after_one:8,.0f} MiB, of twice the events {peak_mib():,.0f} MiB\n")
        _with_spark(one, two, given.events, given.rounds)


def _with_spark(one: Path, two: Path, events: int, rounds: int) -> None:
    with session_for("wakeq bench", master="local[2,4]", conf=[("spark.sql.shuffle.partitions", "2")]) as spark:
        frame = spark.read.format("wakeq-journal").load(str(one))
        frame.write.format("noop").mode("overwrite").save()
        scan_s = best(rounds, lambda: frame.write.format("noop").mode("overwrite").save())
        make_report(spark, [one], ALL)
        report_s = best(rounds, lambda: make_report(spark, [one], ALL))
        twice_s = best(rounds, lambda: make_report(spark, [two], ALL))
    rows = (
        ("journal to data frame", f"{events / scan_s:,.0f} events/s", events / scan_s >= BARS["events_a_s"]),
        ("whole report", f"{report_s:.1f} s", report_s < BARS["report_s"]),
        ("of twice the events", f"{twice_s / report_s:.2f} of that time", twice_s / report_s <= BARS["twice"]),
    )
    for name, text, is_met in rows:
        sys.stdout.write(f"{name:24s} {text:>24s}   {'met' if is_met else 'MISSED'}\n")


if __name__ == "__main__":
    main()
