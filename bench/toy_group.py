"""toy-group: the least that a Python broker on uvloop must do, as a yardstick for everything that ours does
more.

A scrap of beanstalkd's text protocol (put, reserve, reserve-with-timeout, delete) over one FIFO.  Puts and
deletes go to a log, and no answer to them leaves before one thread has written and synced it; whatever
arrives meanwhile is the next batch.  It has no timers, delays, priorities, index or recovery, and must
never get any: it measures their cost.

    python -m bench.toy_group PORT FOLDER
"""

import asyncio
import os
import sys
from collections import deque
from pathlib import Path
from typing import cast

import uvloop

END = b"\r\n"
BLOCKED_S_MAX = 1.0
LISTEN_BACKLOG = 4096


class Broker:
    """The queue and the group commit: one batch is with the thread, the next one gathers."""

    def __init__(self, log: Path) -> None:
        self._descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._records: list[bytes] = []
        self._promises: list[tuple[Door, bytes, list[int]]] = []
        self._committer: asyncio.Task[None] | None = None
        self._last = 0
        self.bodies: dict[int, bytes] = {}
        self.ready: deque[int] = deque()
        self.waiting: deque[Door] = deque()

    def put(self, body: bytes) -> int:
        self._last += 1
        self.bodies[self._last] = body
        return self._last

    def promise(self, door: "Door", records: list[bytes], answers: bytes, fresh: list[int]) -> None:
        """Answer this read's puts and deletes once their records are on disk."""
        self._records += records
        self._promises.append((door, answers, fresh))
        if self._committer is None:
            self._committer = asyncio.get_running_loop().create_task(self._commit())

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        while self._promises:
            records, promises = b"".join(self._records), self._promises
            self._records, self._promises = [], []
            await loop.run_in_executor(None, self._write, records)
            for door, answers, fresh in promises:
                door.send(answers)
                self._hand_out(fresh)
        self._committer = None

    def _write(self, records: bytes) -> None:
        os.write(self._descriptor, records)
        os.fdatasync(self._descriptor)

    def _hand_out(self, fresh: list[int]) -> None:
        self.ready += fresh
        while self.ready and self.waiting:
            door = self.waiting.popleft()
            if door.blocked:
                door.blocked = False
                door.send(self.reserved(self.ready.popleft()))

    def reserved(self, number: int) -> bytes:
        body = self.bodies[number]
        return b"RESERVED %d %d\r\n%b\r\n" % (number, len(body), body)


class Door(asyncio.Protocol):
    """One connection: what a read brings is one batch."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.rest = b""
        self.blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.send = cast(asyncio.WriteTransport, transport).write

    def connection_lost(self, error: Exception | None) -> None:
        self.blocked = False

    def data_received(self, data: bytes) -> None:
        broker, data = self.broker, self.rest + data
        at, records, fresh = 0, [], []
        now: list[bytes] = []
        durable: list[bytes] = []
        while (line_end := data.find(END, at)) >= 0:
            after = line_end + 2
            if data[at] == 112:  # put <pri> <delay> <ttr> <bytes>
                size = int(data[data.rindex(b" ", at, line_end) : line_end])
                after += size + 2
                if after > len(data):
                    break
                number = broker.put(data[line_end + 2 : after - 2])
                fresh.append(number)
                durable.append(b"INSERTED %d\r\n" % number)
                records.append(data[at:after])
            elif data[at] == 114:  # reserve, reserve-with-timeout <seconds>
                now.append(self._reserve(data[at:line_end]))
            else:  # delete <number>
                known = broker.bodies.pop(int(data[at + 7 : line_end]), None)
                durable.append(b"NOT_FOUND\r\n" if known is None else b"DELETED\r\n")
                records.append(data[at:after])
            at = after
        self.rest = data[at:]
        if durable:
            broker.promise(self, records, b"".join(durable), fresh)
        if now:
            self.send(b"".join(now))

    def _reserve(self, line: bytes) -> bytes:
        if self.broker.ready:
            return self.broker.reserved(self.broker.ready.popleft())
        if line.endswith(b" 0"):
            return b"TIMED_OUT\r\n"
        self.blocked = True
        self.broker.waiting.append(self)
        if line != b"reserve":
            asyncio.get_running_loop().call_later(BLOCKED_S_MAX, self._give_up)
        return b""

    def _give_up(self) -> None:
        if self.blocked:
            self.blocked = False
            self.send(b"TIMED_OUT\r\n")


async def serve(port: int, folder: Path) -> None:
    broker = Broker(folder / "log")
    server = await asyncio.get_running_loop().create_server(
        lambda: Door(broker), "127.0.0.1", port, backlog=LISTEN_BACKLOG
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
