"""A cluster of real `wakeq serve` processes on this machine, and a client of it that follows the leader.

    data directories --> nodes, each with a fixed port for the others --> kill, stop, pause, restart any of them

The client uses no code of wakeq: it reads `NOT_LEADER` and `leader`, and an answer that never came is unknown.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers.brokers.process import THIS_RELEASE, BrokerProcess
from tests.helpers.clients.lines import AsyncLineClient, LineClient, Message
from tests.helpers.network.namespaces import Network
from tests.helpers.network.ports import free_ports
from tests.helpers.programs.started import eventually
from wakeq.storage.credentials import write_secret

ANSWER_S_MAX = 3.0  # a node that says nothing for so long is left
NOBODY_LEADS_S = 0.02  # before the next one is asked
SERVES_ON_S = 0.35  # half of `cluster.election_ms`: for so long a leader hands out that has lost the others
ELSEWHERE = ("NOT_LEADER", "NO_QUORUM")


class ClusterClient(AsyncLineClient):
    """A connection that ends when its node sends it away or says nothing; UNKNOWN is no answer either."""

    cluster: "Cluster"
    _was_served = False  # by the node at the other end

    def call(self, message: Message) -> "asyncio.Future[Message]":
        future = super().call(message)
        asyncio.get_running_loop().call_later(ANSWER_S_MAX, self._leave_if_mute, future)
        return future

    def _leave_if_mute(self, future: "asyncio.Future[Message]") -> None:
        if not future.done():
            self.cluster.forget_leader()
            self.close()

    def _answer(self, reply: Message) -> None:
        error = reply.get("err")
        if error == "UNKNOWN":
            self._in_order.popleft().set_exception(ConnectionError("the outcome is unknown"))
            return
        super()._answer(reply)
        if error not in ELSEWHERE:
            self._was_served = True
        else:
            if self._was_served:
                self.cluster.stepped_down()
            self.cluster.follow(reply.get("leader"))
            self.close()


class Cluster:
    """Nodes by number.  Each keeps its data directory and its ports through all its lives."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *extra_args: str,
        host: str = "127.0.0.1",
        network: Network | None = None,
        has_secret: bool = True,
        command: Sequence[str] = THIS_RELEASE,
    ) -> None:
        self._name, self._network, self._command = host, network, command
        self.secret_file = directory / "cluster.secret"
        if has_secret:
            if not self.secret_file.exists():
                write_secret(self.secret_file)
            extra_args = (*extra_args, "--set", f"cluster.secret_file={self.secret_file}")
        ports = free_ports(3 * count)
        self._worker_ports, self._taskflux_ports = ports[:count], ports[count : 2 * count]
        self.peer_addresses = [f"{self._host(node)}:{port}" for node, port in enumerate(ports[2 * count :])]
        self._directory = directory
        self._extra_args = extra_args
        self.nodes = [self._make(node, ",".join(self.peer_addresses)) for node in range(count)]
        self.leading = self.nodes[0]  # when it was last asked who leads
        self._leader: tuple[str, int] | None = None
        self._turn = 0
        self.stepped_down: Callable[[], None] = lambda: None  # a node that served a client does so no longer

    def _make(self, node: int, peers: str, *extra_args: str) -> BrokerProcess:
        place = ("--node", str(node), "--peers", peers, "--worker-port", str(self._worker_ports[node]))
        place += ("--host", self._host(node), "--insecure", "--taskflux-port", str(self._taskflux_ports[node]))
        arguments = (*place, *self._extra_args, *extra_args)
        prefix = () if self._network is None else self._network.prefix(node)
        return BrokerProcess(self._directory / f"node-{node}", *arguments, command=self._command, prefix=prefix)

    def _host(self, node: int) -> str:
        return self._name if self._network is None else self._network.address(node)

    def start(self) -> Self:
        """Start all of them at once, and wait until one leads."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self._leader = self.leader().worker_address
        return self

    def add(self) -> BrokerProcess:
        """Start one more node, which nobody has heard of yet."""
        port, worker_port, taskflux_port = free_ports(3)
        self._worker_ports.append(worker_port)
        self._taskflux_ports.append(taskflux_port)
        self.peer_addresses.append(f"{self._name}:{port}")
        node = self._make(len(self.nodes), ",".join(self.peer_addresses), "--join")
        self.nodes.append(node)
        return node

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- who leads ---

    def leader(self, among: list[BrokerProcess] | None = None) -> BrokerProcess:
        """Wait until one of the running nodes serves, and return it."""
        found: list[BrokerProcess] = []

        def serves() -> bool:
            found[:] = [node for node in among or self.nodes if node.running and _serves(node)]
            return bool(found)

        eventually(serves, "a node leads\n" + "\n".join(node.stderr[-2000:] for node in self.nodes))
        self.leading = found[0]
        return found[0]

    def followers(self) -> list[BrokerProcess]:
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    @property
    def addresses(self) -> str:
        """The worker ports of all nodes, as a client is given them."""
        return ",".join(f"{self._host(node)}:{port}" for node, port in enumerate(self._worker_ports))

    @property
    def taskflux_addresses(self) -> str:
        """The same of their TaskFlux ports."""
        return ",".join(f"{self._host(node)}:{port}" for node, port in enumerate(self._taskflux_ports))

    # --- for the load ---

    def address(self) -> tuple[str, int]:
        """Return where to connect to: the leader if one was named, else the next node."""
        if self._leader is not None:
            return self._leader
        self._turn += 1
        return self.nodes[self._turn % len(self.nodes)].worker_address

    async def connect(self, address: tuple[str, int] | None = None) -> ClusterClient:
        """Connect there, or to wherever the leader is thought to be."""
        if self._leader is None:
            await asyncio.sleep(NOBODY_LEADS_S)
        try:
            client = await ClusterClient.connect(address or self.address())
        except OSError:
            self.forget_leader()
            raise
        client.cluster = self
        return client

    def follow(self, leader: str | None) -> None:
        """Go where a node says that the leader is."""
        host, _, port = (leader or "").rpartition(":")
        self._leader = (host, int(port)) if port else None

    def forget_leader(self) -> None:
        self._leader = None


def _serves(node: BrokerProcess) -> bool:
    try:
        with LineClient(node.worker_address, timeout_s=ANSWER_S_MAX) as client:
            return bool(client.ask("LIST")["cmd"] != "nok")
    except (OSError, ConnectionError):
        return False
