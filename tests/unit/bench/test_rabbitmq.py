"""The benchmark's AMQP against frames by hand: confirms and deliveries are counted, and a refusal ends the cell."""

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bench.load.clients import PeerFailed
from bench.load.flow import Flow, Load
from bench.machine import process_tree
from bench.peers.peer import Peer
from bench.peers.rabbitmq import RabbitCaller, RabbitClassic, RabbitConsumer, RabbitProducer, RabbitQuorum
from bench.runner import run_cell
from bench.workloads import WORKLOADS
from bench.workloads.workload import Plan
from tests.unit.bench.fakes import Wire

END = b"\xce"
WORKER = b"\x01w"


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + END


def confirm(number: int, *, several: bool = False) -> bytes:
    return frame(1, struct.pack(">HHQB", 60, 80, number, several))


def acknowledgement(tag: int) -> bytes:
    return frame(1, struct.pack(">HHQB", 60, 80, tag, False))


def content(body: bytes, properties: bytes) -> bytes:
    return frame(2, struct.pack(">HHQ", 60, 0, len(body)) + properties) + frame(3, body)


def delivery(tag: int, body: bytes, properties: bytes = b"\x10\x00\x02") -> bytes:
    start = struct.pack(">HH2sQ", 60, 60, WORKER, tag) + b"\x00\x00\x05bench"
    return frame(1, start) + content(body, properties)


NACK = frame(1, struct.pack(">HHQB", 60, 120, 1, False))
CLOSE = frame(1, struct.pack(">HHH", 20, 40, 404) + b"\x09NOT_FOUND" + bytes(4))


def producer() -> RabbitProducer:
    return RabbitProducer(Flow(count=100), Load())


def consumer(flow: Flow) -> tuple[RabbitConsumer, Wire]:
    made, wire = RabbitConsumer(flow, 64), Wire()
    made.connection_made(cast(asyncio.WriteTransport, wire))
    return made, wire


@pytest.mark.parametrize(("confirms", "counted"), [
    ([confirm(1), confirm(2), confirm(3)], [1, 1, 1]),
    ([confirm(3, several=True), confirm(4)], [3, 1]),
    ([confirm(2), confirm(3, several=True)], [1, 2]),  # one of the three was confirmed before
    ([confirm(3), confirm(1), confirm(2), confirm(4, several=True)], [1, 1, 1, 1]),
    ([confirm(1), confirm(2), confirm(1, several=True)], [1, 1, 0]),
    ([confirm(5), confirm(3, several=True), confirm(5, several=True)], [1, 3, 1]),
])  # fmt: skip
def test_publishes_count_once_in_any_order_of_confirms(confirms: list[bytes], counted: list[int]) -> None:
    made = producer()

    assert [made.confirmations(data) for data in confirms] == counted


def test_confirms_are_counted_wherever_the_stream_is_cut() -> None:
    stream = confirm(2) + confirm(1) + confirm(7, several=True)

    for cut in range(1, len(stream)):
        made = producer()

        assert made.confirmations(stream[:cut]) + made.confirmations(stream[cut:]) == 7


def test_deliveries_are_acknowledged_once_at_any_cut_of_the_stream() -> None:
    again = b"\x30\x00" + struct.pack(">I", 19) + b"\x10x-delivery-countb\x01" + b"\x02"
    stream = delivery(1, b"x" * 100) + delivery(258, b"x", properties=again) + delivery(3, END * 30)

    for cut in range(1, len(stream)):
        flow = Flow(count=9)
        made, wire = consumer(flow)
        made.data_received(stream[:cut])
        made.data_received(stream[cut:])

        assert wire.sent == acknowledgement(1) + acknowledgement(258) + acknowledgement(3)
        assert flow.finished == 3


@pytest.mark.parametrize("answer", [NACK, CLOSE, CLOSE[:14]])
def test_unexpected_answer_to_a_publish_ends_the_cell(answer: bytes) -> None:
    with pytest.raises(PeerFailed):
        producer().confirmations(confirm(1) + answer)


