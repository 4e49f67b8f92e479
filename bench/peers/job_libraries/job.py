"""The job of every library: it takes its number and some ballast, and leaves its mark.

Imported by the processes of a library only, which are told by their environment where the broker and the marks are.
"""

import os
from pathlib import Path

from bench.peers.job_libraries.marks import Marks

PORT = int(os.environ["BENCH_JOBS_PORT"])
BALLAST = "x" * 100
THREADS = 8

leave_mark = Marks(Path(os.environ["BENCH_JOBS_MARKS"])).leave
