"""Tests of call_script.py, without a socket: the servers that are asked, repeated calls, and the reading of answers."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from tests.helpers.taskflux.apart import apart
from wakeq.client.route import Closed, Timeouts, fell_silent
from wakeq.client.taskflux import requests
from wakeq.client.taskflux.call_script import CallScript, Close, Connect, Pause, Receive, Send, Steps, with_port
from wakeq.client.taskflux.requests import BATCH_MAX, Cluster, NotAllEnqueued, QueueInfo, Record, UnexpectedAnswer
from wakeq.protocol import errors
from wakeq.protocol.wire.taskflux import commands as wire
from wakeq.protocol.wire.taskflux.codec import RequestReader, encode
from wakeq.protocol.wire.taskflux.dialects import CSHARP, SPEC, Dialect

T = TypeVar("T")
Answer = Callable[[wire.Packet], Iterable[wire.Packet]]

OK, ACK = wire.OK, wire.ACK


class Node:
    """A server whose answers a function gives; an exception of that function ends the connection."""

    def __init__(self, answer: Answer, dialect: Dialect = SPEC) -> None:
        self.answer = answer
        self.dialect = dialect
        self.received: list[wire.Packet | wire.Bad] = []
        self.dialled = 0
        self.greets = True


class FakeStream:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.reader = RequestReader(node.dialect)
        self.waiting = b""
        self.is_open = True
        self.lost = False
        self.why = errors.Disconnected("gone")

    def fault(self) -> errors.Disconnected | None:
        return None if self.is_open and not self.lost else self.why

    def send(self, data: bytes) -> None:
        for packet in apart(self.reader.receive(data)):
            if not self.node.greets:
                self.lost = True
            elif isinstance(packet, wire.AuthorizationRequest):
                self.waiting += encode([wire.AuthorizationResponse(True)], self.node.dialect)
            elif isinstance(packet, wire.BootstrapRequest):
                self.waiting += encode([wire.BootstrapResponse(True)], self.node.dialect)
            else:
                self.node.received.append(packet)
                try:
                    assert not isinstance(packet, wire.Bad)
                    self.waiting += encode(list(self.node.answer(packet)), self.node.dialect)
                except errors.Disconnected:
                    self.lost = True

    def receive(self) -> bytes:
        data, self.waiting = self.waiting, b""
        if not data and self.lost:
            raise errors.Disconnected("the connection broke")
        return data


class ScriptRunner:
    """Performs the steps of a script with the nodes of a cluster."""

    def __init__(self, nodes: dict[str, Node], dialect: Dialect = SPEC, *, reconnect_for_s: float = 10.0) -> None:
        self.nodes = nodes
        self.now_s = 0.0
        self.streams: list[FakeStream] = []
        self.connects_after_s = 0.0
        self.dialled: list[str] = []
        self.dial_timeouts_s: list[float] = []
        # Addresses of hosts that vanished without closing their connections.
        self.vanished: set[str] = set()
        timeouts = Timeouts(5.0, 30.0, reconnect_for_s)
        self.script = CallScript(",".join(nodes), dialect, timeouts, lambda: self.now_s)

    def run(self, steps: Steps[T]) -> T:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            value = error = None
            try:
                value = self.take(step)
            except errors.WakeqError as raised:
                error = raised

    def take(self, step: Any) -> Any:
        match step:
            case Connect(address=address, timeout_s=timeout_s):
                self.dialled.append(address)
                self.dial_timeouts_s.append(timeout_s)
                if address in self.vanished or timeout_s < self.connects_after_s:
                    self.now_s += timeout_s
                    raise errors.BrokerUnreachable(f"{address} does not answer") from TimeoutError()
                if address not in self.nodes:
                    raise errors.BrokerUnreachable(f"no server is at {address}")
                self.nodes[address].dialled += 1
                self.streams.append(FakeStream(self.nodes[address]))
                return self.streams[-1]
            case Send(connection=connection, data=data):
                connection.stream.send(data)
            case Receive(connection=connection, timeout_s=timeout_s):
                data = b"" if connection.address in self.vanished else connection.stream.receive()
                self.now_s += 0.0 if data else timeout_s
                return data
            case Close(connection=connection):
                connection.stream.is_open = False
            case Pause(seconds=seconds):
                self.now_s += seconds
        return None

    def call(self, make: Callable[[], Any]) -> Any:
        return self.run(self.script.call(make))


def stores(packet: wire.Packet) -> list[wire.Packet]:
    return [OK]


def one(*answers: wire.Packet) -> ScriptRunner:
    """Return a runner with one node. It answers an Ack with Ok, and any other packet with the next of `answers`."""
    return ScriptRunner({"a:1": Node(lambda packet: [OK] if packet == ACK else answers)})


def test_address_without_port_gets_the_default_port() -> None:
    assert with_port("a, b:1,[::1],[::1]:5") == "a:2602,b:1,[::1]:2602,[::1]:5"


def test_enqueue_is_followed_by_its_ack() -> None:
    runner = one(OK)

    runner.call(requests.enqueues("q", [(3, "text")], SPEC))

    assert runner.nodes["a:1"].received == [wire.Enqueue("q", 3, b"text"), ACK]


def test_connection_is_reused_unless_it_is_known_to_be_broken() -> None:
    runner = one(wire.CountResponse(1))
    for _ in range(3):
        assert runner.call(requests.count("q", SPEC)) == 1
    assert runner.nodes["a:1"].dialled == 1

    runner.streams[0].lost = True

    assert runner.call(requests.count("q", SPEC)) == 1
    assert runner.nodes["a:1"].dialled == 2


def test_records_are_sent_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    node = Node(stores)
    runner = ScriptRunner({"a:1": node})
    runner.run(runner.script.connect())
    hear = FakeStream.receive

    def counting(connection: FakeStream) -> bytes:
        # Each record has two answers.
        under_way.append(len(connection.waiting) // 2)
        return hear(connection)

    monkeypatch.setattr(FakeStream, "receive", counting)
    runner.call(requests.enqueues("q", [(1, b"x")] * (5 * BATCH_MAX), SPEC))

    assert len(node.received) == 10 * BATCH_MAX
    assert max(under_way) <= 2 * BATCH_MAX


def test_refused_records_are_listed_by_index() -> None:
    answers = iter([OK, wire.QueueSizeViolation(1), OK, OK, OK, wire.KeyRangeViolation(0, 9)])
    runner = ScriptRunner({"a:1": Node(lambda packet: [next(answers)])})

    with pytest.raises(NotAllEnqueued) as caught:
        runner.call(requests.enqueues("q", [(1, b"a"), (2, b"b"), (3, b"c")], SPEC))

    assert {place: type(error) for place, error in caught.value.refusals.items()} == {
        0: errors.QueueFull, 2: errors.KeyRange,
    }  # fmt: skip


def test_refusal_in_csharp_dialect_has_one_answer() -> None:
    node = Node(lambda packet: [wire.ErrorResponse(1, "")] if isinstance(packet, wire.Enqueue) else [], CSHARP)
    runner = ScriptRunner({"a:1": node}, CSHARP)

    with pytest.raises(errors.BadName):
        runner.call(requests.enqueues("a b", [(1, b"a")], CSHARP))

    node.answer = lambda packet: [wire.CountResponse(7)]
    assert runner.call(requests.count("q", CSHARP)) == 7
    assert node.dialled == 1


REFUSALS: list[tuple[wire.Packet, type[errors.WakeqError]]] = [
    (wire.BusinessError(wire.ErrorCode.NO_QUEUE), errors.QueueNotFound),
    (wire.BusinessError(wire.ErrorCode.QUEUE_EXISTS), errors.QueueExists),
    (wire.BusinessError(wire.ErrorCode.BAD_NAME), errors.BadName),
    (wire.BusinessError(wire.ErrorCode.BAD_IMPLEMENTATION), errors.BadField),
    (wire.BusinessError(wire.ErrorCode.UNKNOWN, "why"), errors.Refused),
    (wire.BusinessError(wire.ErrorCode.UNKNOWN, "why: not"), errors.Refused),
    (wire.BusinessError(wire.ErrorCode.UNKNOWN, "FORBIDDEN: the token has no right"), errors.Forbidden),
    (wire.BusinessError(wire.ErrorCode.UNKNOWN, "DISK_FULL: no room"), errors.DiskFull),
    (wire.PayloadSizeViolation(3), errors.TooLarge),
    (wire.GeneralViolation("why"), errors.Refused),
    (wire.ErrorResponse(0, "why"), UnexpectedAnswer),
    (wire.EMPTY, UnexpectedAnswer),
]


@pytest.mark.parametrize(("answer", "expected"), REFUSALS, ids=lambda value: getattr(value, "__name__", repr(value)))
def test_refusal_is_raised_as_its_error(answer: wire.Packet, expected: type[errors.WakeqError]) -> None:
    with pytest.raises(expected) as caught:
        one(answer).call(requests.delete("q", SPEC))

    assert type(caught.value) is expected


def test_record_keeps_its_connection_until_it_is_acknowledged() -> None:
    runner = one(wire.Record(1, b"a", 0))

    connection, record = runner.run(runner.script.ask(requests.dequeue("q", 0, SPEC)))
    runner.run(runner.script.ask(requests.dequeue("q", 0, SPEC)))
    assert record == Record(1, b"a")
    assert runner.nodes["a:1"].dialled == 2
    runner.run(runner.script.end_record(connection, requests.end_record("q", ack=True, dialect=SPEC)))

    assert runner.nodes["a:1"].received[-1] == ACK
    runner.call(requests.dequeue("q", 0, SPEC))
    assert runner.nodes["a:1"].dialled == 2


def test_queues_and_nodes_are_read() -> None:
    listed = wire.ListQueuesResponse((wire.QueueInfo("q", 2, (("max-queue-size", "5"),)),))
    assert one(listed).call(requests.queues(SPEC)) == {"q": QueueInfo(2, {"max-queue-size": "5"})}
    met = wire.ClusterMetadataResponse(("a:1", "b:2"), -1, 1)
    assert one(met).call(requests.cluster(SPEC)) == Cluster(["a:1", "b:2"], None, 1)


# --- lost connections ---


def breaks(packet: wire.Packet) -> list[wire.Packet]:
    raise errors.Disconnected("the connection broke")


def test_reading_call_is_repeated_when_the_connection_breaks() -> None:
    tries = iter([breaks, lambda packet: [wire.CountResponse(4)]])
    runner = ScriptRunner({"a:1": Node(lambda packet: next(tries)(packet))})

    assert runner.call(requests.count("q", SPEC)) == 4


@pytest.mark.parametrize(
    "make",
    [
        requests.enqueues("q", [(1, b"a")], SPEC),
        requests.delete("q", SPEC),
        requests.create("q", "H4", None, None, None, SPEC),
    ],
    ids=["enqueue", "delete", "create"],
)
def test_writing_call_is_not_repeated_when_the_connection_breaks(make: Callable[[], Any]) -> None:
    runner = ScriptRunner({"a:1": Node(breaks)})

    with pytest.raises(errors.OutcomeUnknown):
        runner.call(make)

    assert len([packet for packet in runner.nodes["a:1"].received if packet != ACK]) == 1


def test_server_that_stays_away_is_given_up_in_time() -> None:
    runner = ScriptRunner({"a:1": Node(breaks)}, reconnect_for_s=3.0)
    runner.run(runner.script.connect())

    with pytest.raises(errors.Disconnected):
        runner.call(requests.count("q", SPEC))

    assert runner.now_s <= 3.0


def test_error_for_port_that_closes_before_greeting_mentions_tls() -> None:
    node = Node(stores)
    node.greets = False

    with pytest.raises(errors.Disconnected, match="before it greeted; is it a TaskFlux port, and does it want TLS"):
        ScriptRunner({"a:1": node}, reconnect_for_s=0.0).call(requests.count("q", SPEC))


def test_silent_server_is_reported_as_not_answering() -> None:
    runner = ScriptRunner({"a:1": Node(lambda packet: [])}, reconnect_for_s=0.0)

    with pytest.raises(errors.Disconnected):
        runner.call(requests.count("q", SPEC))


def test_closed_client_refuses_calls() -> None:
    runner = one(OK)
    runner.call(requests.delete("q", SPEC))

    assert len(runner.script.close()) == 1

    with pytest.raises(Closed):
        runner.call(requests.delete("q", SPEC))


# --- redirects to the leader ---


def follower(leader: int, addresses: tuple[str, ...] = ("a:1", "b:2")) -> Node:
    def answer(packet: wire.Packet) -> list[wire.Packet]:
        match packet:
            case wire.ClusterMetadataRequest():
                return [wire.ClusterMetadataResponse(addresses, leader, 0)]
            case wire.Enqueue():
                return [OK]
        return [wire.NotLeader(leader)]

    return Node(answer)


def test_client_follows_the_named_leader() -> None:
    leader = Node(lambda packet: [wire.CountResponse(5)])
    runner = ScriptRunner({"a:1": follower(1), "c:3": Node(breaks)})
    runner.nodes["b:2"] = leader

    assert runner.call(requests.count("q", SPEC)) == 5
    assert leader.dialled == 1
    assert runner.nodes["c:3"].dialled == 0
    assert not runner.streams[0].is_open


def test_client_tries_the_next_address_when_no_leader_is_known() -> None:
    runner = ScriptRunner({"a:1": follower(-1), "b:2": Node(stores)})

    runner.call(requests.enqueues("q", [(1, b"a")], SPEC))

    assert runner.nodes["b:2"].received == [wire.Enqueue("q", 1, b"a"), ACK]


def test_new_leader_gets_only_records_that_the_old_one_did_not_store() -> None:
    answers = iter([OK, OK, OK, wire.QueueSizeViolation(9), OK, wire.NotLeader(1), OK, wire.NotLeader(1)])
    old = Node(lambda packet: [wire.ClusterMetadataResponse(("a:1", "b:2"), 1, 0)]
               if isinstance(packet, wire.ClusterMetadataRequest) else [next(answers)])  # fmt: skip
    runner = ScriptRunner({"a:1": old, "b:2": Node(stores)})

    with pytest.raises(NotAllEnqueued) as caught:
        runner.call(requests.enqueues("q", [(key, b"") for key in range(4)], SPEC))

    assert list(caught.value.refusals) == [1]
    assert runner.nodes["b:2"].received == [wire.Enqueue("q", 2, b""), ACK, wire.Enqueue("q", 3, b""), ACK]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: requests.dialect_named("legacy"),
        lambda: requests.dequeue("q", -1, SPEC),
        lambda: requests.create("q", "H5", None, None, None, SPEC),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_sent(wrong: Callable[[], Any]) -> None:
    with pytest.raises(errors.BadField):
        wrong()


# --- a host that vanishes ---


class ThreeNodes(ScriptRunner):
    """Three nodes. The first leads until its host vanishes; then the third does."""

    def __init__(self, *, elected_at_s: float = 0.0, known_to_others: int = -1) -> None:
        self.leader, self._elected_at_s, self._known = 0, elected_at_s, known_to_others
        addresses = ("a:1", "b:2", "c:3")
        super().__init__({address: Node(self._answering(place, addresses)) for place, address in enumerate(addresses)})

    def vanish(self) -> None:
        self.vanished.add("a:1")
        self.dialled.clear()
        self.leader, self._elected_at_s = 2, self._elected_at_s + self.now_s

    def _answering(self, place: int, addresses: tuple[str, ...]) -> Answer:
        def answer(packet: wire.Packet) -> list[wire.Packet]:
            leader = self.leader if self.leader == 0 or self.now_s >= self._elected_at_s else self._known
            match packet:
                case wire.ClusterMetadataRequest():
                    return [wire.ClusterMetadataResponse(addresses, leader, place)]
                case wire.Enqueue() | wire.Ack():
                    return [OK if leader == place or isinstance(packet, wire.Enqueue) else wire.NotLeader(leader)]
                case wire.Dequeue():
                    return [wire.Record(1, b"x") if leader == place else wire.NotLeader(leader)]
            return [wire.CountResponse(5) if leader == place else wire.NotLeader(leader)]

        return answer


LOOKS = [requests.count("q", SPEC), requests.dequeue("q", 0, SPEC)]


@pytest.mark.parametrize("make", LOOKS, ids=["count", "dequeue"])
@pytest.mark.parametrize(
    ("fault", "dialled"),
    [
        (None, ["b:2", "c:3"]),
        # The server may have restarted.
        (errors.Disconnected("closed"), ["a:1", "b:2", "c:3"]),
        (fell_silent("a:1"), ["b:2", "c:3"]),
    ],
    ids=["unknown", "closed", "silent"],
)
def test_reading_call_is_repeated_elsewhere_when_the_leader_is_silent(
    make: Callable[[], Any], fault: errors.Disconnected | None, dialled: list[str]
) -> None:
    nodes3 = ThreeNodes()
    nodes3.call(requests.count("q", SPEC))
    if fault is not None:
        nodes3.streams[-1].lost, nodes3.streams[-1].why = True, fault
    nodes3.vanish()

    assert nodes3.call(make) is not None

    assert nodes3.now_s <= 2.5
    assert nodes3.dialled == dialled


@pytest.mark.parametrize("known_to_others", [-1, 0], ids=["nobody", "the one that vanished"])
def test_silent_address_is_tried_last_even_if_named_as_leader(known_to_others: int) -> None:
    nodes3 = ThreeNodes(elected_at_s=2.5, known_to_others=known_to_others)
    nodes3.call(requests.count("q", SPEC))
    nodes3.vanish()

    assert nodes3.call(requests.count("q", SPEC)) == 5

    assert 2.5 <= nodes3.now_s <= 3.0
    assert "a:1" not in nodes3.dialled


def test_silent_address_is_tried_again_when_no_other_serves() -> None:
    nodes3 = ThreeNodes(elected_at_s=60.0)
    nodes3.call(requests.count("q", SPEC))
    nodes3.vanish()

    with pytest.raises(errors.NotLeader):
        nodes3.call(requests.count("q", SPEC))

    assert "a:1" in nodes3.dialled
    assert nodes3.dialled.count("b:2") > 2 * nodes3.dialled.count("a:1")


ONCE = [
    requests.enqueues("q", [(1, b"a")], SPEC),
    requests.delete("q", SPEC),
    requests.create("q", "H4", None, None, None, SPEC),
]


@pytest.mark.parametrize("make", ONCE, ids=["enqueue", "delete", "create"])
def test_writing_call_has_unknown_outcome_after_silence_and_next_call_goes_elsewhere(
    make: Callable[[], Any],
) -> None:
    nodes3 = ThreeNodes()
    nodes3.call(requests.count("q", SPEC))
    nodes3.vanish()

    with pytest.raises(errors.OutcomeUnknown, match="a:1 has fallen silent; the request may or may not have been done"):
        nodes3.call(make)
    assert nodes3.now_s == 2.0
    assert nodes3.call(requests.count("q", SPEC)) == 5

    assert nodes3.now_s <= 2.5
    assert nodes3.dialled == ["b:2", "c:3"]


def test_record_of_a_silent_server_is_given_up_after_two_seconds() -> None:
    nodes3 = ThreeNodes()
    connection, _record = nodes3.run(nodes3.script.ask(requests.dequeue("q", 0, SPEC)))
    nodes3.vanish()

    with pytest.raises(errors.Disconnected, match="a:1 has fallen silent"):
        nodes3.run(nodes3.script.end_record(connection, requests.end_record("q", ack=True, dialect=SPEC)))
    assert nodes3.now_s == 2.0

    nodes3.call(requests.count("q", SPEC))
    assert nodes3.dialled == ["b:2", "c:3"]


def test_simultaneous_calls_leave_a_silent_address_once() -> None:
    nodes3 = ThreeNodes()
    nodes3.call(requests.count("q", SPEC))
    second = nodes3.script.call(requests.count("q", SPEC))
    step: Any = second.send(None)
    while not isinstance(step, Receive):
        step = second.send(nodes3.take(step))
    nodes3.vanish()
    assert nodes3.call(requests.count("q", SPEC)) == 5
    nodes3.dialled.clear()

    nodes3.now_s += 2.0
    # The second call receives nothing, either.
    value: Any = b""
    result = None
    while result is None:
        try:
            value = nodes3.take(second.send(value))
        except StopIteration as end:
            result = end.value

    assert result == 5
    # The idle connection was reused.
    assert nodes3.dialled == []


def test_silence_limit_doubles_until_a_server_answers() -> None:
    nodes3 = ThreeNodes()
    nodes3.call(requests.count("q", SPEC))
    nodes3.vanish()

    with pytest.raises(errors.OutcomeUnknown):
        nodes3.call(requests.delete("q", SPEC))
    nodes3.call(requests.count("q", SPEC))
    nodes3.streams[-1].lost = True
    nodes3.call(requests.count("q", SPEC))

    # b and c are dialled after the silence, and c again after its answer.
    assert nodes3.dial_timeouts_s == [5.0, 4.0, 4.0, 2.0]


def test_nodes_that_are_all_slow_to_connect_are_reached() -> None:
    runner = ScriptRunner({address: Node(lambda packet: [wire.CountResponse(5)]) for address in ("a:1", "b:2")})
    runner.connects_after_s = 4.5
    assert runner.call(requests.count("q", SPEC)) == 5
    runner.streams[-1].lost = True

    assert runner.call(requests.count("q", SPEC)) == 5

    assert runner.dial_timeouts_s == [5.0, 2.0, 4.0, 5.0]


def test_client_with_one_address_waits_for_its_answer_timeout() -> None:
    runner = ScriptRunner({"a:1": Node(lambda packet: [])})

    with pytest.raises(errors.OutcomeUnknown, match="has not answered for 30 s"):
        runner.call(requests.delete("q", SPEC))

    assert runner.now_s == 30.0


def test_wait_of_a_dequeue_is_not_silence() -> None:
    def slow(packet: wire.Packet) -> list[wire.Packet]:
        return []

    runner = ScriptRunner({"a:1": Node(slow), "b:2": Node(lambda packet: [wire.Empty()])})

    assert runner.call(requests.dequeue("q", 20, SPEC)) is False
    assert runner.now_s == 22.0
