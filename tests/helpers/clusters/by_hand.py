"""A cluster by hand: the processes of several nodes on one clock, with a network that can be cut.

    nodes on real files --> frames as they stand on the wire --> each other;   advance, cut, heal, kill, start

    freeze, thaw: one node stands still, as one that was stopped or suspended, and what is for it waits

Nothing waits and nothing is left to chance: node 0 stands for election first, then 1, then 2.  Frames to a node that is
cut off are lost in silence, as on a real network, until the network is healed and the connections are made again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helpers.brokers.broker import Client
from tests.helpers.brokers.by_hand import HandClock, HandDisk, HandTime
from tests.helpers.taskflux.by_hand import HandTaskFlux
from wakeq.actors.log.members import Introduced
from wakeq.actors.log.peer import Broken, Heard, Peer
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.queues.supervisor import Queues, Settings
from wakeq.actors.runtime import Process, Runtime, Timers
from wakeq.actors.sessions.door import Door
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.actors.sessions.worker import WorkerServices, WorkerSession
from wakeq.data.opening import KEEP_NOTHING, open_all
from wakeq.node.assembly import Assembly, ClusterSetup, Environment
from wakeq.node.clock import NodeClock
from wakeq.node.node_addresses import NodeAddresses
from wakeq.protocol.log.format import Identity
from wakeq.protocol.raft.membership import LEVEL, Config, Member
from wakeq.protocol.raft.settings import Settings as RaftSettings
from wakeq.protocol.wire.peer.frames import (
    BODY_BYTES_MAX,
    MARK,
    BodyReader,
    Frame,
    Hello,
    decode_body,
    encode_body,
    framed,
)
from wakeq.protocol.wire.taskflux.commands import ClusterMetadataResponse
from wakeq.protocol.wire.worker.conversation import Limits
from wakeq.storage.log.journal import Keep
from wakeq.testing.manual_time import ManualHandle

CLUSTER_ID = b"a cluster's id.."
ELECTION_S = 1.0
BEAT_S = 0.5


class HandPeerDoor:
    """One end of a connection between two nodes."""

    is_full = False

    def __init__(self, network: "HandCluster", sender: "HandNode", receiver: "HandNode") -> None:
        self.network, self.sender, self.receiver = network, sender, receiver
        self.told: Peer | None = None
        self.other: HandPeerDoor
        self._reader = BodyReader(BODY_BYTES_MAX)

    def begin(self, told: Peer) -> None:
        self.told = told

    def send(self, frames: Sequence[Frame]) -> None:
        network, packet = self.network, (self.other, b"".join(framed(encode_body(frame)) for frame in frames))
        if (self.sender.number, self.receiver.number) in network.cuts:
            return
        if network.delay_s:
            network.time.call_later(network.delay_s, lambda: network.flying.append(packet))
        else:
            network.flying.append(packet)

    def take(self, data: bytes) -> None:
        """Tell the process at this end what arrived."""
        assert self.told is not None, "connected"
        self._reader.receive(data)
        self.told.tell(Heard([decode_body(body) for body in iter(self._reader.next_body, None)]))

    def refuse(self, reason: str) -> None:
        self.close(reason)

    def close(self, reason: str) -> None:
        for end in (self, self.other):
            if end.told is not None and end.sender.is_up:
                end.told.tell(Broken(end, reason))


class HandNode:
    """One node: its files, its processes, its clock; what a test may ask of it."""

    def __init__(self, network: "HandCluster", number: int, path: Path) -> None:
        self.network, self.number, self.path = network, number, path
        self.failures: list[BaseException] = []
        self.clients: list[Client] = []
        self.machine_clock = HandClock(network.time)
        self.is_up = False
        self.life = 0  # counts how often it was killed
        self.is_frozen = False
        self._held: list[Callable[[], object]] = []  # what fell due while it was
        self.workers = 0
        self.addresses = NodeAddresses(number)
        ports = {"worker": "0.0.0.0:2601", "taskflux": "0.0.0.0:2602"}
        self.addresses.open(ports, f"node-{number}", None)

    @property
    def raft_log(self) -> RaftLog:
        return self.assembly.raft_log

    @property
    def queues(self) -> Queues:
        return self.assembly.queues

    @property
    def timers(self) -> Timers:
        return self.assembly.timers

    @property
    def time(self) -> HandTime:
        return self.network.time

    def start(self) -> None:
        self.failures = []
        self.runtime = Runtime()
        self.opened = open_all(
            self.path,
            upgrade=False,
            segment_bytes_max=self.network.segment_bytes_max,
            keep=self.network.keep,
            node_id=self.number,
            new=Identity(CLUSTER_ID, self.number),
        )
        opened = self.opened
        self.log_disk = HandDisk()
        self.clock = NodeClock(
            self.machine_clock, self.runtime, opened.store.applied().clock_ms, opened.metadata.state.clock
        )
        environment = Environment(
            now_ms=self.now_ms,
            stamp_ms=self.now_ms,
            behind_ms=self.clock.behind_ms,
            call_later=self.call_later,
            new_disk=lambda name: self.log_disk if name == "wakeq-log" else HandDisk(),
            new_snapshot_disk=HandDisk,
            failed=self.failures.append,
            monotonic_ms=self.time.monotonic_ms,
            chance=lambda: self.number * 0.3,
        )
        settings = RaftSettings(int(ELECTION_S * 1000), int(ELECTION_S * 100))
        cluster = ClusterSetup(self.network.config, lambda *_: None, self.clock, settings)
        self.assembly = Assembly(
            self.runtime, opened.durable, environment, Settings(), snapshot_bytes_min=1 << 40, cluster=cluster
        )
        self.is_up = True
        for _ in self.assembly.recover():
            self.runtime.run_until_idle()
        self.clock.begin(self.assembly)
        self.services = WorkerServices(self.assembly.raft_log, self.assembly.lobby, Limits(), self.now_ms)
        self.assembly.begin()
        self._beat()

    @property
    def disks(self) -> list[HandDisk]:
        """What this node writes to and reads from: its log first, then its state."""
        disks = (self.log_disk, self.assembly.state_disk, self.assembly.reader_disk)
        return [disk for disk in disks if isinstance(disk, HandDisk)]

    def _beat(self) -> None:
        self.now_ms()
        if self.is_up:
            self.call_later(BEAT_S, self._beat)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualHandle:
        """Call back once the time has come and this node is not frozen, unless it is killed before."""
        life = self.life

        def call() -> None:
            if self.is_frozen:
                self._held.append(callback)
            elif life == self.life:
                callback()

        return self.time.call_later(delay_s, call)

    def freeze(self) -> None:
        """Stand still: time passes for everybody else."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Continue, and take all at once what has arrived meanwhile."""
        self.is_frozen = False
        held, self._held = self._held, []
        for callback in held:
            callback()
        self.network.settle()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def can_serve(self) -> bool:
        return self.is_up and not self.is_frozen and self.raft_log.refusal() is None

    def kill(self) -> None:
        """Lose the processes and whatever was not synced."""
        self.is_up = self.is_frozen = False
        self.life += 1
        self._held.clear()
        self.runtime.close()
        self.network.hang_up(self)
        self.opened.close()

    def hello(self) -> Hello:
        metadata = self.opened.metadata
        me = CLUSTER_ID, self.number, metadata.state.disk_id, metadata.state.incarnation
        return Hello(MARK, LEVEL, LEVEL, *me, self.addresses.own)

    def connect(self, door: Door) -> WorkerSession:
        self.workers += 1
        return self.runtime.spawn(WorkerSession, door, self.workers, self.services)

    def settle(self) -> None:
        self.network.settle()

    def client(self) -> Client:
        return Client(self)  # type: ignore[arg-type]  # it asks of a broker what a node has

    def nodes(self) -> ClusterMetadataResponse:
        return self.addresses.taskflux_nodes(self.raft_log, "taskflux", "")

    def taskflux(self) -> HandTaskFlux:
        return HandTaskFlux(self, nodes=self.nodes)  # type: ignore[arg-type]  # likewise


