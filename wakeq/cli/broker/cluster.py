"""`wakeq cluster`: the commands for a cluster's operator, over the worker protocol; and `try`, a cluster to try out.

    data directory, first port --> three `wakeq serve` processes, whose output is shown --> until a signal ends them

Three nodes on one machine survive the death of a process but not of the machine: that is not for production.
"""

import contextlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, cast

import click

from wakeq.cli.common import Broker, confirm, json_option, yes_option
from wakeq.cli.output import print_facts, print_json, print_table, say
from wakeq.cli.progress import progress
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, CannotListen, Disconnected, NoQuorum
from wakeq.storage.credentials import make_secret, write_secret

MEMBER_COLUMNS = ("node", "address", "votes", "is_connected", "behind_bytes")
NODE = click.IntRange(min=0)
TRANSFER_S_MAX = 5.0
POLL_S = 0.05

NODES = 3
# Between the ports of one node and those of the next.
PORTS_APART = 10
# In the data directory.
PEERS_NAME = "peers"  # in the directory of a trial cluster
SECRET_NAME = "cluster.secret"
HTTP_PORT, WORKER_PORT, TASKFLUX_PORT, PEER_PORT = 8080, 2601, 2602, 2603


@click.group()
def cluster() -> None:
    """Show a cluster, add and remove nodes, choose the leader."""


@cluster.command()
@json_option
@click.pass_obj
def status(broker: Broker, as_json: bool) -> None:
    """Show the cluster as the node at --broker sees it.

    If --broker names several nodes, the leader is asked, or if none leads, the first that answers.  Only the
    leader knows how far behind the others are.
    """
    facts = _known_to(broker)
    if as_json:
        print_json(facts)
        return
    members: list[dict[str, Any]] = facts.pop("members")
    print_facts(facts)
    print_table(MEMBER_COLUMNS, ([member[column] for column in MEMBER_COLUMNS] for member in members))


def _known_to(broker: Broker) -> dict[str, Any]:
    """Return the facts of the leader among the named nodes, or of the first node that answers."""
    answers: list[dict[str, Any]] = []
    failures: list[BrokerUnreachable | Disconnected] = []
    for address in broker.addresses:
        try:
            with Broker(address).connect() as client:
                answers.append(client.cluster())
        except (BrokerUnreachable, Disconnected) as error:
            failures.append(error)
            continue
        if answers[-1]["serves"]:
            return answers[-1]
    if not answers:
        raise failures[-1]
    return answers[0]


@cluster.command()
@click.argument("node", type=NODE, required=False)
@json_option
@click.pass_obj
def transfer(broker: Broker, node: int | None, as_json: bool) -> None:
    """Make NODE, or the most advanced node, the leader."""
    with broker.connect() as client:
        successor = client.cluster("transfer", node=node)["transferring_to"]
        until_s = time.monotonic() + TRANSFER_S_MAX
        while client.cluster()["leader"] != successor:
            if time.monotonic() > until_s:
                raise NoQuorum(
                    f"node {successor} does not lead yet after {TRANSFER_S_MAX:g} s; see `wakeq cluster status`"
                )
            time.sleep(POLL_S)
    print_json({"leader": successor}) if as_json else click.echo(f"node {successor} leads")


@cluster.command()
@click.argument("node", type=NODE)
@click.argument("address", metavar="HOST:PORT")
@json_option
@click.pass_obj
def add(broker: Broker, node: int, address: str, as_json: bool) -> None:
    """Add NODE, which the other nodes reach at HOST:PORT.

    It votes once it has caught up.  Start it with --join.
    """
    with broker.connect() as client:
        facts = client.cluster("add", node=node, address=address)
    print_json(facts) if as_json else click.echo(f"node {node} is a member; it votes once it has caught up")


@cluster.command()
@click.argument("node", type=NODE)
@json_option
@yes_option
@click.pass_obj
def remove(broker: Broker, node: int, as_json: bool, yes: bool) -> None:
    """Remove NODE from the cluster."""
    confirm(f"Remove node {node} from the cluster?", yes=yes)
    with broker.connect() as client:
        facts = client.cluster("remove", node=node)
    print_json(facts) if as_json else click.echo(f"node {node} was removed; shut it down if it is still running")


