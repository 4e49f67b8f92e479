"""wakeq as an adapter of the peers harness: copied there as `adapters/wakeq.py` and named in its MODULES.

Besides the standard library it imports that harness's own `adapters.base` only, and must work without the
rest of this folder.  `PEER_WAKEQ` chooses another `wakeq` program than the one on the PATH.
"""
# mypy: disable-error-code="import-not-found, misc, no-any-return, no-untyped-call, attr-defined, has-type"

import asyncio
import json
import os
import re

from adapters.base import CONSUME, PRODUCE, SYNC, Adapter, Conn, out_of, which

QUEUE = "bench"
RESERVE_S = 30
POLL_S = 1
UID = re.compile(rb'"uid":"([^"]+)"')
LEASE = re.compile(rb'"lease":("[^"]*"|\d+)')
BODY = re.compile(rb'"msg":"([^"]*)"')


def line(cmd: str, **fields: object) -> bytes:
    return json.dumps({"cmd": cmd, "qname": QUEUE, **fields}, separators=(",", ":")).encode() + b"\n"


class WakeqConn(Conn):
    """A worker of this class waits inside of its FET."""

    reserve_line = line("FET", wait=RESERVE_S)

    async def put(self, body: bytes) -> None:
        reply = await self.call(line("PUB", msg=body.decode()))
        assert b'"ok"' in reply, reply

    async def reserve(self) -> tuple[tuple[bytes, bytes], bytes]:
        return self.message_in(await self.call(self.reserve_line))

    @staticmethod
    def message_in(reply: bytes) -> tuple[tuple[bytes, bytes], bytes]:
        uid, lease, body = UID.search(reply), LEASE.search(reply), BODY.search(reply)
        if not (uid and lease and body):
            raise ConnectionError(reply)
        return (uid[1], lease[1]), body[1]

    async def ack(self, handle: tuple[bytes, bytes]) -> None:
        reply = await self.call(self.ack_line(handle))
        assert b'"okack"' in reply, reply

    async def park(self) -> None:
        await self.call(line("SUB"))
        await self.call(line("FET"))
        await self.call(line("ISLP", wake="ready"))

    @staticmethod
    def ack_line(handle: tuple[bytes, bytes]) -> bytes:
        return b'{"cmd":"ACK","qname":"bench","uid":"%b","lease":%b}\n' % handle

    def prepare(self, body: bytes) -> None:
        self.one = line("PUB", msg=body.decode())

    def puts(self, k: int) -> bytes:
        return self.one * k

    def start_consume(self) -> None:
        self.fetch_line = line("FET", count=self.window, wait=POLL_S, cmd_id=1)
        self.tr.write(self.fetch_line)

    def data_received(self, data: bytes) -> None:
        lines, newline, self.buf = (self.buf + data).rpartition(b"\n")
        if not newline:
            return
        if self.mode == PRODUCE:
            self.confirmed(lines.count(b"\n") + 1)
        elif self.mode == CONSUME:
            self.consumed(lines)
        elif self.mode == SYNC:
            for reply in lines.split(b"\n"):
                self.reply(reply)

    def consumed(self, lines: bytes) -> None:
        out: list[bytes] = []
        for reply in lines.split(b"\n"):
            if b'"lease"' in reply:
                handles = zip(UID.findall(reply), LEASE.findall(reply), strict=True)
                out += [self.ack_line(handle) for handle in handles]
                out.append(self.fetch_line)
            elif b'"nomsg"' in reply:
                out.append(self.fetch_line)
        if out and not self.closed:
            self.tr.write(b"".join(out))
        if acked := lines.count(b'"okack"'):
            self.flow.ack(acked)


class SleeperConn(WakeqConn):
    """A worker of this class is idle as the protocol's own are: SUB, FET, nomsg, ISLP, awk, FET."""

    async def hello(self) -> None:
        self.awoken = asyncio.Event()
        await self.call(line("SUB"))

    async def wait_one(self) -> tuple[tuple[bytes, bytes], bytes]:
        while b'"nomsg"' in (reply := await self.call(line("FET"))):
            self.awoken.clear()
            await self.call(line("ISLP", wake="ready"))
            await self.awoken.wait()
        return self.message_in(reply)

    def reply(self, value: bytes) -> None:
        """An awk is no reply, and may come right behind the one to ISLP."""
        if b'"awk"' in value:
            self.awoken.set()
        else:
            super().reply(value)


class Wakeq(Adapter):
    name = "wakeq"
    durability = "log, group commit, fdatasync before every reply; LMDB behind"
    conn_class = WakeqConn

    def command(self) -> list[str]:
        ports = ["--worker-port", str(self.port), "--http-port", "0", "--taskflux-port", "0"]
        return [os.environ.get("PEER_WAKEQ") or which("wakeq"), "serve", "--data-dir", self.dir, *ports]

    def version(self) -> str:
        return out_of(os.environ.get("PEER_WAKEQ") or which("wakeq"), "--version")


class WakeqSleeper(Wakeq):
    name = "wakeq-sleeper"
    conn_class = SleeperConn


ADAPTERS = [Wakeq, WakeqSleeper]
