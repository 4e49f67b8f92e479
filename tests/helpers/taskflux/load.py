"""FluxLoad: TaskFlux clients and JSON workers at work on one queue, and a ledger of what they were promised.

    seed --> enqueue, dequeue, ack, nack; PUB, FET, ACK (lines or frames) --> (crashes) --> drain --> what is wrong

Whatever is asked for is in the ledger before it is said.  It never repairs an answer: what may have been done or not
is neither promised nor removed.  Of what somebody acknowledges unseen, so many may be gone as he has heard nothing of.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tests.helpers.clients.lines import AsyncLineClient, FrameConversation, Message, count_left
from wakeq.client.taskflux.aio import AsyncTaskFluxClient
from wakeq.client.taskflux.requests import Record
from wakeq.protocol.errors import OutcomeUnknown, WakeqError
from wakeq.protocol.wire.taskflux import commands as wire
from wakeq.protocol.wire.taskflux.codec import ResponseReader, encode
from wakeq.protocol.wire.taskflux.dialects import SPEC

Connect = Callable[[], Coroutine[Any, Any, AsyncLineClient]]
OpenFrames = Callable[[], Coroutine[Any, Any, FrameConversation]]

QUEUE = "mixed"
TIMEOUT_S = 5  # the shortest: what was held when the broker died is back after that
BACKLOG_MAX = 2_000
PAUSE_S = 0.005
DRAIN_WAIT_S = 0.2
DRAIN_S_MAX = 60.0
BATCH_MAX = 20
READ_BYTES = 65_536
NACK_SHARE = 0.1


class Changed(Exception):
    """A client gives its record back."""


class FluxLoad:
    """See the head of this file.  `wrong` are the ledger's complaints."""

    def __init__(self, connect: Connect, taskflux: str, seed: int, open_frames: OpenFrames | None = None) -> None:
        """`taskflux` are addresses; `open_frames` makes a WebSocket, if those are to take part."""
        self._connect = connect
        self._taskflux = taskflux
        self._open_frames = open_frames
        self._draw = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._last = 0
        self.promised: set[str] = set()
        self.asked: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.removed: set[str] = set()
        self._ahead = ""  # the last that came to who acknowledges ahead
        self.unseen = 0  # acknowledged ahead, and nobody heard what became of it
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()

    async def start(self) -> None:
        """Make the queue and set everybody to work."""
        worker = await self._connect()
        await worker.call({"cmd": "CREATE", "qname": QUEUE, "timeout": TIMEOUT_S})
        worker.close()
        roles = [self._enqueues, self._enqueues, self._dequeues, self._dequeues, self._publishes, self._fetches]
        if "," not in self._taskflux:  # packets by hand know nothing of leaders
            roles.append(self._dequeues_ahead)
        if self._open_frames is not None:
            roles += [self._publishes_in_frames, self._fetches_in_frames]
        self._tasks = [asyncio.create_task(self._again(role)) for role in roles]

    async def stop(self) -> None:
        """Let everybody end, then take what is left; what was promised and never seen is lost, but for the unseen."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await asyncio.wait_for(self._drain(), DRAIN_S_MAX)
        lost = self.promised - self.seen.keys()
        if len(lost) > self.unseen:
            self.wrong += [f"{task} was stored and never came, {self.unseen} may have" for task in sorted(lost)]

    async def _drain(self) -> None:
        """Take what is left, until the queue counts nothing more."""
        worker = await self._connect()
        async with AsyncTaskFluxClient(self._taskflux) as client:
            while await count_left(worker, QUEUE):
                async with client.dequeue(QUEUE, wait=DRAIN_WAIT_S) as record:
                    if record is not None:
                        self._take(record.payload.decode())
                if record is not None:
                    self.removed.add(record.payload.decode())
        worker.close()

    async def _again(self, role: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the same until the end, through all crashes."""
        while not self._stopping:
            try:
                await role()
            except (WakeqError, OSError):
                await asyncio.sleep(PAUSE_S)

    def _new_tasks(self) -> list[str]:
        count = self._draw.randint(1, BATCH_MAX)
        self._last += count
        tasks = [f"task-{number}" for number in range(self._last - count, self._last)]
        self.asked.update(tasks)
        return tasks

    @property
    def _is_full(self) -> bool:
        return len(self.promised) - len(self.removed) > BACKLOG_MAX

    def _take(self, task: str) -> None:
        self.seen[task] += 1
        if task not in self.asked:
            self.wrong.append(f"{task} was never enqueued")
        if task in self.removed:
            self.wrong.append(f"{task} came after it was removed")

    # --- roles -----------------------------------------------------------------------------------------------------

    async def _enqueues(self) -> None:
        async with AsyncTaskFluxClient(self._taskflux) as client:
            while not self._stopping:
                if self._is_full:
                    await asyncio.sleep(PAUSE_S)
                    continue
                tasks = self._new_tasks()
                records = [(self._draw.randint(-5, 5), task) for task in tasks]
                with suppress(OutcomeUnknown):
                    await client.enqueue_many(QUEUE, records)
                    self.promised.update(tasks)
                    self.done["enqueue"] += len(tasks)

    async def _dequeues(self) -> None:
        async with AsyncTaskFluxClient(self._taskflux) as client:
            while not self._stopping:
                taken: Record | None = None
                with suppress(Changed):
                    async with client.dequeue(QUEUE, wait=0.5) as taken:
                        if taken is not None:
                            self._take(taken.payload.decode())
                            if self._draw.random() < NACK_SHARE:
                                self.done["nack"] += 1
                                raise Changed
                    if taken is not None:  # its Ack was answered
                        self.removed.add(taken.payload.decode())
                        self.done["dequeue"] += 1

    async def _dequeues_ahead(self) -> None:
        host, port = self._taskflux.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode([wire.AuthorizationRequest(), wire.BootstrapRequest(1, 0, 0)], SPEC))
        responses = ResponseReader(SPEC)
        try:
            while not self._stopping:
                count = self._draw.randint(2, BATCH_MAX)
                self.unseen += count
                writer.write(encode([wire.Dequeue(QUEUE), wire.ACK] * count, SPEC))
                while count:
                    data = await reader.read(READ_BYTES)
                    if not data:
                        raise ConnectionError("the broker is gone")
                    for answer in responses.receive(data):
                        count -= self._heard_ahead(answer)
                await asyncio.sleep(PAUSE_S)
        finally:
            writer.close()

    def _heard_ahead(self, answer: wire.Packet | wire.Bad) -> bool:
        """Take an answer to a Dequeue or its Ack; return whether it was the first: all that is left to hear is Ok."""
        if isinstance(answer, wire.Record):
            self._ahead = answer.payload.decode()
            self._take(self._ahead)
        elif isinstance(answer, wire.Ok):  # a record that came alone may be sent before it is removed
            self.removed.add(self._ahead)
            self.done["ahead"] += 1
        is_first = isinstance(answer, wire.Record | wire.Empty)
        self.unseen -= is_first
        return is_first

    async def _publishes(self) -> None:
        worker = await self._connect()
        while not self._stopping:
            if self._is_full:
                await asyncio.sleep(PAUSE_S)
                continue
            tasks = self._new_tasks()
            replies = await asyncio.gather(
                *[worker.call({"cmd": "PUB", "qname": QUEUE, "message": task}) for task in tasks]
            )
            self.promised.update(task for task, reply in zip(tasks, replies, strict=True) if reply["cmd"] == "ok")
            self.done["publish"] += len(tasks)

    async def _fetches(self) -> None:
        worker = await self._connect()
        while not self._stopping:
            message: Message = await worker.call({"cmd": "FET", "qname": QUEUE, "lease": True})
            if message["cmd"] != "msg":
                await asyncio.sleep(PAUSE_S)
                continue
            self._take(message["msg"])
            acked = await worker.call({"cmd": "ACK", "qname": QUEUE, "uid": message["uid"]})
            if acked["cmd"] == "okack":
                self.removed.add(message["msg"])
                self.done["fetch"] += 1

    async def _publishes_in_frames(self) -> None:
        assert self._open_frames is not None, "else nobody has this role"
        frames = await self._open_frames()
        try:
            while not self._stopping:
                if self._is_full:
                    await asyncio.sleep(PAUSE_S)
                    continue
                (task, *_) = self._new_tasks()
                reply = await _say(frames, {"cmd": "PUB", "qname": QUEUE, "message": task})
                if reply["cmd"] == "ok":
                    self.promised.add(task)
                    self.done["publish in a frame"] += 1
        finally:
            await frames.close()

    async def _fetches_in_frames(self) -> None:
        assert self._open_frames is not None, "else nobody has this role"
        frames = await self._open_frames()
        try:
            while not self._stopping:
                message = await _say(frames, {"cmd": "FET", "qname": QUEUE, "lease": True})
                if message["cmd"] != "msg":
                    await asyncio.sleep(PAUSE_S)
                    continue
                self._take(message["msg"])
                if (await _say(frames, {"cmd": "ACK", "qname": QUEUE, "uid": message["uid"]}))["cmd"] == "okack":
                    self.removed.add(message["msg"])
                    self.done["fetch in a frame"] += 1
        finally:
            await frames.close()


async def _say(frames: FrameConversation, message: Message) -> Message:
    """Ask, and return the answer; a node that sends its clients away is as good as gone."""
    await frames.send(message)
    reply = await frames.receive()
    if reply.get("err") in ("NOT_LEADER", "NO_QUORUM", "UNKNOWN"):
        raise ConnectionError(str(reply["err"]))
    return reply
