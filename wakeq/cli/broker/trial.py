"""`wakeq cluster try`: three nodes on this machine, to try out a cluster.

    data directory, first port --> three `wakeq serve` processes, whose output is shown --> until a signal ends them

Three nodes on one machine survive the death of a process but not of the machine: this is not for production.
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
# Between the ports of one node and those of the next.
PORTS_APART = 10
# In the data directory.
SECRET_NAME = "cluster.secret"
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
    ready = ReadyNodes()
    nodes = [
        _start(node, data_dir / f"node-{node}", peers, [*_ports(node, free_ports), *settings]) for node in range(NODES)
    ]
    for node, process in enumerate(nodes):
        threading.Thread(target=show, args=(node, process, stopping, ready), daemon=True).start()

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
        # Its log says "this node", so the lines get the number of the node.
        stderr=subprocess.STDOUT,
        text=True,
        # A Ctrl-C must reach only this process, which passes it on.
        process_group=0,
    )


class ReadyNodes:
    """The addresses in the ready lines of the nodes, each of which a thread of its own reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[int, dict[str, str]] = {}

    def receive_line(self, node: int, line: str) -> str | None:
        """Read a line of a node; after the last ready line, return the command that sets the clients' addresses."""
        if not line.startswith("wakeq ready "):
            return None
        with self._lock:
            self._ready[node] = dict(door.split("=", 1) for door in line.split()[2:])
            if len(self._ready) < NODES:
                return None
            brokers, pages = (",".join(self._ready[node][door] for node in range(NODES)) for door in ("worker", "http"))
            return f"export WAKEQ_BROKER={brokers} WAKEQ_HTTP={pages}"

    def restart_command(self, node: int, command: Sequence[str]) -> list[str]:
        """Return the command of a node with its present ports in place of 0, because clients use these."""
        with self._lock:
            addresses = self._ready.get(node, {})
        flags = {f"--{door}-port": address.rpartition(":")[2] for door, address in addresses.items()}
        return [flags.get(before, word) if word == "0" else word for before, word in pairwise(["", *command])]


def show(node: int, process: "subprocess.Popen[str]", stopping: threading.Event, ready: ReadyNodes) -> None:
    """Print the output of a node, and, if it ends before the shutdown, the command that restarts it."""
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        click.echo(f"node {node}: {line.rstrip()}")
        if found := ready.receive_line(node, line):
            click.echo(f"three nodes are up; in another terminal:  {found}")
    if not stopping.is_set():
        status = process.wait()
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        command = ready.restart_command(node, cast(list[str], process.args))
        click.echo(f"node {node} {ending}; restart it with: {shlex.join(command)}")


def _ports(node: int, free_ports: bool) -> list[str]:
    if free_ports:
        return ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
    ports = {"worker": WORKER_PORT, "http": HTTP_PORT, "taskflux": TASKFLUX_PORT}
    return [word for name, first in ports.items() for word in (f"--{name}-port", str(first + PORTS_APART * node))]


def _free(count: int) -> list[int]:
    """Return ports that are free at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        try:
            for one in sockets:
                one.bind(("127.0.0.1", 0))
        except OSError as error:
            raise BadSettings(f"no free port on 127.0.0.1: {error.strerror}") from error
        return [int(one.getsockname()[1]) for one in sockets]
