"""The runner: puts the workloads through the peers, one cell after the other, and gathers the figures.

In go the options of a run, out come the cells and one report.  It starts one server at a time, ends exactly
that one, and a cell that fails costs nothing but itself.
"""

import asyncio
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine, report
from bench.peers import PEERS
from bench.peers.peer import Peer
from bench.workloads.workload import Figures, Plan, Workload

CELL_S_MAX = 1_800.0
FILES_MAX = 65_536
OTHERS_S = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """The options of the command line."""

    workloads: list[Workload]
    peers: list[type[Peer]]
    plan: Plan
    rounds: int = 1
    json_file: Path | None = None
    keep_in: Path | None = None  # where the report is written
    command: str = "python -m bench"


@dataclass(slots=True)
class Outcome:
    """Figures by workload and peer, one entry for each round; failures in words."""

    cells: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def say(text: str) -> None:
    """Progress goes to the terminal; the report alone is standard output."""
    print(text, file=sys.stderr, flush=True)


def allow_many_files() -> None:
    """Thousands of connections here, and as many in the servers, which inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end_on_sigterm() -> None:
    """Being asked to end is no reason to leave servers and their data behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def present(names: list[str]) -> tuple[list[type[Peer]], list[str]]:
    """The peers that can be measured here, and a sentence for each of the others."""
    sentences = [sentence for name in names if (sentence := PEERS[name].missing())]
    return [PEERS[name] for name in names if not PEERS[name].missing()], sentences


async def run(order: Order, home: Path, skipped: list[str]) -> str:
    """Measure everything, and return the report."""
    allow_many_files()
    end_on_sigterm()
    before = machine_line("before", home)
    outcome = Outcome()
    for turn in range(order.rounds):
        for workload in order.workloads:
            if turn == 0 or workload.repeats:
                await run_workload(workload, order, turn, home, outcome)
    text = compose(order, outcome, skipped, [machine.facts(home), before, machine_line("after", home)])
    if order.keep_in is not None:
        say(f"kept as {keep(text, order, order.keep_in)}")
    return text


async def run_workload(workload: Workload, order: Order, turn: int, home: Path, outcome: Outcome) -> None:
    """One cell for each peer; every second round in the opposite order, so that drift affects all alike."""
    peers = [peer for peer in order.peers if peer.name in workload.peers]
    for peer_class in peers if turn % 2 == 0 else reversed(peers):
        where = f"[{turn + 1}] {workload.name} {peer_class.name}"
        try:
            figures = await run_cell(workload, peer_class(home), order.plan, home)
        except Exception as error:  # whatever broke: the other cells are still worth measuring
            outcome.failures.append(f"{where} failed: {type(error).__name__}: {error}")
            say(outcome.failures[-1])
            figures = {}  # the round keeps its place, since ratios are made within one
        outcome.cells.setdefault(workload.name, {}).setdefault(peer_class.name, []).append(figures)
        if not figures:
            continue
        say(f"{where}: " + " ".join(f"{name}={value:.4g}" for name, value in figures.items()))
        if order.json_file is not None:
            row = {
                "workload": workload.name,
                "peer": peer_class.name,
                "round": turn,
                "at": time.time(),
                **figures,
            }
            with order.json_file.open("a") as file:
                file.write(json.dumps(row) + "\n")


async def run_cell(workload: Workload, peer: Peer, plan: Plan, home: Path) -> Figures:
    sync_before_us = machine.sync_p50_us(home)
    try:
        figures = await asyncio.wait_for(workload.run(peer, plan), CELL_S_MAX)
    finally:
        await peer.stop()
        peer.wipe()
    return figures | {"sync_us": (sync_before_us + machine.sync_p50_us(home)) / 2}


def machine_line(when: str, home: Path) -> str:
    """Measure the disk and the other processes for a moment in which this one is idle."""
    busy_s, own_s = machine.busy_cpu_s(), machine.own_cpu_s()
    time.sleep(OTHERS_S)
    others = (machine.busy_cpu_s() - busy_s - (machine.own_cpu_s() - own_s)) / OTHERS_S * 100
    return f"{when}: fdatasync p50 {machine.sync_p50_us(home):,.0f} us, others use {others:.0f} % of one core"


def compose(order: Order, outcome: Outcome, skipped: list[str], machine_lines: list[str]) -> str:
    asked = {name for workload in order.workloads for name in workload.peers}  # a W1 says nothing of job libraries
    peers = [[peer.name, peer.version() or "-", peer.durability] for peer in order.peers if peer.name in asked]
    parts = [
        f"# Benchmark of {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n",
        f"    {order.command}\n",
        *(f"- {line}" for line in (*machine_lines, *skipped, *outcome.failures)),
        "",
        report.table(["peer", "version", "durability"], peers),
        "",
    ]
    for workload in order.workloads:
        found = outcome.cells.get(workload.name, {})
        if measured := {peer.name: found[peer.name] for peer in order.peers if any(found.get(peer.name, ()))}:
            parts.append(report.section(workload, measured, order.rounds))
    return "\n".join(parts)


def keep(text: str, order: Order, folder: Path) -> Path:
    """<date>-<workloads>.md; a second run on one day gets a number, since results are never overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    names = "-".join(workload.name for workload in order.workloads)
    stem = f"{time.strftime('%Y-%m-%d', time.gmtime())}-{names}"
    path, number = folder / f"{stem}.md", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}.md", number + 1
    path.write_text(text)
    return path


def disk_warnings(folder: Path, filesystem: str) -> list[str]:
    """A sentence when this is no disk at all."""
    if filesystem not in machine.NOT_A_DISK:
        return []
    return [
        f"WARNING: {folder} is on {filesystem}, which is memory: a sync costs nothing there and every "
        "durable figure is fiction. Set WAKEQ_BENCH_DIR to a directory on a disk."
    ]


class Home:
    """The scratch directory of one run: on a real disk, and gone afterwards."""

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="wakeq-bench-", dir=parent))
        self.warnings = disk_warnings(self.path, machine.filesystem_of(self.path))

    def __enter__(self) -> "Home":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