class HandCluster:
    """The nodes and the network between them."""

    def __init__(
        self, directory: Path, count: int = 3, *, segment_bytes_max: int = 1 << 20, keep: Keep = KEEP_NOTHING
    ) -> None:
        self.segment_bytes_max, self.keep = segment_bytes_max, keep
        self.time = HandTime()
        self.time.settle = self.settle
        self.cuts: set[tuple[int, int]] = set()  # (from, to): nothing arrives
        self.delay_s = 0.0  # of everything that is said, each way
        self.flying: deque[tuple[HandPeerDoor, bytes]] = deque()
        self.waiting: list[tuple[HandPeerDoor, bytes]] = []  # for nodes that are frozen
        self.doors: list[HandPeerDoor] = []
        self.config = Config(tuple(Member(node, address=f"node-{node}:2603") for node in range(count)))
        self.nodes = [HandNode(self, node, directory / f"node-{node}") for node in range(count)]

    def start(self) -> None:
        for node in self.nodes:
            self.bring_up(node)
        self.until(lambda: self.leader() is not None, "a node leads")

    def bring_up(self, node: HandNode) -> None:
        node.start()
        for other in self.nodes:
            if other.is_up and other is not node:
                self._join(node, other)
        self.settle()

    def close(self) -> None:
        for node in self.nodes:
            if node.is_up:
                node.kill()

    def _join(self, one: HandNode, two: HandNode) -> None:
        ends = HandPeerDoor(self, one, two), HandPeerDoor(self, two, one)
        ends[0].other, ends[1].other = ends[1], ends[0]
        self.doors += ends
        for end in ends:
            end.sender.raft_log.tell(Introduced(end, end.receiver.hello()))

    def hang_up(self, node: HandNode) -> None:
        """End all connections of a node, as its end does."""
        for door in [door for door in self.doors if node in (door.sender, door.receiver)]:
            self.doors.remove(door)
            if door.sender is not node:
                door.close("the node is gone")
        self.flying = deque(packet for packet in self.flying if packet[0] in self.doors)
        self.waiting = [packet for packet in self.waiting if packet[0] in self.doors]

    # --- the network ---

    def isolate(self, node: HandNode) -> None:
        """Nothing arrives at this node any more, and nothing that it says arrives anywhere."""
        for other in self.nodes:
            self.cuts |= {(node.number, other.number), (other.number, node.number)}

    def heal(self) -> None:
        """All can talk again, on new connections."""
        cut, self.cuts = self.cuts, set()
        for one in self.nodes:
            for two in self.nodes[one.number + 1 :]:
                if (one.number, two.number) in cut and one.is_up and two.is_up:
                    self._join(one, two)
        self.settle()

    def settle(self) -> None:
        """Let every process, and everything that is under way, come to rest; no time passes."""
        self.flying.extend(packet for packet in self.waiting if not packet[0].sender.is_frozen)
        self.waiting = [packet for packet in self.waiting if packet[0].sender.is_frozen]
        busy = True
        while busy:
            busy = False
            for node in self.nodes:
                if node.is_up and not node.is_frozen:
                    node.runtime.run_until_idle()
            for _ in range(len(self.flying)):
                door, data = self.flying.popleft()
                busy = True
                if door.sender.is_frozen:
                    self.waiting.append((door, data))
                elif door.told is not None and door.sender.is_up:
                    door.take(data)
        for node in self.nodes:
            if node.failures:
                raise node.failures[0]

    def advance(self, seconds: float) -> None:
        self.time.advance(seconds)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
        """Let time pass until something holds."""
        passed = 0.0
        while not condition():
            assert passed < seconds, f"after {seconds} s it is still not so that {what}"
            self.advance(0.05)
            passed += 0.05

    def leader(self, among: Sequence[HandNode] | None = None) -> HandNode | None:
        """Return the node that serves."""
        serving = [node for node in among or self.nodes if node.can_serve]
        return serving[0] if serving else None

    def others(self, node: HandNode) -> list[HandNode]:
        return [other for other in self.nodes if other is not node]


class Operator(Process):
    """Hears what became of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []

    @property
    def asker(self) -> ReplyByMail[object]:
        """What a question carries, so that its answer is heard."""
        return ReplyByMail(self, self.heard.append)

    def on_receive(self, message: Answered[object]) -> None:
        message.deliver()


def successor(cluster: HandCluster, leader: HandNode) -> HandNode:
    """Let the others find who leads."""
    others = cluster.others(leader)
    cluster.until(lambda: cluster.leader(others) is not None, "another node serves")
    found = cluster.leader(others)
    assert found is not None
    return found


def leads_again(cluster: HandCluster, node: HandNode) -> bool:
    """Transfer leadership until this node leads."""
    found = cluster.leader()
    if found is not None and found is not node:
        found.raft_log.tell(Administer(found.runtime.spawn(Operator).asker, "transfer", node.number))
        cluster.settle()
    return found is node


def size_of(node: HandNode, queue: str = "q") -> int:
    """Return how many messages a node's queue has, whether it leads or not."""
    return node.queues.processes.by_name[queue].ledger.columns.living
