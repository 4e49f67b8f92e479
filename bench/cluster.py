"""Three nodes on this machine: the gaps that clients see when the leader is killed, and the return of an absent node.

    python -m bench.cluster failover [--kills 50]        the gap between two publishes around a kill -9 of the leader
    python -m bench.cluster away [--entries 100000]      how long a follower takes to have what it missed, under load

Prints a report and keeps it as bench/results/<date>-cluster-<what>.md.  The clients speak the worker protocol.
"""

import argparse
import asyncio
import datetime
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self, cast

import uvloop

from bench import machine
from bench.peers.peer import REPOSITORY
from bench.report import table
from tests.helpers.brokers.process import THIS_RELEASE
from tests.helpers.brokers.sized import sized
from wakeq import AsyncClient

RESULTS = Path(__file__).parent / "results"
NODES = 3
QUEUE = "bench"
PUBLISHERS = 96  # connections of the load, each with one publish under way: each is an entry of its own
BODY = "x" * 100
SLOT_S = 0.1  # of the histogram
READY_S_MAX = 30.0
LOOK_AGAIN_S = 0.02
SETTLED_S = 4.0  # of load before it is measured, and while it is
KEPT_UP_BYTES = 256 << 10  # so little is under way at any moment
PUBLISH = json.dumps({"cmd": "PUB", "qname": QUEUE, "message": BODY}).encode() + b"\n"
STATUS = b'{"cmd":"CLUSTER"}\n'
# Every 64 MiB each node seals a segment and writes an image; neither span may include that.
NO_IMAGES = sized(segment_bytes_max=1 << 30, snapshot_bytes_min=1 << 30)


