"""`wakeq cluster try`: three nodes on this machine, for trying.

    data directory, first port --> three `wakeq serve` processes, whose lines are shown --> until a signal ends them

Three nodes on one machine survive the death of one process, not that of the machine: it is for trying, not for work.
"""

import contextlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import cast

import click

from wakeq.protocol.errors import BadSettings
from wakeq.storage.cluster_secret import write_secret

NODES = 3
PORTS_APART = 10  # between the ports of one node and of the next
SECRET_NAME = "cluster.secret"  # in the data directory
HTTP_PORT, WORKER_PORT, TASKFLUX_PORT, PEER_PORT = 8080, 2601, 2602, 2603


@click.command("try")
@click.option("--data-dir", type=click.Path(path_type=Path), default="wakeq-cluster", show_default=True)
@click.option("--free-ports", is_flag=True, help="Use any free ports instead of 2601, 2611 and 2621.")
@click.option("--set", "others", metavar="NAME=VALUE", multiple=True, help="A setting for all nodes; repeatable.")
def trial(data_dir: Path, free_ports: bool, others: tuple[str, ...]) -> int:
    """Run three nodes on this machine, to try out a cluster.

    Until SIGTERM or SIGINT.
    """
    peer_ports = _free(NODES) if free_ports else [PEER_PORT + PORTS_APART * node for node in range(NODES)]
    peers = ",".join(f"127.0.0.1:{port}" for port in peer_ports)
    settings = [word for other in (_secret(data_dir), *others) for word in ("--set", other)]
    stopping = threading.Event()
    doors = Doors()
    nodes = [
        _start(node, data_dir / f"node-{node}", peers, [*_ports(node, free_ports), *settings]) for node in range(NODES)
    ]
    for node, process in enumerate(nodes):
        threading.Thread(target=show, args=(node, process, stopping, doors), daemon=True).start()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for process in nodes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return max(process.wait() for process in nodes)


def _secret(data_dir: Path) -> str:
    """Make the secret of this cluster if it has none; return the setting that names it."""
    path = data_dir / SECRET_NAME
    if not path.exists():
        write_secret(path)
    return f"cluster.secret_file={path}"


def _start(node: int, data_dir: Path, peers: str, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    place = ["--node", str(node), "--peers", peers, "--data-dir", str(data_dir)]
    return subprocess.Popen(
        [sys.executable, "-m", "wakeq", "serve", *place, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # its log: it says "this node"
        text=True,
        process_group=0,  # a Ctrl-C is ours to pass on
    )


class Doors:
    """Where the nodes are, as they say when they are ready.  Each is heard by a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[int, dict[str, str]] = {}

    def heard(self, node: int, line: str) -> str | None:
        """Take a line of a node; return how clients find the cluster when the last node was heard of."""
        if not line.startswith("wakeq ready "):
            return None
        with self._lock:
            self._ready[node] = dict(door.split("=", 1) for door in line.split()[2:])
            if len(self._ready) < NODES:
                return None
            brokers, pages = (",".join(self._ready[node][door] for node in range(NODES)) for door in ("worker", "http"))
            return f"export WAKEQ_BROKER={brokers} WAKEQ_HTTP={pages}"

    def filled_in(self, node: int, command: Sequence[str]) -> list[str]:
        """The command of a node with the ports that it had, where it could take any: clients look for it there."""
        with self._lock:
            doors = self._ready.get(node, {})
        flags = {f"--{door}-port": address.rpartition(":")[2] for door, address in doors.items()}
        return [flags.get(before, word) if word == "0" else word for before, word in pairwise(["", *command])]


def show(node: int, process: "subprocess.Popen[str]", stopping: threading.Event, doors: Doors) -> None:
    """Print what a node says, and, if it ends before all are stopped, how it is started again."""
    assert process.stdout is not None, "it was asked for"
    for line in process.stdout:
        click.echo(f"node {node}: {line.rstrip()}")
        if found := doors.heard(node, line):
            click.echo(f"three nodes are up; in another terminal:  {found}")
    if not stopping.is_set():
        status = process.wait()
        ending = f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
        again = doors.filled_in(node, cast(list[str], process.args))
        click.echo(f"node {node} {ending}; start it again by: {shlex.join(again)}")


def _ports(node: int, free_ports: bool) -> list[str]:
    if free_ports:
        return ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
    ports = {"worker": WORKER_PORT, "http": HTTP_PORT, "taskflux": TASKFLUX_PORT}
    return [word for name, first in ports.items() for word in (f"--{name}-port", str(first + PORTS_APART * node))]


def _free(count: int) -> list[int]:
    """Return ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        try:
            for one in sockets:
                one.bind(("127.0.0.1", 0))
        except OSError as error:
            raise BadSettings(f"no free port on 127.0.0.1: {error.strerror}") from error
        return [int(one.getsockname()[1]) for one in sockets]
