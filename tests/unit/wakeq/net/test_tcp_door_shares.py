"""The share of one connection: what it sends beyond that waits, counted, and everybody else comes between."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.helpers.doors.by_hand import HandGuest, HandPort
from wakeq.actors.runtime.rounds import (
    COMMAND_BYTES,
    ROUND_COMMANDS_MAX,
    SHARE_BYTES_MAX,
    SHARE_COMMANDS_MAX,
    SHARE_COMMANDS_MIN,
)
from wakeq.actors.sessions.door import BURST_BYTES_MAX, Closed, Ended
from wakeq.net.taskflux_tcp import TaskFluxTcpListener
from wakeq.net.worker_tcp import WorkerTcpListener
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import ACK, AuthorizationRequest, BootstrapRequest, Enqueue, Enqueues
from wakeq.protocol.wire.taskflux.dialects import SPEC
from wakeq.protocol.wire.worker.codec import VALUES_OF_A_COMMAND, Fet, Ok, Ping

pytestmark = pytest.mark.usefixtures("short_goodbyes")

PING = b'{"cmd":"PING"}\n'
PUB = b'{"cmd":"PUB","qname":"q","message":"%b"}\n'
GREETING = encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], SPEC)
READ_BYTES = 256_000  # that uvloop reads at once

Run = Callable[[Callable[[], Any]], None]


def worker(**bounds: Any) -> HandPort:
    return HandPort(WorkerTcpListener, **bounds)


def flux(**bounds: Any) -> HandPort:
    return HandPort(lambda make, **how: TaskFluxTcpListener(make, SPEC, **how), **bounds)


PROTOCOLS = pytest.mark.parametrize(
    ("make_port", "hello", "tiny"), [(worker, b"", b"x\n"), (flux, GREETING, b"Q")], ids=["worker", "taskflux"]
)


def transport(guest: HandGuest) -> Any:
    return guest.door._transport


@pytest.fixture(autouse=True)
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No listener here needs a loop, but for the timers of its sweeps."""
    for module in ("tcp_listener", "taskflux_tcp"):
        monkeypatch.setattr(f"wakeq.net.{module}.asyncio.get_running_loop", lambda: FakeLoop())
    monkeypatch.setattr("wakeq.net.sweeping.asyncio.get_running_loop", lambda: FakeLoop())


class FakeLoop:
    def call_later(self, *_: Any) -> None:
        return None

    def call_soon(self, *_: Any) -> None:
        return None