class Trio:
    """Three nodes that keep their ports and data through all their lives."""

    def __init__(self, folder: Path, command: Sequence[str] = THIS_RELEASE) -> None:
        ports = free_ports(2 * NODES)
        self.worker_ports = ports[:NODES]
        self.peers = ",".join(f"127.0.0.1:{port}" for port in ports[NODES:])
        self._folder = folder
        self._command = command
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * NODES

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.worker_ports)

    def start(self, node: int) -> None:
        place = ["--node", str(node), "--peers", self.peers, "--worker-port", str(self.worker_ports[node])]
        others = ["--http-port", "0", "--taskflux-port", "0", "--data-dir", str(self._folder / f"node-{node}")]
        with open(self._folder / f"node-{node}.log", "ab") as log:
            self._processes[node] = subprocess.Popen([*self._command, *place, *others], stdout=log, stderr=log)

    def kill(self, node: int) -> None:
        process = self._processes[node]
        assert process is not None, "it was started"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def cpu_s(self, node: int) -> float:
        """CPU time that the present life of a node took until now."""
        process = self._processes[node]
        assert process is not None, "it was started"
        return machine.cpu_s([process.pid])

    async def leader(self) -> int:
        """Wait until one of them serves."""
        until_s = time.monotonic() + READY_S_MAX
        while time.monotonic() < until_s:
            for node in range(NODES):
                status = await self.status(node)
                if status is not None and status["serves"]:
                    return node
            await asyncio.sleep(LOOK_AGAIN_S)
        raise SystemExit(f"no node serves after {READY_S_MAX} s; their logs are in {self._folder}")

    async def status(self, node: int) -> dict[str, Any] | None:
        """Return a node's view of the cluster, or None if it does not answer."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.worker_ports[node])
        except OSError:
            return None
        try:
            writer.write(STATUS)
            return dict(json.loads(await asyncio.wait_for(reader.readline(), 1.0))["cluster"])
        except (OSError, ValueError, KeyError):
            return None
        finally:
            writer.close()

    async def behind_bytes(self, leader: int, node: int) -> int | None:
        """Return how much of the log a node lacks, None if it is not there."""
        status = await self.status(leader)
        members = [] if status is None else status["members"]
        return next((m["behind_bytes"] for m in members if m["node"] == node and m["is_connected"]), None)

    def __enter__(self) -> Self:
        for node in range(NODES):
            self.start(node)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that are free at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


# --- failover ---------------------------------------------------------------------------------------------------------


async def failover(trio: Trio, kills: int) -> str:
    """Publish all the time, kill the leader again and again, and measure the gaps."""
    confirmed_s: list[float] = []
    is_over = asyncio.Event()

    async def publish() -> None:
        async with AsyncClient(trio.addresses) as client:
            while not is_over.is_set():
                await client.publish(QUEUE, BODY)
                confirmed_s.append(time.monotonic())

    await trio.leader()
    task = asyncio.create_task(publish())
    gaps_s = []
    for _ in range(kills):
        leader = await trio.leader()
        await _all_keep_up(trio, leader)
        killed_s = time.monotonic()
        trio.kill(leader)
        while not confirmed_s or confirmed_s[-1] <= killed_s:
            await asyncio.sleep(LOOK_AGAIN_S / 4)
            assert not task.done(), "a client gives up only after much longer"
        gaps_s.append(next(at_s for at_s in confirmed_s if at_s > killed_s) - killed_s)
        trio.start(leader)
    is_over.set()
    await task
    return histogram(gaps_s)


async def _all_keep_up(trio: Trio, leader: int) -> None:
    for node in range(NODES):
        while (behind := await trio.behind_bytes(leader, node)) is None or behind > KEPT_UP_BYTES:
            await asyncio.sleep(LOOK_AGAIN_S)


def histogram(gaps_s: list[float]) -> str:
    ordered = sorted(gaps_s)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    slots = sorted({int(gap_s / SLOT_S) for gap_s in ordered})
    rows = [
        (f"{slot * SLOT_S:.1f} to {(slot + 1) * SLOT_S:.1f} s", "#" * sum(int(gap / SLOT_S) == slot for gap in ordered))
        for slot in range(slots[0], slots[-1] + 1)
    ]
    head = f"{len(ordered)} kills: p50 {median(ordered):.2f} s, p99 {p99:.2f} s, longest {ordered[-1]:.2f} s"
    figures = table(("from the kill to the next confirmed publish", "how often"), rows)
    return f"{head} (asked: p99 at most 2 s)\n\n{figures}"


# --- a follower that was away -----------------------------------------------------------------------------------------


class Publisher(asyncio.Protocol):
    """One connection: the next publish leaves when the one before is confirmed."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.is_over = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(PUBLISH)

    def data_received(self, data: bytes) -> None:
        if b'"nok"' in data:
            raise SystemExit(f"a publish was refused: {data[:300]!r}")
        self.confirmed += data.count(b"\n")
        if self._transport is not None and not self.is_over:
            self._transport.write(PUBLISH)


