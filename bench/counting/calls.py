"""How many functions the server calls for one message: the measure that no neighbour and no clock disturbs.

In go two runs of a workload against wakeq under cProfile, a short one and a longer one; out comes what the second one
called more, for each thing that it did more.  Only the thread of the event loop is counted.
"""

import pstats
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.peers.wakeq import Wakeq, program
from bench.report import table
from bench.workloads.workload import Plan, Workload

LONGER = 3  # times the short run
LEAST = 0.05  # calls for each: what is rarer is not shown
OF_C = ""  # the file of what is no function of Python

Calls = Counter[tuple[str, str]]  # by file and name


class Counted(Wakeq):
    """wakeq, with all its calls written to a file when it has stopped."""

    def __init__(self, home: Path, stats: Path) -> None:
        super().__init__(home)
        self._stats = stats

    def command(self) -> list[str]:
        wakeq = super().command()[len(program()) :]
        return [sys.executable, "-m", "cProfile", "-o", str(self._stats), "-m", "wakeq", *wakeq]


async def count_calls(workload: Workload, plan: Plan, home: Path) -> str:
    short_count, short = await _counted(workload, plan, home)
    long_count, long = await _counted(workload, Plan(seconds=LONGER * plan.seconds), home)
    return summary({key: calls - short[key] for key, calls in long.items()}, long_count - short_count)


async def _counted(workload: Workload, plan: Plan, home: Path) -> tuple[float, Calls]:
    with tempfile.TemporaryDirectory(dir=home) as folder:
        stats = Path(folder) / "stats"
        peer = Counted(home, stats)
        try:
            figures = await workload.run(peer, plan)
        finally:
            await peer.stop()
            peer.wipe()
        return figures["count"], calls_in(stats)


def calls_in(stats: Path) -> Calls:
    calls: Calls = Counter()
    for (file, _line, name), (_primitive, count, *_) in pstats.Stats(str(stats)).stats.items():  # type: ignore[attr-defined]
        calls[OF_C if file == "~" else file, name] += count
    return calls


def _place_of(file: str) -> str:
    _, ours, rest = file.rpartition("/wakeq/")
    return rest if ours or file == OF_C else "elsewhere"


def summary(calls: dict[tuple[str, str], int], count: float) -> str:
    """A line for each file of ours; those of C together."""
    by_file: Counter[str] = Counter()
    for (file, _), more in calls.items():
        by_file[_place_of(file)] += more
    of_c = by_file.pop(OF_C, 0)
    head = f"for each of {count:,.0f}: {by_file.total() / count:.1f} calls of Python, {of_c / count:.1f} of C"
    rows = [[file, f"{more / count:.2f}"] for file, more in by_file.most_common() if more >= LEAST * count]
    return f"{head}\n\n{table(['file', 'calls'], rows)}"
