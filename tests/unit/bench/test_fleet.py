"""W12 counts lives as they are: each once, by the commands that a real worker sends, and none that did not happen."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from bench.bars import OURS, OURS_NUMBERED, YARDSTICK, Bar, judge
from bench.load.clients import Member, PeerFailed
from bench.load.flow import Flow, Load
from bench.peers import peer as peer_module
from bench.peers.beanstalkd import BeanstalkMember, ToyGroup
from bench.peers.peer import Peer
from bench.peers.redis import RedisMember
from bench.peers.wakeq import NumberedMember, WakeqMember
from bench.runner import run_cell
from bench.workloads import WORKLOADS, fleet
from bench.workloads.workload import Plan
from tests.unit.bench.fakes import FakeWakeq
from wakeq.client.session import Session
from wakeq.protocol.wire.worker.codec import Ack, Fet, Pub

TINY = Plan(seconds=0.2, scale=0.02)
BODY = b"xxx"
WAKEQ_ANSWERS = (
    b'{"cmd":"ok","qname":"bench","uid":"a1"}\n',
    b'{"cmd":"msg","qname":"bench","uid":"a2","error_count":0,"msg":"xxx","lease":"1-7"}\n',
    b'{"cmd":"okack","uid":"a2","qname":"bench"}\n',
)
BEANSTALK_ANSWERS = (b"INSERTED 4\r\n", b"RESERVED 12 3\r\nxxx\r\n", b"DELETED\r\n")
REDIS_ANSWERS = (b":1\r\n", b"$3\r\nxxx\r\n", b":1\r\n")


class Writes:
    """A transport that keeps each write."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)


class FakeNumbered(FakeWakeq):
    member_class = NumberedMember


def connected(member_class: type[Member], flow: Flow, queue: str = "bench") -> tuple[Member, Writes]:
    member, wire = member_class(flow, BODY, queue), Writes()
    member.connection_made(cast(asyncio.WriteTransport, wire))
    return member, wire


async def failure_of(flow: Flow) -> Exception | None:
    """What this flow has failed of, if it has."""
    try:
        await asyncio.wait_for(flow.all_finished(), 1)
    except PeerFailed as error:
        return error
    return None


@pytest.mark.parametrize(("member_class", "answers", "acknowledgement"), [
    (WakeqMember, WAKEQ_ANSWERS, b'{"cmd":"ACK","qname":"bench","uid":"a2","lease":"1-7"}\n'),
    (NumberedMember, WAKEQ_ANSWERS, b'{"cmd":"ACK","qname":"bench","uid":"a2","lease":"1-7","cmd_id":3}\n'),
    (BeanstalkMember, BEANSTALK_ANSWERS, b"delete 12\r\n"),
    (RedisMember, REDIS_ANSWERS, b"$4\r\nLREM"),
])  # fmt: skip
def test_life_counts_once_wherever_its_answers_are_cut(
    member_class: type[Member], answers: tuple[bytes, bytes, bytes], acknowledgement: bytes
) -> None:
    async def scenario(cut_answer: int, cut: int) -> None:
        flow = Flow(count=2)
        member, wire = connected(member_class, flow)
        member.begin()
        for number, answer in enumerate(answers):
            assert (len(wire.sent), flow.finished) == (number + 1, 0)
            for part in (answer[:cut], answer[cut:]) if number == cut_answer else (answer,):
                member.data_received(part)

        assert flow.finished == 1
        assert acknowledgement in wire.sent[2]
        assert len(wire.sent) == 4, "the next life has begun"

    for cut_answer, answer in enumerate(answers):
        for cut in range(1, len(answer)):
            asyncio.run(scenario(cut_answer, cut))


@pytest.mark.parametrize(("member_class", "answers"), [
    (WakeqMember, (WAKEQ_ANSWERS[0], b'{"cmd":"nomsg","qname":"bench"}\n')),
    (WakeqMember, (b'{"cmd":"nok","err":"QUEUE_FULL"}\n',)),
    (WakeqMember, (*WAKEQ_ANSWERS[:2], b'{"cmd":"nok","err":"STALE_LEASE"}\n')),
    (BeanstalkMember, (BEANSTALK_ANSWERS[0], b"TIMED_OUT\r\n")),
    (BeanstalkMember, (*BEANSTALK_ANSWERS[:2], b"NOT_FOUND\r\n")),
    (RedisMember, (REDIS_ANSWERS[0], b"$-1\r\n")),
    (RedisMember, (*REDIS_ANSWERS[:2], b":0\r\n")),
])  # fmt: skip
def test_answer_that_is_not_the_expected_one_ends_the_cell(
    member_class: type[Member], answers: tuple[bytes, ...]
) -> None:
    async def scenario() -> Exception | None:
        flow = Flow(seconds=60)
        member, _ = connected(member_class, flow)
        member.begin()
        for answer in answers:
            member.data_received(answer)
        return await failure_of(flow)

    assert isinstance(asyncio.run(scenario()), PeerFailed)