@cluster.command()
@json_option
@click.pass_obj
def snapshot(broker: Broker, as_json: bool) -> None:
    """Write a snapshot of the node at --broker now, and trim its log."""
    with broker.connect() as client, progress("writing the snapshot", is_wanted=not as_json):
        facts = client.cluster("snapshot")
    print_json(facts) if as_json else click.echo(f"snapshot written, up to entry {facts['index']} of the log")


@cluster.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to this new file, which only its owner can read; default: print it.",
)
def secret(out: Path | None) -> None:
    """Make a secret that proves which nodes belong together.

    Every node gets the same one, in the setting cluster.secret_file.
    """
    if out is None:
        click.echo(make_secret())
    else:
        write_secret(out)
        say(f"{out}: copy this file to every node, and set cluster.secret_file to it")


@cluster.command()
@click.option(
    "--data-dir", type=click.Path(path_type=Path), metavar="DIR", required=True, help="The data directory of this node."
)
@click.option(
    "--from-this-node",
    is_flag=True,
    required=True,
    help="Required, to confirm that data which only the other nodes had is lost.",
)
@yes_option
def recover(data_dir: Path, from_this_node: bool, yes: bool) -> None:
    """Continue with this node alone after a majority was lost.

    Data that was confirmed but had not reached this node is lost.  Never start the other nodes again with their old
    data.
    """
    confirm("Is a majority of the nodes lost for good, and should this node continue alone?", yes=yes)
    from wakeq.data.recover import recover_alone

    click.echo(recover_alone(data_dir))


@cluster.command("try")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", default="wakeq-cluster", show_default=True,
              help="Where the nodes keep their data.")  # fmt: skip
@click.option(
    "--free-ports",
    is_flag=True,
    help="Use any free ports, as it does by itself if one of 2601, 2611, 2621 ... is in use.",
)
@click.option("--set", "others", metavar="NAME=VALUE", multiple=True, help="A setting for all nodes; repeatable.")
def trial(data_dir: Path, free_ports: bool, others: tuple[str, ...]) -> int:
    """Run three nodes on this machine, to try out a cluster.

    They run until SIGTERM or SIGINT (Ctrl-C), and continue with their data at the next start.
    """
    if not free_ports and (taken := taken_port()) is not None:
        free_ports = True
        click.echo(f"port {taken} is in use, so the nodes use free ports; they are shown when all three are up")
    peers = peers_of(data_dir, free_ports=free_ports)
    check_peer_ports(data_dir, peers)
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
            brokers, pages, taskflux = (
                ",".join(self._ready[node][door] for node in range(NODES)) for door in ("worker", "http", "taskflux")
            )
            return f"export WAKEQ_BROKER={brokers} WAKEQ_HTTP={pages} WAKEQ_TASKFLUX={taskflux}"

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


def taken_port() -> int | None:
    """Return a port that a node would use by default and another program has; None if there is none."""
    for first in (WORKER_PORT, HTTP_PORT, TASKFLUX_PORT, PEER_PORT):
        for node in range(NODES):
            port = first + PORTS_APART * node
            if not _is_free(port):
                return port
    return None


def check_peer_ports(data_dir: Path, peers: str) -> None:
    """Refuse to start nodes whose addresses another program has: the other nodes know them by these."""
    for node, address in enumerate(peers.split(",")):
        if not _is_free(int(address.rpartition(":")[2])):
            raise CannotListen(
                f"{address}, the address of node {node} of {data_dir}, is in use, perhaps because this cluster runs "
                "already; stop the program there, or choose another --data-dir"
            )


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def peers_of(data_dir: Path, *, free_ports: bool) -> str:
    """Return the addresses of the nodes for each other.

    They are chosen once for a data directory: the nodes know each other by the addresses in their log.
    """
    path = data_dir / PEERS_NAME
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    has_data = (data_dir / "node-0").exists()  # made before the addresses were kept
    ports = _free(NODES) if free_ports and not has_data else [PEER_PORT + PORTS_APART * node for node in range(NODES)]
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    data_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{peers}\n", encoding="utf-8")
    return peers


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