async def away(trio: Trio, entries: int) -> str:
    """Kill a follower, write so many entries without it, start it, and watch it under the same load."""
    leader = await trio.leader()
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Publisher, "127.0.0.1", trio.worker_ports[leader]) for _ in range(PUBLISHERS)]
    publishers = [publisher for _, publisher in made]
    cpu_s, before = trio.cpu_s(leader), confirmed(publishers)
    together = await rate(publishers, SETTLED_S)
    together_per_cpu = (confirmed(publishers) - before) / (trio.cpu_s(leader) - cpu_s)
    absent = (leader + 1) % NODES
    trio.kill(absent)
    first = await _last_index(trio, leader)
    while await _last_index(trio, leader) < first + entries:
        await asyncio.sleep(LOOK_AGAIN_S)
    alone = await rate(publishers, SETTLED_S)
    missed = await _last_index(trio, leader) - first
    other = NODES - leader - absent
    started_s, cpu_s, before, other_s = time.monotonic(), trio.cpu_s(leader), confirmed(publishers), trio.cpu_s(other)
    trio.start(absent)
    while (behind := await trio.behind_bytes(leader, absent)) is None:
        await asyncio.sleep(LOOK_AGAIN_S)
    connected_s, imports_s = time.monotonic(), trio.cpu_s(absent)
    while behind is None or behind > KEPT_UP_BYTES:
        await asyncio.sleep(LOOK_AGAIN_S)
        behind = await trio.behind_bytes(leader, absent)
    caught_up_s = time.monotonic()
    meanwhile = (confirmed(publishers) - before) / (caught_up_s - started_s)
    meanwhile_per_cpu = (confirmed(publishers) - before) / (trio.cpu_s(leader) - cpu_s)
    spans = (trio.cpu_s(leader) - cpu_s, trio.cpu_s(other) - other_s, imports_s, trio.cpu_s(absent) - imports_s)
    again = await rate(publishers, SETTLED_S)
    for publisher in publishers:
        publisher.is_over = True
    rows = [
        ("publishes a second, all three there", f"{together:,.0f}"),
        ("publishes a second, one away", f"{alone:,.0f}"),
        ("publishes a second while it starts and catches up", f"{meanwhile:,.0f}"),
        ("publishes a second, all three again", f"{again:,.0f}"),
        ("of that, while it starts and catches up", f"{meanwhile / together:.0%} (asked: 80 %)"),
        ("publishes for each second of the leader's CPU, all three there", f"{together_per_cpu:,.0f}"),
        ("of that, while it starts and catches up", f"{meanwhile_per_cpu / together_per_cpu:.0%}"),
        ("entries that it missed until it was started", f"{missed:,}"),
        ("seconds from its start to its connection", f"{connected_s - started_s:.2f}"),
        ("seconds from its connection until it keeps up", f"{caught_up_s - connected_s:.2f} (asked: 10)"),
        ("CPU seconds meanwhile: leader", f"{spans[0]:.2f}"),
        ("the other follower", f"{spans[1]:.2f}"),
        ("the one that was away, until its connection", f"{spans[2]:.2f}"),
        ("the one that was away, from then on", f"{spans[3]:.2f}"),
    ]
    return table(("", "figure"), rows)


async def rate(publishers: list[Publisher], seconds: float) -> float:
    """Let the load run for so long; return publishes a second."""
    before, began_s = confirmed(publishers), time.monotonic()
    await asyncio.sleep(seconds)
    return (confirmed(publishers) - before) / (time.monotonic() - began_s)


def confirmed(publishers: list[Publisher]) -> int:
    return sum(publisher.confirmed for publisher in publishers)


async def _last_index(trio: Trio, leader: int) -> int:
    status = await trio.status(leader)
    return 0 if status is None else int(status["last_index"])


# --- the command line -------------------------------------------------------------------------------------------------


async def measure(what: str, chosen: argparse.Namespace, home: Path) -> str:
    with Trio(home, NO_IMAGES if what == "away" else THIS_RELEASE) as trio:
        busy_s, began_s = machine.busy_cpu_s(), time.monotonic()
        figures = await (failover(trio, chosen.kills) if what == "failover" else away(trio, chosen.entries))
        busy = (machine.busy_cpu_s() - busy_s) / (time.monotonic() - began_s)
    about = f"- {machine.facts(home)}\n- everything on the machine together used {busy:.0%} of one core"
    today = datetime.datetime.now(datetime.UTC).date()
    command = f"python -m bench.cluster {what}"
    return f"# Three nodes on one machine: {what}, {today}\n\n    {command}\n\n{about}\n\n{figures}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="Measure a cluster's bad moments.")
    parser.add_argument("what", choices=("failover", "away"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--entries", type=int, default=100_000)
    chosen = parser.parse_args()
    parent = Path(os.environ.get("WAKEQ_BENCH_DIR") or REPOSITORY.parent)
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-", dir=parent) as home:
        report = uvloop.run(measure(chosen.what, chosen, Path(home)))
    today = datetime.datetime.now(datetime.UTC).date()
    (RESULTS / f"{today}-cluster-{chosen.what}.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
