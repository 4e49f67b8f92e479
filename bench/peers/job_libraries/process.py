"""Process: the worker or the publisher of a job library while it runs.

In go a command and what the job has to know, out come lines and CPU time.  It ends what it started, with all that
this started in turn, and nothing else.
"""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM

from bench import machine
from bench.load.clients import PeerFailed
from bench.peers.peer import LOG_TAIL_BYTES, REPOSITORY

STOP_S_MAX = 10.0


class Process:
    """Its errors go to a log; lines go in and out only if it is asked something."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, command: Sequence[str], *, port: int, marks: Path, talks: bool) -> "Process":
        log = marks.with_name(f"{name.replace(' ', '-')}.log")
        own = {"PYTHONPATH": str(REPOSITORY), "BENCH_JOBS_PORT": str(port), "BENCH_JOBS_MARKS": str(marks)}
        with log.open("wb") as words:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE if talks else DEVNULL,
                stdout=PIPE if talks else words,
                stderr=words,
                env=os.environ | own,
                cwd=marks.parent,
                start_new_session=True,
            )
        return cls(name, process, log)

    def check(self) -> None:
        """A process that ended by itself will never do the rest."""
        if self._process.returncode is not None:
            words = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "it said nothing"
            raise PeerFailed(f"the {self.name} ended with {self._process.returncode}: {words}")

    async def ask(self, line: str) -> None:
        """Send a line, and wait until it is answered by one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        if not await self._process.stdout.readline():
            await self._process.wait()
            self.check()

    def pids(self) -> list[int]:
        return machine.process_tree(self._process.pid)

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL to the remaining processes."""
        if self._process.returncode is not None:
            return
        started = self.pids()
        self._process.send_signal(SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S_MAX)
        except TimeoutError:
            for pid in started:
                _kill(pid)
            await self._process.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself in this moment
