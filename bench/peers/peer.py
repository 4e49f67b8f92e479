"""Peer: one server as a subprocess with a data directory of its own, and the clients that speak its protocol.

A peer is started fresh or on what it left behind, is asked what it costs, and is ended by its own process
id; no process that was not started here is ever touched.
"""

import asyncio
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.load.clients import Caller, Connection, Consumer, Member, PeerFailed, Producer, connect
from bench.load.flow import Flow, Load

START_S_MAX = 90.0
STOP_S_MAX = 60.0
ANSWER_S_MAX = 10.0
REPOSITORY = Path(__file__).parents[2]
LOG_TAIL_BYTES = 600
PORTS = range(21_000, 31_000)  # below the range that clients' sockets are given from
_ports_used: set[int] = set()


def free_port() -> int:
    """Return a free port on the loopback that this run has not used before."""
    start = PORTS.start + os.getpid() * 7 % 5_000
    for port in range(start, PORTS.stop):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port in _ports_used or probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        _ports_used.add(port)
        return port
    raise PeerFailed("no free port on the loopback")


def find_program(name: str) -> str | None:
    """Debian keeps servers in /usr/sbin, which an ordinary PATH leaves out."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_S_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({type(error).__name__})"
    return (done.stdout + done.stderr).strip()


class Peer(ABC):
    name: str
    durability: str
    program: str | None = None  # must be installed
    caller_class: type[Caller]
    producer_class: type[Producer]
    consumer_class: type[Consumer]
    member_class: type[Member]  # where W12 makes sense
    recovers = True  # False: a restart is not worth measuring
    batch_max = 1  # messages in one publish request

    def __init__(self, home: Path) -> None:
        self.folder = home / self.name
        self.log = home / f"{self.name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    # Defined by a peer's module ---------------------------------------------------------------------------

    @classmethod
    def missing(cls) -> str | None:
        """A sentence about why it cannot be measured here, or None."""
        if cls.program is None or find_program(cls.program):
            return None
        return f"{cls.name} is skipped: {cls.program} is not installed."

    @classmethod
    def version(cls) -> str:
        return ""

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str] | None:
        return None

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Once on a fresh server."""

    def main_pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    # The server -------------------------------------------------------------------------------------------

    async def start(self, *, fresh: bool = True) -> None:
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=REPOSITORY,
                start_new_session=True,
            )
        await self._until_ready()
        if fresh:
            await self.prepare()

    async def _until_ready(self) -> None:
        assert self.process is not None
        gives_up_at = time.perf_counter() + START_S_MAX
        while not await self.is_ready():
            if self.process.poll() is not None:
                raise PeerFailed(f"{self.name} ended with {self.process.returncode}: {self.log_tail()}")
            if time.perf_counter() > gives_up_at:
                raise PeerFailed(f"{self.name} was not ready in {START_S_MAX:.0f} s: {self.log_tail()}")
            await asyncio.sleep(0.005)

    async def is_ready(self) -> bool:
        try:
            (await self.caller()).close()
        except (OSError, PeerFailed):
            return False
        return True

    def log_tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "it said nothing"

    async def stop(self, *, kill: bool = False) -> None:
        """Send SIGTERM and wait, or SIGKILL; then kill every process that is left of it."""
        if self.process is None:
            return
        if self.process.poll() is None:
            os.kill(self.main_pid(), signal.SIGKILL if kill else signal.SIGTERM)
        gives_up_at = time.perf_counter() + STOP_S_MAX
        while self.process.poll() is None:
            if time.perf_counter() > gives_up_at:
                for pid in self.pids():
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.005)
        self.process = None

    def wipe(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # Its cost ----------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        assert self.process is not None
        return machine.process_tree(self.process.pid)

    def meter(self) -> machine.Meter:
        return machine.Meter(self.pids)

    def memory(self) -> machine.Memory:
        return machine.memory_of(self.pids())

    # Its clients ------------------------------------------------------------------------------------------

    async def caller(self) -> Caller:
        return await connect(self.caller_class(), self.port)

    async def producers(self, count: int, flow: Flow, load: Load) -> list[Producer]:
        return [await connect(self.producer_class(flow, load), self.port) for _ in range(count)]

    async def consumers(self, count: int, flow: Flow, window: int) -> list[Consumer]:
        return [await connect(self.consumer_class(flow, window), self.port) for _ in range(count)]

    async def members(self, count: int, flow: Flow, load: Load) -> list[Member]:
        """Each works on one of the load's queues."""
        queues = itertools.islice(itertools.cycle(load.queues), count)
        return [await connect(self.member_class(flow, load.body, queue), self.port) for queue in queues]


def close_all(*groups: Sequence[Connection]) -> None:
    for group in groups:
        for client in group:
            client.close()