def test_numbered_member_sends_the_bytes_of_the_python_client() -> None:
    session = Session("s" * 32, answer_timeout_s=30, silence_limit_s=60)
    session.connected(0.0)
    greeting = session.bytes_to_send()
    for _ in range(2):
        for command in (
            Pub(qname="bench", message="xxx"),
            Fet(qname="bench"),
            Ack(qname="bench", uid="a2", lease="1-7"),
        ):
            session.ask(command, 0.0)

    async def scenario() -> list[bytes]:
        member, wire = connected(NumberedMember, Flow(count=2))
        hello = asyncio.create_task(member.hello())
        await asyncio.sleep(0)
        member.data_received(b'{"cmd":"hello","version":"1"}\n')
        await hello
        member.begin()
        for answer in WAKEQ_ANSWERS * 2:
            member.data_received(answer)
        return wire.sent

    hello, *commands = asyncio.run(scenario())

    assert b"".join(commands) == session.bytes_to_send()
    assert len(hello) == len(greeting)
    assert hello.startswith(b'{"cmd":"HELLO","session":"')


def test_numbered_members_have_sessions_of_their_own() -> None:
    async def hello() -> bytes:
        member, wire = connected(NumberedMember, Flow())
        asyncio.get_running_loop().call_soon(member.data_received, b'{"cmd":"hello"}\n')
        await member.hello()
        return wire.sent[0]

    assert asyncio.run(hello()) != asyncio.run(hello())


def test_beanstalkd_member_leaves_the_default_tube_for_its_own() -> None:
    async def scenario() -> bytes:
        member, wire = connected(BeanstalkMember, Flow(), queue="q7")
        hello = asyncio.create_task(member.hello())
        for answer in (b"USING q7\r\n", b"WATCHING 2\r\n", b"WATCHING 1\r\n"):
            await asyncio.sleep(0)
            member.data_received(answer)
        await hello
        return b"".join(wire.sent)

    assert asyncio.run(scenario()) == b"use q7\r\nwatch q7\r\nignore default\r\n"


def test_members_are_spread_evenly_over_the_queues(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def connect(member: Member, port: int) -> Member:
        return member

    monkeypatch.setattr(peer_module, "connect", connect)

    members = asyncio.run(FakeWakeq(tmp_path).members(5, Flow(), Load(queues=("a", "b"))))

    assert [member.queue for member in members] == ["a", "b", "a", "b", "a"]


def test_closed_flow_grants_nothing_and_ends_with_its_last_answer() -> None:
    async def scenario() -> None:
        flow = Flow()
        assert flow.grant(1) == 1
        waiting = asyncio.create_task(flow.all_finished())

        flow.close()
        assert flow.grant(1) == 0
        await asyncio.sleep(0)
        assert not waiting.done()
        flow.finish(1)

        await asyncio.wait_for(waiting, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize(("workload", "peer_class"), [
    ("W12B", FakeWakeq), ("W12D", FakeNumbered), ("W12D", ToyGroup), ("W12E", FakeWakeq),
])  # fmt: skip
def test_tiny_run_gives_every_figure_of_its_table(workload: str, peer_class: type[Peer], tmp_path: Path) -> None:
    figures = asyncio.run(run_cell(WORKLOADS[workload], peer_class(tmp_path), TINY, tmp_path))

    assert {column.figure for column in WORKLOADS[workload].columns} <= figures.keys()
    assert figures["count"] > 0


class IdleMember(BeanstalkMember):
    """Its server never answers."""

    def begin(self) -> None:
        self.flow.grant(1)


class WrongMember(BeanstalkMember):
    """Its server answers something else."""

    stored = b"KEPT"


@pytest.mark.parametrize(("member", "words"), [
    (IdleMember, "only 0 of 1 lives ended"), (WrongMember, "expected KEPT, got INSERTED"),
])  # fmt: skip
def test_fleet_that_cannot_live_fails_the_cell_and_says_why(
    member: type[Member], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ToyGroup, "member_class", member)
    monkeypatch.setattr(fleet, "WAVE_S_MAX", 0.1)

    with pytest.raises(PeerFailed, match=words):
        asyncio.run(run_cell(WORKLOADS["W12A"], ToyGroup(tmp_path), TINY, tmp_path))


def test_bar_on_numbered_publishes_judges_the_fleet_that_numbers_them() -> None:
    cells = {OURS: [{"cpu_us": 50.0}], OURS_NUMBERED: [{"cpu_us": 75.0}], YARDSTICK: [{"cpu_us": 25.0}]}
    bar = Bar("W12D", "cpu_us", "", 2.4, at_most=True, against=YARDSTICK, ours=OURS_NUMBERED)

    reached, _ = judge(bar, cells)

    assert reached == 3.0
