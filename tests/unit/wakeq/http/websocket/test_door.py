"""WebSocketDoor by hand: frames of one turn, and deadlines."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import WSMessage, WSMsgType

from tests.helpers.doors.by_hand import HandGuest, HandPort, HandTransport
from tests.helpers.doors.noting import Clock
from wakeq.actors.runtime.rounds import COMMAND_BYTES
from wakeq.actors.sessions.door import FRAME_S_MAX
from wakeq.http.websocket.worker import WorkerDoor
from wakeq.net.worker_tcp import WorkerTcpListener

PUB = b'{"cmd":"PUB","qname":"q","message":"%b"}'


def hand_port() -> HandPort:
    """The shared part of all doors; the listener accepts nothing."""
    return HandPort(WorkerTcpListener)


class Frames:
    """Frames that aiohttp has received from a client."""

    def __init__(self, *texts: str) -> None:
        self._messages = [WSMessage(WSMsgType.TEXT, text, None) for text in texts]

    async def receive(self) -> WSMessage:
        return self._messages.pop(0) if self._messages else WSMessage(WSMsgType.CLOSED, None, None)


def websocket(
    port: HandPort, *texts: str, clock: Clock | None = None, transport: HandTransport | None = None
) -> HandGuest:
    path = SimpleNamespace(admission=port.admission, clock=clock or Clock(), watch=lambda _: None)
    door = WorkerDoor(path, Frames(*texts), transport or HandTransport())  # type: ignore[arg-type]
    guest = HandGuest(door)
    door.begin(guest)
    return guest


@pytest.mark.parametrize(
    ("left", "body", "first"),
    [(1, b"m", 1), (128, b"m" * 63 * COMMAND_BYTES, 2)],
    ids=["commands", "bytes"],
)
def test_frames_beyond_the_share_of_a_round_wait_for_the_next(left: int, body: bytes, first: int) -> None:
    port = hand_port()
    port.rounds.left = left

    async def read() -> list[int]:
        guest = websocket(port, *[(PUB % body).decode()] * 3)
        reading = asyncio.ensure_future(guest.door.read())
        for _ in range(5):
            await asyncio.sleep(0)
        told = [len(guest.commands)]
        while not reading.done():
            port.round()
            await asyncio.sleep(0)
        guest.door.end("closed")
        return [*told, len(guest.commands)]

    assert asyncio.run(read()) == [first, 3]


def test_message_is_not_late_while_reading_is_paused() -> None:
    clock, transport = Clock(), HandTransport()
    guest = websocket(hand_port(), clock=clock, transport=transport)
    guest.door.on_data(100)
    guest.door.pause()

    def check_after(seconds: float) -> tuple[bool, bool]:
        clock.now_s += seconds
        return guest.door.check(clock.now_s), transport.is_open

    checks = [check_after(0), check_after(FRAME_S_MAX + 1)]
    guest.door.resume()
    checks += [check_after(FRAME_S_MAX - 1), check_after(1)]

    assert checks == [(True, True), (True, True), (True, True), (False, False)]