@pytest.mark.parametrize(
    "answer", [CLOSE, CLOSE[:12], delivery(1, b"x") + CLOSE, delivery(1, b"x").replace(WORKER, b"\x01v")]
)
def test_unexpected_answer_to_a_fetch_ends_the_cell(answer: bytes) -> None:
    async def scenario() -> None:
        flow = Flow(seconds=60)
        flow.grant(1)
        made, _ = consumer(flow)

        made.data_received(answer)

        with pytest.raises(PeerFailed):
            await asyncio.wait_for(flow.all_finished(), 1)

    asyncio.run(scenario())


def got(tag: int) -> bytes:
    return frame(1, struct.pack(">HHQ", 60, 71, tag) + b"\x00\x00\x05bench" + bytes(4)) + content(
        b"xx", b"\x10\x00\x02"
    )


GOT = got(9)
GOT_NOTHING = frame(1, struct.pack(">HH", 60, 72) + b"\x00")


async def caller(answers: bytes, cut: int) -> tuple[RabbitCaller, Wire]:
    made, wire = RabbitCaller(), Wire()
    made.connection_made(cast(asyncio.WriteTransport, wire))
    made.data_received(answers[:cut])
    made.data_received(answers[cut:])
    return made, wire


def test_fetches_get_one_message_each_at_any_cut_of_the_stream() -> None:
    stream = GOT + got(258)

    async def acknowledged(cut: int) -> bytes:
        made, wire = await caller(stream, cut)
        tags = [await asyncio.wait_for(made.fetch(), 1) for _ in range(2)]
        wire.sent = b""
        for tag in tags:
            await made.ack(tag)
        return wire.sent

    for cut in range(1, len(stream)):
        assert asyncio.run(acknowledged(cut)) == acknowledgement(9) + acknowledgement(258)


def test_empty_fetch_is_repeated() -> None:
    async def scenario() -> bytes:
        made, _ = await caller(GOT_NOTHING + GOT, len(GOT_NOTHING))
        return await asyncio.wait_for(made.fetch(), 1)

    assert asyncio.run(scenario()) == struct.pack(">Q", 9)


def test_dozing_worker_wakes_with_the_tag_of_its_message() -> None:
    async def scenario() -> bytes:
        qos_ok, consume_ok = (struct.pack(">HH", 60, number) for number in (11, 21))
        answers = frame(1, qos_ok) + frame(1, consume_ok + WORKER) + delivery(7, b"x")
        made, _ = await caller(answers, 20)
        await made.doze()
        return await made.wake()

    assert asyncio.run(scenario()) == struct.pack(">Q", 7)


def publish(made: RabbitCaller) -> object:
    return made.publish(b"x")


def fetch(made: RabbitCaller) -> object:
    return made.fetch()


@pytest.mark.parametrize(("answer", "step"), [(NACK, publish), (CLOSE, fetch), (confirm(1)[:-1] + b"?", publish)])
def test_caller_refuses_an_unrequested_answer(answer: bytes, step: Callable[[RabbitCaller], object]) -> None:
    async def scenario() -> None:
        made, _ = await caller(answer, 3)
        with pytest.raises(PeerFailed):
            await asyncio.wait_for(cast("asyncio.Future[object]", step(made)), 1)

    asyncio.run(scenario())


def test_servers_share_no_directory(tmp_path: Path) -> None:
    ours, other = (RabbitQuorum(tmp_path / name).environment() for name in ("a", "b"))

    moved = {name for name, value in ours.items() if value.startswith(str(tmp_path / "a"))}
    assert {"HOME", "RABBITMQ_MNESIA_BASE", "RABBITMQ_LOG_BASE", "RABBITMQ_CONF_ENV_FILE"} <= moved
    assert all(ours[name] != other[name] for name in moved)


@pytest.mark.long
@pytest.mark.parametrize("peer_class", [RabbitQuorum, RabbitClassic])
def test_tiny_run_gives_every_figure_and_leaves_no_process(peer_class: type[Peer], tmp_path: Path) -> None:
    if sentence := peer_class.missing():
        pytest.skip(sentence)
    before = process_tree(os.getpid())

    figures = asyncio.run(run_cell(WORKLOADS["W1"], peer_class(tmp_path), Plan(seconds=0.2, scale=0.001), tmp_path))

    wanted = {column.figure for column in WORKLOADS["W1"].columns} - {"per_cpu"}  # too short for the clock's tick
    assert wanted <= figures.keys()
    assert figures["count"] > 0
    assert set(process_tree(os.getpid())) <= set(before)
