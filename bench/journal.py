"""The cost of reading history: `python -m bench.journal`.

    a log made by hand: publish, delivery, acknowledgement --> events a second, the whole report, the archive

The report is a process of its own, from its start; the others are taken warm.  The report again with several times the
events, for which Spark may take no longer per event.  `--executors` measures instead what a second executor brings:
how long its tasks run beside those of the first, and how many events a second of CPU reads.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.pipeline import cpu_below
from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.table import events_of
from wakeq.pipeline.report.events import events_in
from wakeq.pipeline.report.on_spark import OnSpark
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
PAGE_EVENTS = 90
BARS = {
    "events_a_s": 1_500_000.0, "page_s": 1.0, "report_s": 3.0, "report_mib": 1024, "spark_s": 8.0, "an_event": 1.0,
    "of_one_executor": 0.9
}  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one step: seconds by the clock and of CPU, and of a process its memory at the peak."""

    wall_s: float
    cpu_s: float
    peak_mib: float = 0.0


def best(rounds: int, step: Callable[[], Cost]) -> Cost:
    """Return the shortest of several."""
    return min((step() for _ in range(rounds)), key=lambda cost: cost.wall_s)


def here(step: Callable[[], object]) -> Cost:
    """Measure a step in this process."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    step()
    return Cost(time.perf_counter() - began_s, time.process_time() - cpu_s)


def command(*arguments: str | Path) -> Cost:
    """Measure a command of wakeq from the start of its process to its end."""
    began_s = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "wakeq", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"wakeq {arguments[0]} failed"
    return Cost(time.perf_counter() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def show(name: str, text: str, *, is_met: bool | None = None) -> None:
    verdict = "" if is_met is None else "met" if is_met else "MISSED"
    sys.stdout.write(f"{name:44s} {text:>44s}   {verdict}\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--times", type=int, default=2, help="a second history has so many times the events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--executors", action="store_true", help="the report on Spark with one executor and with two")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-") as folder:
        root = Path(folder)
        one, more, page = root / "one", root / "more", root / "page"
        make_history(page, PAGE_EVENTS)
        make_history(one, given.events)
        if given.executors:
            _with_executors(root, one, given.events, given.rounds)
            return
        make_history(more, given.times * given.events)
        show(f"{given.events:,} events, {os.cpu_count()} cores", f"best of {given.rounds}; wall, CPU, peak")
        _commands(root, page, one, more, given.times, given.rounds)
        spans = History([one]).spans(cores=1)
        alone = best(given.rounds, lambda: here(lambda: deque((len(b) for s in spans for b in events_of(s)), maxlen=0)))
        rate = given.events / alone.wall_s
        show("reader alone, one process", f"{rate:,.0f} events/s, {alone.cpu_s:.2f} s CPU")
        if not given.no_spark:
            _with_spark(one, more, given.times, given.events, given.rounds)


def _commands(root: Path, page: Path, one: Path, more: Path, times: int, rounds: int) -> None:
    """Measure commands, before this process needs memory: to the system it is theirs, too, until they begin."""
    out, lake = root / "report.html", root / "lake-one"
    small = best(rounds, lambda: command("report", page, "--out", out))
    show(f"wakeq report, {PAGE_EVENTS} events, cold", _text(small), is_met=small.wall_s <= BARS["page_s"])
    whole = best(rounds, lambda: command("report", one, "--out", out))
    is_met = whole.wall_s <= BARS["report_s"] and whole.peak_mib <= BARS["report_mib"]
    show("wakeq report, cold", _text(whole), is_met=is_met)
    again = best(max(1, rounds // 2), lambda: command("report", more, "--out", out))
    show(f"of {times} times the events", _text(again))
    show("archive", _text(command("pipeline", "archive", one, "--to", lake)))
    show(f"of {times} times the events", _text(command("pipeline", "archive", more, "--to", root / "lake-more")))
    show("wakeq report of the lake", _text(best(rounds, lambda: command("report", lake, "--out", out))))


def _text(cost: Cost) -> str:
    return f"{cost.wall_s:.2f} s, {cost.cpu_s:.2f} s CPU, {cost.peak_mib:,.0f} MiB"


def _with_spark(one: Path, more: Path, times: int, events: int, rounds: int) -> None:
    with session_for("wakeq bench", master="local[2,4]") as spark:
        engine = OnSpark(spark)
        frame = spark.read.format("wakeq-journal").load(str(one))
        frame.write.format("noop").mode("overwrite").save()
        scan = best(rounds, lambda: here(lambda: frame.write.format("noop").mode("overwrite").save()))
        make_report(engine, events_in([one]))
        report = best(rounds, lambda: here(lambda: make_report(engine, events_in([one]))))
        again = best(max(1, rounds // 2), lambda: here(lambda: make_report(engine, events_in([more]))))
    rate, ratio = events / scan.wall_s, again.wall_s / report.wall_s / times
    show("journal to data frame", f"{rate:,.0f} events/s", is_met=rate >= BARS["events_a_s"])
    show("report on Spark, warm", f"{report.wall_s:.1f} s", is_met=report.wall_s <= BARS["spark_s"])
    show(f"an event of {times} times as many", f"{ratio:.2f} of that time", is_met=ratio <= BARS["an_event"])


def _with_executors(root: Path, history: Path, events: int, rounds: int) -> None:
    """Measure the report with one executor of one core, then with two."""
    alone, _ = _on_executors(1, root, history, events, rounds)
    rate, overlap = _on_executors(2, root, history, events, rounds)
    show("two executors at once", f"{overlap:.0%} of the time in which one has a task")
    ratio = rate / alone
    show("events a CPU second, of one executor's", f"{ratio:.2f}", is_met=ratio >= BARS["of_one_executor"])


def _on_executors(count: int, root: Path, history: Path, events: int, rounds: int) -> tuple[float, float]:
    """Return the events of a CPU second of executors and their Python, and the share of time when two had a task."""
    log = root / f"log-{count}"
    log.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(log), "spark.eventLog.compress": "false"}
    with session_for("wakeq bench", master=f"local-cluster[{count},1,1024]", conf=conf.items()) as spark:
        engine, java = OnSpark(spark), spark.sparkContext._gateway.proc.pid
        make_report(engine, events_in([history]))
        began_ms, before_s = 1000 * time.time(), cpu_below(java)
        cost = best(rounds, lambda: here(lambda: make_report(engine, events_in([history]))))
        rate = rounds * events / (cpu_below(java) - before_s)
    show(f"report on {count} executors", f"{cost.wall_s:.1f} s, {rate:,.0f} events a CPU second")
    return rate, _overlap(log, began_ms)


def _overlap(log: Path, began_ms: float) -> float:
    """Return the share of time when more than one executor had a task, of the time when any had."""
    changes: list[tuple[int, str, int]] = []
    for path in log.rglob("events_*"):
        for event in map(json.loads, path.read_text().splitlines()):
            task = event.get("Task Info")
            if event["Event"] == "SparkListenerTaskEnd" and task["Launch Time"] >= began_ms:
                changes += (task["Launch Time"], task["Executor ID"], 1), (task["Finish Time"], task["Executor ID"], -1)
    busy, any_ms, both_ms, last_ms = Counter[str](), 0, 0, 0
    for at_ms, executor, change in sorted(changes):
        at_work = sum(1 for tasks in busy.values() if tasks > 0)
        any_ms += (at_ms - last_ms) * (at_work > 0)
        both_ms += (at_ms - last_ms) * (at_work > 1)
        busy[executor] += change
        last_ms = at_ms
    return both_ms / max(any_ms, 1)


if __name__ == "__main__":
    main()
