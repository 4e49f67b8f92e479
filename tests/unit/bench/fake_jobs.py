"""A fake job library for the benchmark's own tests: jobs are lines of a file, and there is no broker in between.

Imported, it publishes; run as a program, it is the worker.  It must never be mistaken for a queue: one publisher,
one worker, and nothing survives.  `die` has the worker end, `skip` has it never do one of the jobs.
"""

import os
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bench.peers.job_libraries.job import leave_mark

SPOOL = Path(os.environ["BENCH_JOBS_MARKS"]).with_name("spool")
LOOK_EVERY_S = 0.005
AT_ONCE = 2
SKIPPED = 7


def publish(numbers: Sequence[int]) -> None:
    with SPOOL.open("a") as spool:
        spool.writelines(f"{number}\n" for number in numbers)


def work(mode: str) -> None:
    with SPOOL.open() as spool:
        while True:
            if mode == "die":
                raise SystemExit("the worker of this test has no wish to work")
            for line in islice(spool, AT_ONCE):
                if mode != "skip" or int(line) != SKIPPED:
                    leave_mark(int(line))
            time.sleep(LOOK_EVERY_S)  # slow enough that a measurement finds something left to do


if __name__ == "__main__":
    work(sys.argv[1])
