"""Lobby: the lanes of a queue are there whatever becomes of its process."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.doors.lanes import HandSession
from tests.helpers.loops.recorder import Recorder
from wakeq.actors.queues.lobby import TAKE_TURN, Lobby
from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire

Q = "q"


class Queues(Process):
    """The supervisor of all queues: notes for which queue a process is missing."""

    def __init__(self, opened: list[str]) -> None:
        super().__init__()
        self.opened = opened

    def on_receive(self, message: Any) -> None:
        raise AssertionError("queues that are missing are opened by a step, in the same round")

    def open_queue(self, name: str) -> None:
        self.opened.append(name)
        if name == "bad":
            raise ZeroDivisionError("a bug")


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def opened() -> list[str]:
    return []


@pytest.fixture
def queues(runtime: Runtime, opened: list[str]) -> Queues:
    return runtime.spawn(Queues, opened)


@pytest.fixture
def lobby(runtime: Runtime, queues: Queues) -> Lobby:
    made = Lobby(runtime)
    made.open(queues, queues.open_queue)
    return made


def served(lobby: Lobby, runtime: Runtime, name: str) -> Recorder:
    process = runtime.spawn(Recorder)
    lobby.enter(name, process)
    return process


def test_queue_has_one_pair_of_lanes(lobby: Lobby) -> None:
    assert lobby.lanes_of(Q) is lobby.lanes_of(Q)
    assert lobby.lanes_of(Q) is not lobby.lanes_of("other")
    assert lobby.lanes_of(Q).name == Q


def test_queue_takes_a_turn_when_something_is_filed_first(lobby: Lobby, runtime: Runtime, opened: list[str]) -> None:
    process, other = served(lobby, runtime, Q), served(lobby, runtime, "other")

    lobby.filed(Q)
    lobby.filed(Q)
    runtime.run_until_idle()

    assert (process.got, other.got, opened) == ([TAKE_TURN], [], [])


def test_queue_without_a_process_is_opened_at_once(lobby: Lobby, opened: list[str]) -> None:
    lobby.filed(Q)

    assert opened == [Q]


def test_lanes_outlive_the_process_of_their_queue(lobby: Lobby, runtime: Runtime, opened: list[str]) -> None:
    process = served(lobby, runtime, Q)
    filed = lobby.filed(Q)

    process.tell(ZeroDivisionError("a bug"))
    runtime.run_until_idle()
    lobby.filed(Q)

    assert lobby.lanes_of(Q).take() is filed
    lobby.filed(Q)
    assert opened == [Q], "there is no process any more"


def test_bug_in_opening_a_queue_stops_the_supervisor_and_not_the_filing_session(
    lobby: Lobby, runtime: Runtime, queues: Queues, opened: list[str]
) -> None:
    lobby.filed("bad")

    assert opened == ["bad"]
    assert not queues.alive


def test_lobby_names_the_process_of_a_queue_or_else_the_supervisor(
    lobby: Lobby, runtime: Runtime, queues: Queues
) -> None:
    before = lobby.queue(Q)
    process = served(lobby, runtime, Q)

    assert (before, lobby.queue(Q)) == (queues, process)


def test_lanes_of_a_queue_that_is_gone_are_forgotten_unless_something_is_filed(lobby: Lobby) -> None:
    idle, filed = lobby.lanes_of(Q), lobby.lanes_of("filed")
    assert lobby.filed("filed") is filed.filed

    for name in (Q, "filed", "never seen"):
        lobby.forget(name)

    assert lobby.lanes_of(Q) is not idle
    assert lobby.lanes_of("filed") is filed


def test_lanes_with_filed_commands_are_all_found(lobby: Lobby) -> None:
    for name in "abc":
        lobby.filed(name)
    lobby.lanes_of("b").take()

    assert [lanes.name for lanes in lobby.all_filed()] == ["a", "c"]


# --- on a broker ---------------------------------------------------------------------------------------------------


def test_publish_to_an_unknown_queue_creates_it(broker: Broker, client: Client) -> None:
    lobby, session = broker.assembly.lobby, HandSession()
    slot = Slot(session, wire.Pub(qname="new", message="m"))

    lobby.filed("new").publish(slot, Draft(b"m"), "", 0, is_alike=True)
    broker.settle()

    assert slot.outcome == client.fetch("new")["uid"]
    assert lobby.lanes_of("new") is broker.queue("new").lanes


@pytest.mark.parametrize(
    "commands",
    [
        [{"cmd": "ACK", "qname": "none", "uid": "u"}],
        [{"cmd": "FET", "qname": "none"}],
        [{"cmd": "NACK", "qname": "none", "uid": "u"}],
        [{"cmd": "UNS", "qname": "none"}],
        [{"cmd": "PUB", "qname": "none", "message": "m"}, {"cmd": "DROP", "qname": "none"}],
        [{"cmd": "SUB", "qname": "none"}, {"cmd": "UNS", "qname": "none"}],
        [{"cmd": "PURGE", "qname": "none"}],
        [{"cmd": "ACK", "qname": "none", "uid": "u", "publish": [{"qname": "other", "message": "m"}]}],
    ],
    ids=lambda commands: commands[0]["cmd"],
)
def test_queue_that_does_not_exist_leaves_neither_a_process_nor_lanes(
    broker: Broker, client: Client, commands: list[dict[str, Any]]
) -> None:
    lobby = broker.assembly.lobby
    before = lobby.lanes_of("none")
    lobby.forget("none")

    assert len(client.ask(*commands)) == len(commands)
    broker.flush()
    broker.advance(1)

    assert broker.assembly.lobby.process("none") is None
    assert lobby.lanes_of("none") is not before
    assert "none" not in broker.queues.catalog.queues


def test_publish_that_is_refused_leaves_neither_a_process_nor_lanes(broker: Broker, client: Client) -> None:
    before = broker.assembly.lobby.lanes_of("none")
    broker.disk_full(True)

    (reply,) = client.ask({"cmd": "PUB", "qname": "none", "message": "m"})
    broker.advance(1)

    assert reply["err"] == "DISK_FULL"
    assert broker.assembly.lobby.process("none") is None
    assert broker.assembly.lobby.lanes_of("none") is not before


def test_command_for_a_queue_whose_process_is_about_to_end_is_done(broker: Broker, client: Client) -> None:
    """The last subscriber of a queue that does not exist leaves, and others come in the same round."""
    leaves, comes = broker.client(), broker.client()
    leaves.call("SUB", "none")

    leaves.send({"cmd": "UNS", "qname": "none"})
    comes.send({"cmd": "SUB", "qname": "none"}, {"cmd": "FET", "qname": "none", "wait": 5})
    broker.settle()
    client.publish("none", "m")

    assert [reply.get("msg", reply["cmd"]) for reply in comes.take()] == ["oksub", "m"]


def test_commands_filed_while_supervisor_ends_a_process_find_the_next_one(broker: Broker, client: Client) -> None:
    client.call("SUB", "none")
    process = broker.queue("none")
    client.call("UNS", "none")

    replies = client.ask({"cmd": "PUB", "qname": "none", "message": "m"}, {"cmd": "FET", "qname": "none"})

    assert not process.alive
    assert [reply.get("msg", reply["cmd"]) for reply in replies] == ["ok", "m"]
