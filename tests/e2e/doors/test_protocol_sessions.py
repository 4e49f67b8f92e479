"""Every conversation of the golden vectors, replayed at both doors of a real broker.

A reply must have every field of its step with that value; it may have more. `<uid>` stands for the broker's
uid.
"""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import Conversation, FrameConversation, LineConversation, Message
from wakeq import Client
from wakeq.protocol.errors import TooLarge

SESSIONS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "worker.json").read_text())[
    "sessions"
]
FRAMES: list[dict[str, str]] = json.loads((Path(__file__).parents[2] / "vectors" / "worker.json").read_text())["frames"]
DOORS = ["tcp", "websocket", "websocket/"]


async def open_door(broker: BrokerProcess, door: str) -> Conversation:
    match door:
        case "tcp":
            return await LineConversation.connect(broker.worker_address)
        case "websocket":
            return await FrameConversation.connect(broker.http_address, "/connect")
        case _:
            return await FrameConversation.connect(broker.http_address, "/connect/")


class Replay:
    """One session on one door, with queues that no other session uses."""

    def __init__(self, broker: BrokerProcess, door: str, session: dict[str, Any]) -> None:
        self._broker, self._door, self._session = broker, door, session
        self._mark = f"-{session['name']}-{door}"
        self._connections: dict[str, Conversation] = {}
        self._uid = ""

    async def run(self) -> None:
        try:
            steps = self._session["steps"]
            while steps:
                expected = self._replies_at_the_head(steps)
                if expected:
                    await self._expect(steps[0]["conn"], expected)
                else:
                    await (await self._connection(steps[0]["conn"])).send(self._filled(steps[0]["message"]))
                steps = steps[max(1, len(expected)) :]
        finally:
            for connection in self._connections.values():
                await connection.close()

    async def _connection(self, name: str) -> Conversation:
        if name not in self._connections:
            self._connections[name] = await open_door(self._broker, self._door)
        return self._connections[name]

    @staticmethod
    def _replies_at_the_head(steps: list[dict[str, Any]]) -> list[Message]:
        """Return what the broker says next to one connection, before anybody else speaks."""
        replies = []
        for step in steps:
            if step["direction"] != "server->client" or step["conn"] != steps[0]["conn"]:
                break
            replies.append(step["message"])
        return replies

    async def _expect(self, name: str, expected: list[Message]) -> None:
        connection = await self._connection(name)
        got = [await connection.receive() for _ in expected]
        if any(reply["cmd"] == "awk" for reply in expected):  # awk may stand anywhere between replies
            got.sort(key=lambda reply: reply["cmd"] == "awk")
            expected = sorted(expected, key=lambda reply: reply["cmd"] == "awk")
        for reply, wanted in zip(got, expected, strict=True):
            if wanted.get("uid") == "<uid>" and not self._uid:
                self._uid = reply["uid"]
            filled = self._filled(wanted)
            assert {key: reply.get(key) for key in filled} == filled, f"got {reply}, expected at least {filled}"

    def _filled(self, message: Message) -> Message:
        filled = {**message, "qname": message["qname"] + self._mark} if "qname" in message else dict(message)
        return {**filled, "uid": self._uid} if filled.get("uid") == "<uid>" else filled


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session["name"])
def test_golden_session_runs_as_written(shared_broker: BrokerProcess, door: str, session: dict[str, Any]) -> None:
    asyncio.run(Replay(shared_broker, door, session).run())


@pytest.mark.parametrize("door", DOORS)
def test_golden_client_frame_is_answered_and_the_connection_stays_open(shared_broker: BrokerProcess, door: str) -> None:
    frames = [frame for frame in FRAMES if frame["direction"] == "client->server"]

    async def answers() -> dict[str, str]:
        connection = await open_door(shared_broker, door)
        got = {}
        for frame in frames:
            await send_text(connection, frame["text"])
            reply = await connection.receive()
            while reply["cmd"] == "awk":
                reply = await connection.receive()
            got[frame["name"]] = reply["cmd"]
        await connection.close()
        return got

    got = asyncio.run(answers())

    for frame in frames:
        assert (got[frame["name"]] == "nok") == (frame["name"].startswith("bad_")), (
            frame,
            got[frame["name"]],
        )