@PROTOCOLS
def test_tiny_commands_are_taken_a_share_at_a_time(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    guest = port.connect(hello)
    count = READ_BYTES // len(tiny)

    guest.door.data_received(tiny * count)
    first, reads = guest.turns, transport(guest).reads
    rounds = port.rounds_until_idle()

    assert (first, reads) == ([SHARE_COMMANDS_MAX], False)
    assert len(guest.commands) == count
    assert max(guest.turns) == SHARE_COMMANDS_MAX
    assert rounds == -(-count // SHARE_COMMANDS_MAX) - 1
    assert transport(guest).reads


@PROTOCOLS
def test_bytes_that_wait_are_held_by_their_own_size(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    guest = port.connect(hello)
    count = READ_BYTES // len(tiny)

    guest.door.data_received(tiny * count)
    held = [port.admission.held_bytes]
    while port.rounds.waiting:
        port.round()
        held.append(port.admission.held_bytes)

    share = SHARE_COMMANDS_MAX * len(tiny)
    assert held == [max(0, READ_BYTES - share * turns) for turns in range(1, len(held) + 1)]
    assert held[-1] == 0


@PROTOCOLS
def test_command_beside_a_flood_is_taken_at_once(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    flood, other = port.connect(hello), port.connect(hello)

    for turn in range(50):
        flood.door.data_received(tiny * READ_BYTES) if transport(flood).reads else port.round()
        other.door.data_received(tiny)

        assert len(other.commands) == turn + 1


@PROTOCOLS
def test_command_beside_many_floods_waits_for_a_turn_of_each_at_most(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    floods, other = [port.connect(hello) for _ in range(100)], port.connect(hello)
    for flood in floods:
        flood.door.data_received(tiny * READ_BYTES)
    before = sum(len(flood.commands) for flood in floods)

    other.door.data_received(tiny)
    while not other.commands:
        port.round()

    assert [len(flood.turns) <= 2 for flood in floods] == [True] * len(floods)
    assert sum(len(flood.commands) for flood in floods) - before <= 2 * ROUND_COMMANDS_MAX


BATCH = b'{"cmd":"PUB","qname":"q","messages":[%b""]}\n' % (b'"",' * 9_000)
RUN = encode([Enqueue("q", 1, b""), ACK], SPEC)


@pytest.mark.parametrize(
    ("make_port", "hello", "data", "messages"),
    [(worker, b"", BATCH * 2, 18_000), (flux, GREETING, RUN * 3_000, 3_000)],
    ids=["worker", "taskflux"],
)
def test_messages_of_a_batch_count_as_many_commands(make_port: Any, hello: bytes, data: bytes, messages: int) -> None:
    port = make_port()
    guests = [port.connect(hello) for _ in range(20)]
    port.rounds.left = ROUND_COMMANDS_MAX

    for guest in guests:
        guest.door.data_received(data)
    taken = [sum(1 for guest in guests if guest.commands)]
    while port.rounds.waiting:
        port.round()
        taken.append(sum(1 for guest in guests if guest.commands))

    one_round = -(-ROUND_COMMANDS_MAX // (messages // VALUES_OF_A_COMMAND))
    assert max(after - before for before, after in pairwise([0, *taken])) <= one_round
    assert taken[-1] == len(guests)


@PROTOCOLS
def test_floods_take_turns_of_the_same_size(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    floods = [port.connect(hello) for _ in range(1_000)]
    for flood in floods:
        flood.door.data_received(tiny * READ_BYTES)
    for flood in floods:
        flood.told.clear()

    while not all(flood.turns for flood in floods):
        port.round()

    assert {turn for flood in floods for turn in flood.turns} == {SHARE_COMMANDS_MIN}
    assert {len(flood.turns) for flood in floods} <= {1, 2}


@PROTOCOLS
def test_short_read_that_is_more_than_the_least_share_is_taken_once(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    floods, other = [port.connect(hello) for _ in range(1_000)], port.connect(hello)
    for flood in floods:
        flood.door.data_received(tiny * READ_BYTES)

    other.door.data_received(tiny * 200)
    while port.rounds.waiting and sum(other.turns) < 200:
        port.round()

    assert sum(other.turns) == 200
    assert transport(other).reads


def test_turn_takes_at_most_64_kib() -> None:
    port = worker()
    guest = port.connect()
    line = PUB % (b"x" * 1_000)

    guest.door.data_received(line * 250)
    port.rounds_until_idle()

    assert len(guest.commands) == 250
    assert {turn * len(line) <= SHARE_BYTES_MAX for turn in guest.turns} == {True}
    assert max(guest.turns) == SHARE_BYTES_MAX // len(line)


@pytest.mark.parametrize("rest", [b"", PING, b'{"cmd":'])
def test_line_longer_than_a_share_is_taken_whole(rest: bytes) -> None:
    port = worker()
    guest = port.connect()
    line = PUB % (b"x" * 3 * SHARE_BYTES_MAX)

    guest.door.data_received(PING + line + rest)
    port.rounds_until_idle()

    assert len(guest.commands) == 2 + rest.count(b"\n")
    assert guest.door.unfinished_bytes == len(rest) * (not rest.endswith(b"\n"))


def test_packet_longer_than_a_share_is_not_waited_for_in_shares() -> None:
    port = flux()
    guest = port.connect(GREETING)
    wire = encode([Enqueue("", 1, bytes(1_000_000)), ACK], SPEC)

    for at in range(0, len(wire), READ_BYTES):
        guest.door.data_received(wire[at : at + READ_BYTES])
        port.rounds_until_idle()

    assert [type(command).__name__ for command in guest.commands] == ["Enqueue", "Ack"]
    assert guest.turns == [2] or guest.turns == [1, 1]


@pytest.mark.parametrize("step", [1_000, 7_001, 65_536, 100_003, 256_000])
def test_shares_have_the_same_commands_in_any_reads(step: int) -> None:
    port = worker()
    guest = port.connect()
    names = [f"{number:0{number % 300 + 1}}" for number in range(5_000)]
    wire = b"".join(b'{"cmd":"FET","qname":"%b"}\n' % name.encode()[:255] for name in names)

    for at in range(0, len(wire), step):
        guest.door.data_received(wire[at : at + step])
        port.rounds_until_idle()

    assert guest.commands == [Fet(name[:255]) for name in names]


@pytest.mark.parametrize("step", [1_000, 7_001, 65_536, 100_003, 256_000])
def test_shares_have_the_same_packets_in_any_reads(step: int) -> None:
    port = flux()
    guest = port.connect(GREETING)
    enqueues = [Enqueue(f"q{number // 7}", number, bytes(number % 300)) for number in range(5_000)]
    wire = b"".join(encode([enqueue], SPEC) + b"Q" * (number % 3) for number, enqueue in enumerate(enqueues))

    for at in range(0, len(wire), step):
        guest.door.data_received(wire[at : at + step])
        port.rounds_until_idle()

    apart = [one for got in guest.commands for one in (got.apart() if isinstance(got, Enqueues) else [got])]
    assert [one for one in apart if isinstance(one, Enqueue)] == enqueues
    assert apart.count(ACK) == sum(number % 3 for number in range(5_000))


def test_paused_connection_has_no_turn_until_it_is_resumed() -> None:
    port = worker()
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    guest.door.pause()
    port.round()
    paused, waiting = guest.turns, len(port.rounds.waiting)
    guest.door.resume()
    port.rounds_until_idle()

    assert (paused, waiting) == ([SHARE_COMMANDS_MAX], 0)
    assert guest.turns == [SHARE_COMMANDS_MAX] * 3
    assert transport(guest).reads


def test_connection_with_a_rest_goes_on_when_its_peer_has_read_the_unread_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = worker(held_bytes_max=1 << 40)
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    unsent = BURST_BYTES_MAX + 1
    monkeypatch.setattr(transport(guest), "get_write_buffer_size", lambda: unsent)
    guest.door.send([Ok(uid="u", qname="q")])
    port.round()
    paused, waiting = guest.turns, len(port.rounds.waiting)
    unsent = 0
    port.listener.sweep()
    port.rounds_until_idle()

    assert (paused, waiting) == ([SHARE_COMMANDS_MAX], 0)
    assert guest.turns == [SHARE_COMMANDS_MAX] * 3
    assert transport(guest).reads


def test_end_is_reported_behind_all_earlier_commands() -> None:
    port = worker()
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    assert guest.door.eof_received()
    port.rounds_until_idle()

    assert guest.commands == [Ping()] * 3 * SHARE_COMMANDS_MAX
    assert [type(told) for told in guest.told[-1:]] == [Ended]


def test_commands_of_a_connection_that_is_lost_are_still_carried_out() -> None:
    port = worker()
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    guest.door.connection_lost(ConnectionResetError("reset"))
    early = [told for told in guest.told if isinstance(told, Closed)]
    port.rounds_until_idle()

    assert not early
    assert guest.commands == [Ping()] * 3 * SHARE_COMMANDS_MAX
    assert guest.told[-1] == Closed("connection lost: reset")
    assert (port.admission.held_bytes, port.admission.connections, len(port.listener.doors)) == (0, 0, 0)


@pytest.mark.parametrize("end", ["close", "drop", "stop"])
def test_rest_of_an_ended_connection_is_forgotten(end: str) -> None:
    port = worker()
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    if end == "stop":
        guest.door.stop_reading()
    else:
        getattr(guest.door, end)("enough")
    guest.door.connection_lost(None)
    port.rounds_until_idle()

    assert guest.turns == [SHARE_COMMANDS_MAX]
    assert isinstance(guest.told[-1], Closed)
    assert (port.admission.held_bytes, port.admission.connections, len(port.listener.doors)) == (0, 0, 0)


@pytest.mark.parametrize("end", ["close", "stop_reading"])
def test_lost_connection_does_not_delay_a_shutdown(end: str) -> None:
    port = worker()
    guest = port.connect()
    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)
    guest.door.connection_lost(None)

    guest.door.close("the broker stops") if end == "close" else guest.door.stop_reading()
    port.rounds_until_idle()

    assert [type(told) for told in guest.told].count(Closed) == 1
    assert not port.listener.doors


def test_commands_behind_one_that_closes_the_connection_are_ignored() -> None:
    port = worker()
    guest = port.connect()
    guest.obeys = lambda received: guest.door.close("bad")

    guest.door.data_received(b"x\n" * READ_BYTES)
    guest.door.data_received(PING)
    port.rounds_until_idle()

    assert guest.turns == [SHARE_COMMANDS_MAX]
    assert transport(guest).reads, "what still comes is read and thrown away"
    assert port.admission.held_bytes == 0


def test_unfinished_commands_count_as_held_until_they_are_done() -> None:
    port = worker()
    guest = port.connect()

    guest.door.keep(100_000)
    doing = port.admission.held_bytes
    guest.door.data_received(b"x\n" * SHARE_COMMANDS_MAX + b"x")
    more = port.admission.held_bytes
    guest.door.keep(1_000)

    assert (doing, more, port.admission.held_bytes) == (100_000, 100_001, 1)


def test_flooding_client_is_disconnected_while_too_much_is_held() -> None:
    port = worker(held_bytes_max=1_000)
    guest = port.connect()

    guest.door.data_received(PING * 3 * SHARE_COMMANDS_MAX)

    assert not transport(guest).is_open


def test_read_in_a_round_that_is_full_waits_for_the_next() -> None:
    port = worker()
    guest = port.connect()
    port.rounds.left = 0

    guest.door.data_received(PING)
    full = guest.turns
    port.round()

    assert (full, guest.turns) == ([], [1])
    assert transport(guest).reads


@PROTOCOLS
def test_commands_of_a_read_count_into_the_round(make_port: Any, hello: bytes, tiny: bytes) -> None:
    port = make_port()
    guest = port.connect(hello)
    before = port.rounds.left

    guest.door.data_received(tiny * 100)

    assert before - port.rounds.left == 100


@pytest.mark.parametrize("body_bytes", [SHARE_BYTES_MAX // 2, 2 * SHARE_BYTES_MAX])
def test_bytes_of_a_read_count_into_the_round_too(body_bytes: int) -> None:
    port = worker()
    guest = port.connect()
    before, line = port.rounds.left, PUB % (b"m" * body_bytes)

    guest.door.data_received(line)

    assert len(guest.commands) == 1
    assert before - port.rounds.left == 1 + len(line) // COMMAND_BYTES


def test_bytes_that_arrive_while_reading_is_paused_are_appended_to_the_rest() -> None:
    port = worker()
    guest = port.connect()
    bodies = [str(number) for number in range(3 * SHARE_COMMANDS_MAX)]
    lines = [PUB % body.encode() for body in bodies]

    guest.door.data_received(b"".join(lines[:-1]))
    guest.door.data_received(lines[-1])  # as with TLS it may
    port.rounds_until_idle()

    assert [command.message for command in guest.commands] == bodies
