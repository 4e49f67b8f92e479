"""Where the server's time goes: one workload against wakeq, with py-spy looking on.

In goes a workload, out comes a table of the functions that took the most time of their own, and the raw
stacks stay in a file for a flame graph.  py-spy is not a dependency: without it this says so and ends.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.peers.wakeq import Wakeq
from bench.report import table
from bench.workloads.workload import Figures, Plan, Workload

SAMPLES_A_SECOND = 250
TOP = 30


def find_py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise SystemExit("py-spy is not installed; install it with: pip install py-spy")
    return found


class Profiled(Wakeq):
    """wakeq, with a recorder attached from the moment it is ready until it is stopped."""

    def __init__(self, home: Path, raw: Path) -> None:
        super().__init__(home)
        self._raw = raw
        self._recorder: asyncio.subprocess.Process | None = None

    async def prepare(self) -> None:
        await super().prepare()
        options = ["--format", "raw", "--rate", str(SAMPLES_A_SECOND), "--threads", "--nonblocking"]
        self._recorder = await asyncio.create_subprocess_exec(
            find_py_spy(), "record", "--pid", str(self.main_pid()), "--output", str(self._raw), *options,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def stop(self, *, kill: bool = False) -> None:
        if self._recorder is not None and self._recorder.returncode is None:
            os.kill(self._recorder.pid, signal.SIGINT)  # it writes its file then
            await self._recorder.wait()
        await super().stop(kill=kill)


async def profile(workload: Workload, plan: Plan, home: Path) -> str:
    raw = Path(tempfile.gettempdir()) / f"wakeq-{workload.name}.raw"
    raw.unlink(missing_ok=True)
    find_py_spy()
    peer = Profiled(home, raw)
    try:
        figures = await workload.run(peer, plan)
    finally:
        await peer.stop()
    if not raw.exists():
        raise SystemExit("py-spy recorded nothing; it needs the right to trace the server (run as root?)")
    return summary(raw.read_text(), figures) + f"\nraw stacks: {raw}"


def summary(raw: str, figures: Figures) -> str:
    """Self time by thread and function; `raw` has a line `frame;frame;frame COUNT` for each stack."""
    samples: Counter[tuple[str, str]] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        thread = next((frame for frame in frames if frame.startswith("thread (")), "thread ?")
        samples[thread_name(thread), frames[-1]] += int(count)
    total = sum(samples.values()) or 1
    rows = [
        [function, thread, f"{count / total * 100:.1f}", str(count)]
        for (thread, function), count in samples.most_common(TOP)
    ]
    told = " ".join(f"{name}={value:,.0f}" for name, value in figures.items())
    return f"{told}\n\n{table(['function (its own time)', 'thread', '%', 'samples'], rows)}"


def thread_name(frame: str) -> str:
    """`thread (0x7F0B): loop` is shown as `loop`."""
    return frame.rpartition(": ")[2].rstrip(")") if ": " in frame else frame