async def send_text(connection: Conversation, text: str) -> None:
    """Send a frame as it stands, broken or not."""
    if isinstance(connection, FrameConversation):
        await connection.frames.send_str(text)
    else:
        assert isinstance(connection, LineConversation)
        await connection.send_line(text)


def test_message_published_at_one_door_is_fetched_at_the_other(shared_broker: BrokerProcess) -> None:
    async def there_and_back() -> Message:
        lines = await open_door(shared_broker, "tcp")
        frames = await open_door(shared_broker, "websocket")
        await frames.send({"cmd": "PUB", "qname": "doors", "message": "über 世界 \u0000"})
        assert (await frames.receive())["cmd"] == "ok"
        await lines.send({"cmd": "FET", "qname": "doors"})
        reply = await lines.receive()
        await lines.close()
        await frames.close()
        return reply

    assert asyncio.run(there_and_back())["msg"] == "über 世界 \u0000"


def test_binary_frame_of_a_known_client_is_refused_and_keeps_the_connection(
    shared_broker: BrokerProcess,
) -> None:
    async def send_binary() -> list[Message]:
        connection = await FrameConversation.connect(shared_broker.http_address)
        await connection.send({"cmd": "PING"})
        await connection.receive()
        await connection.frames.send_bytes(b"\x00\x01")
        first = await connection.receive()
        await connection.send({"cmd": "PING"})
        second = await connection.receive()
        await connection.close()
        return [first, second]

    refused, pong = asyncio.run(send_binary())

    assert refused["cmd"] == "nok"
    assert pong["cmd"] == "pong"


@pytest.mark.parametrize("first", [b"\x00\x01", "x", "[]", "POST / HTTP/1.1"])
def test_first_frame_that_is_no_object_is_refused_and_closes_the_connection(
    shared_broker: BrokerProcess, first: bytes | str
) -> None:
    async def send_first() -> tuple[Message, aiohttp.WSMsgType]:
        connection = await FrameConversation.connect(shared_broker.http_address)
        frames = connection.frames
        await (frames.send_bytes(first) if isinstance(first, bytes) else frames.send_str(first))
        refused = await connection.receive()
        end = await frames.receive()
        await connection.close()
        return refused, end.type

    refused, end = asyncio.run(send_first())

    assert (refused["cmd"], refused["err"], end) == ("nok", "BAD_JSON", aiohttp.WSMsgType.CLOSE)


def test_root_of_the_http_port_greets(shared_broker: BrokerProcess) -> None:
    async def get() -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            host, port = shared_broker.http_address
            async with session.get(f"http://{host}:{port}/") as response:
                return response.status, await response.text()

    status, text = asyncio.run(get())

    assert status == 200
    assert "wakeq" in text


def test_client_that_publishes_too_much_at_once_is_refused_and_continues(broker: BrokerProcess) -> None:
    host, port = broker.worker_address
    with Client(f"{host}:{port}") as client:
        with pytest.raises(TooLarge):
            client.publish("q", "x" * (3 << 20))
        with pytest.raises(TooLarge):
            client.publish_many("q", ["x" * (1 << 20)] * 5)

        assert client.publish("q", "x" * (1 << 20))


def test_client_that_stops_sending_still_gets_its_answers(broker: BrokerProcess) -> None:
    with socket.create_connection(broker.worker_address, timeout=20) as connection:
        connection.sendall(
            b'{"cmd":"PUB","qname":"q","message":"m"}\n{"cmd":"FET","qname":"q"}\n{"cmd":"FET","qname":"q","wait":60}\n'
        )
        connection.shutdown(socket.SHUT_WR)
        answers = connection.makefile("rb").read().splitlines()

    assert [json.loads(line)["cmd"] for line in answers] == ["ok", "msg", "nomsg"]
