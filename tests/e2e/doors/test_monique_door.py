"""The MoniQue doors of a real broker: golden frames over WebSocket, transfers over ZeroMQ, and both together."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.monique.component import ZmqComponent, component, config_json, is_quiet, packed
from tests.helpers.monique.raw import RawMonique, raw_monique
from tests.helpers.network.ports import free_port
from tests.helpers.programs.started import eventually

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "monique.json").read_text(encoding="utf-8"))
WEBSOCKET = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in VECTORS["websocket"]}
ZEROMQ = {vector["name"]: list(map(bytes.fromhex, vector["frames_hex"])) for vector in VECTORS["zeromq"]}
BAD = [list(map(bytes.fromhex, vector["frames_hex"])) for vector in VECTORS["zeromq_bad"]]
TASKS = "example_adder"  # the spec that has a route
EVERYTHING = [{"spec": "*", "type": "*"}]


@pytest.fixture(scope="module")
def controller_ports() -> dict[str, int]:
    return {"example_clock": free_port()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, controller_ports: dict[str, int]) -> Iterator[BrokerProcess]:
    """Return one broker with all doors of MoniQue for all tests of this file; each leaves it as it was."""
    folder = tmp_path_factory.mktemp("monique")
    config = config_json(folder / "config.json", **controller_ports)
    broker = BrokerProcess(
        folder / "data",
        "--set",
        f"monique.config_file={config}",
        "--set",
        f"monique.routes={TASKS}=calculations",
    )
    try:
        yield broker.start()
    finally:
        broker.close()


def url_of(broker: BrokerProcess) -> str:
    return f"http://{broker.addresses['http']}/monique"


@pytest.fixture
def zmq_component(broker: BrokerProcess) -> Iterator[ZmqComponent]:
    with component(broker.addresses) as made:
        yield made


async def frames(ws: RawMonique, *names: str) -> list[bytes]:
    """Send golden frames and return as many frames as come back for them."""
    for name in names:
        await ws.socket.send_bytes(WEBSOCKET[name])
    return [(await ws.socket.receive(10)).data for _ in names]


# --- WebSocket ---


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("printed_ping", "printed_pong"),
        ("printed_subscribe", "printed_subscribed"),
        ("printed_unsubscribe", "printed_unsubscribed"),
        ("printed_push_to_mq", "printed_pushed_to_mq"),
        ("push_to_mq_str_tag", "pushed_to_mq_str_tag"),
        ("bad_unknown_command", "error_unknown_message"),
        ("printed_pong", "error_pong_from_client"),
    ],
)
def test_golden_frame_gets_its_golden_answer(broker: BrokerProcess, asked: str, answered: str) -> None:
    async def test() -> None:
        async with raw_monique(f"http://{broker.addresses['monique']}/") as ws:
            assert await frames(ws, asked) == [WEBSOCKET[answered]]

    asyncio.run(test())


def test_pushed_message_reaches_each_subscriber_once_and_in_binary(broker: BrokerProcess) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as one, raw_monique(url_of(broker)) as other:
            both = [*EVERYTHING, {"spec": "example_radio", "type": "data"}]
            assert await one.ask("subscribe", both) == {"command": "subscribed", "data": both}
            tag, message = packed(spec="example_radio", type="data")

            assert await other.ask("push_to_mq", {"tag": tag.decode(), "message": message}) == {
                "command": "pushed_to_mq",
                "data": tag.decode(),
            }

            assert await one.take() == {"command": "pushed_from_mq", "data": {"tag": tag.decode(), "message": message}}
            assert (await one.ask("ping", 7)) == {"command": "pong", "data": 7}

    asyncio.run(test())


def test_text_frame_is_read_like_a_binary_one(broker: BrokerProcess) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.socket._writer.send_frame(WEBSOCKET["printed_ping"], aiohttp.WSMsgType.TEXT)  # no UTF-8 at all

            assert (await ws.socket.receive(10)).data == WEBSOCKET["printed_pong"]

    asyncio.run(test())


@pytest.mark.parametrize("bad", [b"", b"\xc1", b"\x93\x01\x02", b"\x80", b"garbage", b"\xdf\xff\xff\xff\xff" * 9])
def test_bad_frame_is_answered_and_the_connection_stays_open(broker: BrokerProcess, bad: bytes) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.socket.send_bytes(bad)

            assert (await ws.take())["error"].startswith("unknown message")
            assert await ws.ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())


def test_frame_above_the_limit_closes_the_connection_with_a_reason(broker: BrokerProcess) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            head = b"\x82\xff" + (17 << 20).to_bytes(8, "big") + bytes(4)
            ws.socket._writer.transport.write(head + b"the first of very many bytes")

            assert (await ws.closed())[0] == aiohttp.WSCloseCode.MESSAGE_TOO_BIG

    asyncio.run(test())


def test_connection_without_a_required_cookie_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "monique.id_cookie=true")

    async def test() -> None:
        async with aiohttp.ClientSession() as session:
            upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
            async with session.get(url_of(broker), headers=upgrade) as answer:
                assert (answer.status, msgpack.unpackb(await answer.read())) == (
                    400,
                    {"error": "user id not found in cookies."},
                )
        async with raw_monique(url_of(broker), headers={"Cookie": "id=me"}) as ws:
            assert await ws.ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())


# --- ZeroMQ ---


def test_example_of_the_specification_reaches_components_byte_by_byte(
    broker: BrokerProcess, zmq_component: ZmqComponent
) -> None:
    """Its `id` and `pid` are bin."""
    pushed = msgpack.unpackb(WEBSOCKET["printed_push_to_mq"], raw=False)["data"]

    async def push() -> list[bytes]:
        async with raw_monique(url_of(broker)) as ws:
            return await frames(ws, "printed_push_to_mq")

    assert asyncio.run(push()) == [WEBSOCKET["printed_pushed_to_mq"]]
    assert zmq_component.hear() == [pushed["tag"], pushed["message"]]


def test_transfer_leaves_on_the_layer_it_came_in_on_unchanged(zmq_component: ZmqComponent) -> None:
    for name in ("config_from_python_component", "result_with_parent", "component_error"):
        zmq_component.send(ZEROMQ[name])
        assert zmq_component.hear() == ZEROMQ[name]
    zmq_component.send_technical(ZEROMQ["monitoring"])
    assert zmq_component.hear_technical() == ZEROMQ["monitoring"]
    assert is_quiet(zmq_component.sub)


def test_bad_transfer_is_dropped_and_logged_and_the_next_one_arrives(
    broker: BrokerProcess, zmq_component: ZmqComponent
) -> None:
    for bad in BAD:
        zmq_component.send(bad)
        zmq_component.send_technical(bad)
    good = packed(spec="a_b", type="data")

    zmq_component.send(good)
    zmq_component.send_technical(good)

    assert zmq_component.hear() == good
    assert zmq_component.hear_technical() == good
    assert "from a component: dropped (201): tag" in broker.stderr


def test_component_never_receives_a_message_it_cannot_unpack(zmq_component: ZmqComponent) -> None:
    good = packed(spec="a_b", type="data")
    (tag, message), fields = good, msgpack.unpackb(good[1])

    for broken in (
        b"no message",
        msgpack.packb(fields | {"id": 5}),
        msgpack.packb({name: value for name, value in fields.items() if name != "pid"}),
        message + b"\0",
    ):
        zmq_component.send([tag, broken])
        zmq_component.send_technical([tag, broken])
    zmq_component.send(good)
    zmq_component.send_technical(good)

    assert zmq_component.hear() == good
    assert zmq_component.hear_technical() == good


def test_kill_is_broadcast_and_then_relayed(zmq_component: ZmqComponent) -> None:
    zmq_component.send_technical(ZEROMQ["kill"])

    tag, message = zmq_component.hear()
    relayed = zmq_component.hear_technical()

    expected = msgpack.unpackb(ZEROMQ["killed_error_from_scheduler"][1])
    got = msgpack.unpackb(message)
    for fields in (got, expected):
        assert len(fields.pop("id")) == 40
        del fields["created_at"]
    assert got == expected
    assert tag.startswith(b"error:error:")
    assert relayed == ZEROMQ["kill"]


def test_controller_gives_each_task_to_one_component(broker: BrokerProcess, controller_ports: dict[str, int]) -> None:
    address = f"127.0.0.1:{controller_ports['example_clock']}"
    with (
        component(broker.addresses, controller=address) as one,
        component(broker.addresses, controller=address) as other,
    ):
        tasks = [packed(spec="example_clock", type="config", id=str(number)) for number in range(10)]
        for task in tasks:
            one.send(task)

        got: list[list[bytes]] = []
        eventually(lambda: _take_all(got, one, other) == 10, "all tasks were given")
        assert sorted(got) == sorted(tasks)
        one.send(packed(spec="example_clock", type="result"))
        assert is_quiet(one.pull)


def _take_all(got: list[list[bytes]], *components: ZmqComponent) -> int:
    for one in components:
        while one.pull.poll(0):
            got.append(one.pull.recv_multipart())
    return len(got)


# --- one exchange ---


def test_messages_pass_between_components_and_websockets_both_ways(
    broker: BrokerProcess, zmq_component: ZmqComponent
) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.ask("subscribe", EVERYTHING)
            tag, message = packed(spec="a_b", type="data")

            zmq_component.send([tag, message])
            assert (await ws.take())["data"] == {"tag": tag.decode(), "message": message}
            assert zmq_component.hear() == [tag, message]

            await ws.say("push_to_mq", {"tag": tag, "message": message})
            assert (await ws.take())["command"] == "pushed_from_mq"
            assert await ws.take() == {"command": "pushed_to_mq", "data": tag}
            assert zmq_component.hear() == [tag, message]

    asyncio.run(test())


def test_message_of_the_old_form_reaches_websockets_and_components(
    broker: BrokerProcess, zmq_component: ZmqComponent
) -> None:
    """Its id and its pid are bytes."""
    old = WEBSOCKET["printed_message_result"]
    tag = (
        "result:example_calculator:aoH9WCyq+2sFRg40WxRWByfVcBE=:VJuujbbNlNQ0d/xqCvv2E11Orw0=:0000-0000-0000-calculator"
    )

    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.ask("subscribe", EVERYTHING)
            await ws.say("push_to_mq", {"tag": tag, "message": old})
            assert (await ws.take())["data"] == {"tag": tag, "message": old}
            assert (await ws.take())["command"] == "pushed_to_mq"

    asyncio.run(test())
    assert zmq_component.hear() == [tag.encode(), old]


def test_message_that_components_may_not_get_is_refused_to_its_sender(
    broker: BrokerProcess, zmq_component: ZmqComponent
) -> None:
    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.ask("subscribe", EVERYTHING)
            answer = await ws.ask("push_to_mq", {"tag": "data:a_b:1::me", "message": b"encrypted"})
            assert "not one with the nine fields" in answer["error"] or "not MessagePack" in answer["error"]
            assert await ws.ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())
    assert is_quiet(zmq_component.sub)


# --- tasks on a queue ---


async def push_task(ws: RawMonique, task_id: str, **fields: Any) -> bytes:
    """Push a calculation; return it packed."""
    data = b'{"first":6,"second":5.0,"action":"/"}'
    tag, message = packed(spec=TASKS, type="config", id=task_id, data=data, **fields)
    answer = await ws.ask("push_to_mq", {"tag": tag.decode(), "message": message})
    assert answer == {"command": "pushed_to_mq", "data": tag.decode()}, answer
    return message


def test_task_with_a_route_is_processed_at_another_door_and_answered(broker: BrokerProcess, connect: Connect) -> None:
    worker = connect(broker)

    async def test() -> None:
        async with raw_monique(url_of(broker)) as ws:
            await ws.ask("subscribe", [{"spec": TASKS, "type": "result"}])
            await push_task(ws, "t1")

            task = worker.ask("FET", "calculations")
            answer = {"qname": "monique.answers", "message": '{"answer":1.2}', "headers": task["headers"]}
            worker.ask("ACK", "calculations", uid=task["uid"], lease=task["lease"], publish=[answer])

            assert json.loads(task["msg"])["action"] == "/"
            result = (await ws.take())["data"]
            assert result["tag"].startswith(f"result:{TASKS}:")
            assert result["tag"].endswith(":t1:wakeq")
            assert msgpack.unpackb(result["message"])["data"] == b'{"answer":1.2}'

    asyncio.run(test())


def test_task_survives_its_component_and_kill_9_of_the_broker(
    start_broker: StartBroker, tmp_path: Path, connect: Connect
) -> None:
    port = free_port()
    config = config_json(tmp_path / "config.json", **{TASKS: port})
    broker = start_broker("--set", f"monique.config_file={config}", "--set", f"monique.routes={TASKS}=calculations")

    async def push() -> bytes:
        async with raw_monique(url_of(broker)) as ws:
            return await push_task(ws, "t2")

    message = msgpack.unpackb(asyncio.run(push()))
    broker.restart()
    address = f"127.0.0.1:{port}"
    with component(broker.addresses, controller=address) as one, component(broker.addresses, controller=address) as two:
        eventually(lambda: bool(one.pull.poll(0) or two.pull.poll(0)), "one of them has the task")
        first, second = (one, two) if one.pull.poll(0) else (two, one)
        assert msgpack.unpackb(first.task()[1]) == message
        first.pull.close()
        assert msgpack.unpackb(second.task()[1]) == message  # long before its lease is over
        connect(broker).ask("PUB", "other", message="the delivery is on disk when this is")
        broker.restart()
    with component(broker.addresses) as survivor:  # whoever worked on it meanwhile
        survivor.send(packed(spec=TASKS, type="result", pid="t2", id="r"))
        client = connect(broker)
        eventually(
            lambda: client.ask("STATS", "calculations")["stats"]["acked"] == 1, "the answer took it off its queue"
        )


def test_kill_removes_a_waiting_task_also_after_a_restart(
    start_broker: StartBroker, tmp_path: Path, connect: Connect
) -> None:
    config = config_json(tmp_path / "config.json")
    broker = start_broker("--set", f"monique.config_file={config}", "--set", f"monique.routes={TASKS}=calculations")

    async def push(*task_ids: str) -> None:
        async with raw_monique(url_of(broker)) as ws:
            for task_id in task_ids:
                await push_task(ws, task_id)

    def waiting() -> int:
        size: int = connect(broker).ask("STATS", "calculations")["stats"]["size"]
        return size

    asyncio.run(push(*(f"old{number}" for number in range(150))))
    broker.restart()
    asyncio.run(push("new"))
    with component(broker.addresses) as killer:
        for task_id in ("new", "old149", "unknown"):
            data = json.dumps({"task_id": task_id}).encode()
            killer.send_technical(packed(spec="kill", type="config", data=data))
            assert killer.hear()[0].split(b":")[3].decode() == task_id
        eventually(lambda: waiting() == 149, "both are gone, and nothing else is")


def test_port_in_use_ends_the_start_at_once(
    broker: BrokerProcess, controller_ports: dict[str, int], tmp_path: Path
) -> None:
    config = config_json(tmp_path / "config.json", **controller_ports)
    other = BrokerProcess(tmp_path / "data", "-f", str(config))
    try:
        assert other.run_to_end() == 71
        assert "is another scheduler there?" in other.stderr
    finally:
        other.close()
