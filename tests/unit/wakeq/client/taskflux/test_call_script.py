"""The script of a TaskFlux client, without a socket: where it goes, what it repeats, what it makes of answers."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from tests.helpers.taskflux_apart import apart
from wakeq.client.core.timeouts import Closed, Timeouts, fell_silent
from wakeq.client.taskflux import calls
from wakeq.client.taskflux.call_script import CallScript, Close, Connect, Pause, Receive, Send, Steps, with_port
from wakeq.client.taskflux.records import Cluster, NotAllEnqueued, QueueInfo, Record
from wakeq.client.taskflux.requests import BATCH_MAX, UnexpectedAnswer
from wakeq.protocol import errors
from wakeq.protocol.wire.taskflux import packets as wire
from wakeq.protocol.wire.taskflux.dialects import CSHARP, SPEC, Dialect
from wakeq.protocol.wire.taskflux.encoder import encode
from wakeq.protocol.wire.taskflux.reader import RequestReader

T = TypeVar("T")
Answer = Callable[[wire.Packet], Iterable[wire.Packet]]

OK, ACK = wire.OK, wire.ACK


class Node:
    """A server: it answers each packet as its script says; a script that raises ends the connection."""

    def __init__(self, answer: Answer, dialect: Dialect = SPEC) -> None:
        self.answer = answer
        self.dialect = dialect
        self.heard: list[wire.Packet | wire.Bad] = []
        self.dialled = 0
        self.greets = True


class FakeWire:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.reader = RequestReader(node.dialect)
        self.waiting = b""
        self.is_open = True
        self.lost = False
        self.why = errors.Disconnected("gone")

    def fault(self) -> errors.Disconnected | None:
        return None if self.is_open and not self.lost else self.why

    def say(self, data: bytes) -> None:
        for packet in apart(self.reader.receive(data)):
            if not self.node.greets:
                self.lost = True
            elif isinstance(packet, wire.AuthorizationRequest):
                self.waiting += encode([wire.AuthorizationResponse(True)], self.node.dialect)
            elif isinstance(packet, wire.BootstrapRequest):
                self.waiting += encode([wire.BootstrapResponse(True)], self.node.dialect)
            else:
                self.node.heard.append(packet)
                try:
                    assert not isinstance(packet, wire.Bad)
                    self.waiting += encode(list(self.node.answer(packet)), self.node.dialect)
                except errors.Disconnected:
                    self.lost = True

    def hear(self) -> bytes:
        data, self.waiting = self.waiting, b""
        if not data and self.lost:
            raise errors.Disconnected("it broke")
        return data


class Play:
    """Takes the steps of a script, among the nodes of a cluster."""

    def __init__(self, nodes: dict[str, Node], dialect: Dialect = SPEC, *, reconnect_for_s: float = 10.0) -> None:
        self.nodes = nodes
        self.now_s = 0.0
        self.wires: list[FakeWire] = []
        self.connects_after_s = 0.0
        self.dialled: list[str] = []
        self.dial_timeouts_s: list[float] = []
        self.vanished: set[str] = set()  # their hosts: nobody is told that connections are over
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
                    raise errors.BrokerUnreachable(f"nobody is at {address}")
                self.nodes[address].dialled += 1
                self.wires.append(FakeWire(self.nodes[address]))
                return self.wires[-1]
            case Send(connection=connection, data=data):
                connection.stream.say(data)
            case Receive(connection=connection, timeout_s=timeout_s):
                data = b"" if connection.address in self.vanished else connection.stream.hear()
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


def one(*answers: wire.Packet) -> Play:
    """Return a play with one node that answers every packet but an Ack so; an Ack is answered Ok."""
    return Play({"a:1": Node(lambda packet: [OK] if packet == ACK else answers)})


def test_an_address_without_a_port_has_the_usual_one() -> None:
    assert with_port("a, b:1,[::1],[::1]:5") == "a:2602,b:1,[::1]:2602,[::1]:5"


def test_an_enqueue_is_said_with_its_ack_behind_it() -> None:
    play = one(OK)

    play.call(calls.enqueues("q", [(3, "text")], SPEC))

    assert play.nodes["a:1"].heard == [wire.Enqueue("q", 3, b"text"), ACK]


def test_a_connection_is_used_again_unless_it_is_known_to_be_gone() -> None:
    play = one(wire.CountResponse(1))
    for _ in range(3):
        assert play.call(calls.count("q", SPEC)) == 1
    assert play.nodes["a:1"].dialled == 1

    play.wires[0].lost = True

    assert play.call(calls.count("q", SPEC)) == 1
    assert play.nodes["a:1"].dialled == 2


def test_many_records_are_not_said_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    node = Node(stores)
    play = Play({"a:1": node})
    play.run(play.script.connect())
    hear = FakeWire.hear

    def counting(connection: FakeWire) -> bytes:
        under_way.append(len(connection.waiting) // 2)  # two answers for each record
        return hear(connection)

    monkeypatch.setattr(FakeWire, "hear", counting)
    play.call(calls.enqueues("q", [(1, b"x")] * (5 * BATCH_MAX), SPEC))

    assert len(node.heard) == 10 * BATCH_MAX
    assert max(under_way) <= 2 * BATCH_MAX


def test_records_that_are_refused_are_named_by_their_places() -> None:
    answers = iter([OK, wire.QueueSizeViolation(1), OK, OK, OK, wire.KeyRangeViolation(0, 9)])
    play = Play({"a:1": Node(lambda packet: [next(answers)])})

    with pytest.raises(NotAllEnqueued) as caught:
        play.call(calls.enqueues("q", [(1, b"a"), (2, b"b"), (3, b"c")], SPEC))

    assert {place: type(error) for place, error in caught.value.refusals.items()} == {
        0: errors.QueueFull, 2: errors.KeyRange,
    }  # fmt: skip


def test_what_csharp_refuses_at_once_has_one_answer() -> None:
    node = Node(lambda packet: [wire.ErrorResponse(1, "")] if isinstance(packet, wire.Enqueue) else [], CSHARP)
    play = Play({"a:1": node}, CSHARP)

    with pytest.raises(errors.BadName):
        play.call(calls.enqueues("a b", [(1, b"a")], CSHARP))

    node.answer = lambda packet: [wire.CountResponse(7)]
    assert play.call(calls.count("q", CSHARP)) == 7
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
def test_what_was_refused_is_raised(answer: wire.Packet, expected: type[errors.WakeqError]) -> None:
    with pytest.raises(expected) as caught:
        one(answer).call(calls.delete("q", SPEC))

    assert type(caught.value) is expected


def test_a_record_keeps_its_connection_until_it_is_settled() -> None:
    play = one(wire.Record(1, b"a", 0))

    connection, record = play.run(play.script.ask(calls.dequeue("q", 0, SPEC)))
    play.run(play.script.ask(calls.dequeue("q", 0, SPEC)))
    assert record == Record(1, b"a")
    assert play.nodes["a:1"].dialled == 2
    play.run(play.script.end_record(connection, calls.end_record("q", ack=True, dialect=SPEC)))

    assert play.nodes["a:1"].heard[-1] == ACK
    play.call(calls.dequeue("q", 0, SPEC))
    assert play.nodes["a:1"].dialled == 2


def test_queues_and_nodes_are_read() -> None:
    listed = wire.ListQueuesResponse((wire.QueueInfo("q", 2, (("max-queue-size", "5"),)),))
    assert one(listed).call(calls.queues(SPEC)) == {"q": QueueInfo(2, {"max-queue-size": "5"})}
    met = wire.ClusterMetadataResponse(("a:1", "b:2"), -1, 1)
    assert one(met).call(calls.cluster(SPEC)) == Cluster(["a:1", "b:2"], None, 1)


# --- lost connections ---


def breaks(packet: wire.Packet) -> list[wire.Packet]:
    raise errors.Disconnected("it broke")


def test_what_only_looks_is_asked_again_when_the_connection_breaks() -> None:
    tries = iter([breaks, lambda packet: [wire.CountResponse(4)]])
    play = Play({"a:1": Node(lambda packet: next(tries)(packet))})

    assert play.call(calls.count("q", SPEC)) == 4


@pytest.mark.parametrize(
    "make",
    [calls.enqueues("q", [(1, b"a")], SPEC), calls.delete("q", SPEC), calls.create("q", "H4", None, None, None, SPEC)],
    ids=["enqueue", "delete", "create"],
)
def test_what_may_have_been_done_is_not_done_again(make: Callable[[], Any]) -> None:
    play = Play({"a:1": Node(breaks)})

    with pytest.raises(errors.OutcomeUnknown):
        play.call(make)

    assert len([packet for packet in play.nodes["a:1"].heard if packet != ACK]) == 1


def test_a_server_that_never_comes_back_is_given_up_in_time() -> None:
    play = Play({"a:1": Node(breaks)}, reconnect_for_s=3.0)
    play.run(play.script.connect())

    with pytest.raises(errors.Disconnected):
        play.call(calls.count("q", SPEC))

    assert play.now_s <= 3.0


def test_a_port_that_ends_the_connection_instead_of_greeting_is_perhaps_one_with_tls() -> None:
    node = Node(stores)
    node.greets = False

    with pytest.raises(errors.Disconnected, match="before it greeted; is it a TaskFlux port, and does it want TLS"):
        Play({"a:1": node}, reconnect_for_s=0.0).call(calls.count("q", SPEC))


def test_a_server_that_says_nothing_is_hung() -> None:
    play = Play({"a:1": Node(lambda packet: [])}, reconnect_for_s=0.0)

    with pytest.raises(errors.Disconnected):
        play.call(calls.count("q", SPEC))


def test_a_client_that_is_closed_does_nothing_any_more() -> None:
    play = one(OK)
    play.call(calls.delete("q", SPEC))

    assert len(play.script.close()) == 1

    with pytest.raises(Closed):
        play.call(calls.delete("q", SPEC))


# --- a leader elsewhere ---


def follower(leader: int, addresses: tuple[str, ...] = ("a:1", "b:2")) -> Node:
    def answer(packet: wire.Packet) -> list[wire.Packet]:
        match packet:
            case wire.ClusterMetadataRequest():
                return [wire.ClusterMetadataResponse(addresses, leader, 0)]
            case wire.Enqueue():
                return [OK]
        return [wire.NotLeader(leader)]

    return Node(answer)


def test_a_client_goes_to_the_leader_that_it_is_told_of() -> None:
    leader = Node(lambda packet: [wire.CountResponse(5)])
    play = Play({"a:1": follower(1), "c:3": Node(breaks)})
    play.nodes["b:2"] = leader

    assert play.call(calls.count("q", SPEC)) == 5
    assert leader.dialled == 1
    assert play.nodes["c:3"].dialled == 0
    assert not play.wires[0].is_open


def test_a_client_tries_the_next_address_when_nobody_knows_the_leader() -> None:
    play = Play({"a:1": follower(-1), "b:2": Node(stores)})

    play.call(calls.enqueues("q", [(1, b"a")], SPEC))

    assert play.nodes["b:2"].heard == [wire.Enqueue("q", 1, b"a"), ACK]


def test_only_what_the_old_leader_did_not_take_is_said_to_the_new_one() -> None:
    answers = iter([OK, OK, OK, wire.QueueSizeViolation(9), OK, wire.NotLeader(1), OK, wire.NotLeader(1)])
    old = Node(lambda packet: [wire.ClusterMetadataResponse(("a:1", "b:2"), 1, 0)]
               if isinstance(packet, wire.ClusterMetadataRequest) else [next(answers)])  # fmt: skip
    play = Play({"a:1": old, "b:2": Node(stores)})

    with pytest.raises(NotAllEnqueued) as caught:
        play.call(calls.enqueues("q", [(key, b"") for key in range(4)], SPEC))

    assert list(caught.value.refusals) == [1]
    assert play.nodes["b:2"].heard == [wire.Enqueue("q", 2, b""), ACK, wire.Enqueue("q", 3, b""), ACK]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: calls.dialect_named("legacy"),
        lambda: calls.dequeue("q", -1, SPEC),
        lambda: calls.create("q", "H5", None, None, None, SPEC),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_said(wrong: Callable[[], Any]) -> None:
    with pytest.raises(errors.BadField):
        wrong()


# --- a host that vanishes ---


class Trio(Play):
    """Three nodes, of which the first leads until its host vanishes; then the third does."""

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


LOOKS = [calls.count("q", SPEC), calls.dequeue("q", 0, SPEC)]


@pytest.mark.parametrize("make", LOOKS, ids=["count", "dequeue"])
@pytest.mark.parametrize(
    ("fault", "dialled"),
    [
        (None, ["b:2", "c:3"]),
        (errors.Disconnected("closed"), ["a:1", "b:2", "c:3"]),  # it may be there again
        (fell_silent("a:1"), ["b:2", "c:3"]),
    ],
    ids=["unknown", "closed", "silent"],
)
def test_what_may_be_repeated_is_asked_elsewhere_once_a_leader_fell_silent(
    make: Callable[[], Any], fault: errors.Disconnected | None, dialled: list[str]
) -> None:
    trio = Trio()
    trio.call(calls.count("q", SPEC))
    if fault is not None:
        trio.wires[-1].lost, trio.wires[-1].why = True, fault
    trio.vanish()

    assert trio.call(make) is not None

    assert trio.now_s <= 2.5
    assert trio.dialled == dialled


@pytest.mark.parametrize("known_to_others", [-1, 0], ids=["nobody", "the one that vanished"])
def test_silent_address_is_the_last_one_whoever_the_others_name(known_to_others: int) -> None:
    trio = Trio(elected_at_s=2.5, known_to_others=known_to_others)
    trio.call(calls.count("q", SPEC))
    trio.vanish()

    assert trio.call(calls.count("q", SPEC)) == 5

    assert 2.5 <= trio.now_s <= 3.0
    assert "a:1" not in trio.dialled


def test_silent_address_is_asked_again_when_nobody_else_serves() -> None:
    trio = Trio(elected_at_s=60.0)
    trio.call(calls.count("q", SPEC))
    trio.vanish()

    with pytest.raises(errors.NotLeader):
        trio.call(calls.count("q", SPEC))

    assert "a:1" in trio.dialled
    assert trio.dialled.count("b:2") > 2 * trio.dialled.count("a:1")


ONCE = [
    calls.enqueues("q", [(1, b"a")], SPEC),
    calls.delete("q", SPEC),
    calls.create("q", "H4", None, None, None, SPEC),
]


@pytest.mark.parametrize("make", ONCE, ids=["enqueue", "delete", "create"])
def test_what_may_not_be_repeated_is_unknown_after_two_seconds_and_the_next_call_goes_elsewhere(
    make: Callable[[], Any],
) -> None:
    trio = Trio()
    trio.call(calls.count("q", SPEC))
    trio.vanish()

    with pytest.raises(errors.OutcomeUnknown, match="a:1 has fallen silent; the request may or may not have been done"):
        trio.call(make)
    assert trio.now_s == 2.0
    assert trio.call(calls.count("q", SPEC)) == 5

    assert trio.now_s <= 2.5
    assert trio.dialled == ["b:2", "c:3"]


def test_record_whose_holder_fell_silent_is_given_up_after_two_seconds() -> None:
    trio = Trio()
    connection, _record = trio.run(trio.script.ask(calls.dequeue("q", 0, SPEC)))
    trio.vanish()

    with pytest.raises(errors.Disconnected, match="a:1 has fallen silent"):
        trio.run(trio.script.end_record(connection, calls.end_record("q", ack=True, dialect=SPEC)))
    assert trio.now_s == 2.0

    trio.call(calls.count("q", SPEC))
    assert trio.dialled == ["b:2", "c:3"]


def test_calls_under_way_together_leave_a_silent_address_once() -> None:
    trio = Trio()
    trio.call(calls.count("q", SPEC))
    second = trio.script.call(calls.count("q", SPEC))
    step: Any = second.send(None)
    while not isinstance(step, Receive):
        step = second.send(trio.take(step))
    trio.vanish()
    assert trio.call(calls.count("q", SPEC)) == 5
    trio.dialled.clear()

    trio.now_s += 2.0
    value: Any = b""  # nothing came for the second one either
    result = None
    while result is None:
        try:
            value = trio.take(second.send(value))
        except StopIteration as end:
            result = end.value

    assert result == 5
    assert trio.dialled == []  # the connection of the first one was there to be used


def test_patience_with_silence_grows_until_somebody_answers() -> None:
    trio = Trio()
    trio.call(calls.count("q", SPEC))
    trio.vanish()

    with pytest.raises(errors.OutcomeUnknown):
        trio.call(calls.delete("q", SPEC))
    trio.call(calls.count("q", SPEC))
    trio.wires[-1].lost = True
    trio.call(calls.count("q", SPEC))

    assert trio.dial_timeouts_s == [5.0, 4.0, 4.0, 2.0]  # b and c after the silence, and c again after it has answered


def test_nodes_that_are_all_slow_to_connect_are_reached() -> None:
    play = Play({address: Node(lambda packet: [wire.CountResponse(5)]) for address in ("a:1", "b:2")})
    play.connects_after_s = 4.5
    assert play.call(calls.count("q", SPEC)) == 5
    play.wires[-1].lost = True

    assert play.call(calls.count("q", SPEC)) == 5

    assert play.dial_timeouts_s == [5.0, 2.0, 4.0, 5.0]


def test_client_of_one_address_waits_for_as_long_as_it_was_told() -> None:
    play = Play({"a:1": Node(lambda packet: [])})

    with pytest.raises(errors.OutcomeUnknown, match="has not answered for 30 s"):
        play.call(calls.delete("q", SPEC))

    assert play.now_s == 30.0


def test_wait_of_a_dequeue_is_not_silence() -> None:
    def slow(packet: wire.Packet) -> list[wire.Packet]:
        return []

    play = Play({"a:1": Node(slow), "b:2": Node(lambda packet: [wire.Empty()])})

    assert play.call(calls.dequeue("q", 20, SPEC)) is False
    assert play.now_s == 22.0
