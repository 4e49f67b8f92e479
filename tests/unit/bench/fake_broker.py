"""A fake of wakeq for the benchmark's own tests: the JSON lines that its clients speak, in memory.

Started like `wakeq serve`, whose options it ignores, and it says that it is ready in the same words.  It
promises nothing, and must never be mistaken for the broker: no timeouts, no delays, no disk.
"""

import asyncio
import json
import sys
from collections import defaultdict, deque
from typing import Any, cast

Command = dict[str, Any]


class Queue:
    def __init__(self) -> None:
        self.ready: deque[str] = deque()
        self.bodies: dict[str, str] = {}
        self.waiting: deque[tuple[Door, Command]] = deque()
        self.sleepers: deque[Door] = deque()
        self.last = 0

    def publish(self, body: str) -> str:
        self.last += 1
        uid = f"uid{self.last:011d}"
        self.bodies[uid] = body
        self.ready.append(uid)
        return uid

    def wake(self) -> None:
        while self.ready and self.waiting:
            door, command = self.waiting.popleft()
            if not door.transport.is_closing():
                door.answer(command, self.fetched(command))
        for _ in range(min(len(self.ready), len(self.sleepers))):
            self.sleepers.popleft().answer({}, {"cmd": "awk", "qname": "bench"})

    def fetched(self, command: Command) -> Command:
        count = min(command.get("count", 1), len(self.ready))
        uids = [self.ready.popleft() for _ in range(count)]
        found = [{"uid": uid, "msg": self.bodies[uid], "error_count": 0, "lease": f"1-{uid}"} for uid in uids]
        if "count" in command:
            return {"cmd": "msgs", "qname": "bench", "messages": found}
        return {"cmd": "msg", "qname": "bench", **found[0]}


class Door(asyncio.Protocol):
    def __init__(self, queues: defaultdict[str, Queue]) -> None:
        self.queues = queues
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def answer(self, command: Command, reply: Command) -> None:
        if "cmd_id" in command:
            reply["cmd_id"] = command["cmd_id"]
        self.transport.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            queue = self.queues[command.get("qname", "")]
            if reply := self.reply_to(command, queue):
                self.answer(command, reply)
            queue.wake()

    def reply_to(self, command: Command, queue: Queue) -> Command | None:
        match command["cmd"]:
            case "PUB":
                bodies = command.get("messages") or [command.get("message") or command["msg"]]
                uids = [queue.publish(body) for body in bodies]
                return {"cmd": "ok", "qname": "bench", "uid": uids[0]}
            case "FET" if queue.ready:
                return queue.fetched(command)
            case "FET" if "wait" in command:
                queue.waiting.append((self, command))
                return None
            case "FET":
                return {"cmd": "nomsg", "qname": "bench"}
            case "ACK":
                known = queue.bodies.pop(command["uid"], None) is not None
                assert command["lease"] == f"1-{command['uid']}"
                for one in command.get("publish", ()):
                    self.queues[one["qname"]].publish(one["message"])
                return {"cmd": "okack", "uid": command["uid"], "qname": "bench", "known": known}
            case "ISLP":
                queue.sleepers.append(self)
                return {"cmd": "okslp", "qname": "bench"}
            case "NACK" | "TOUCH" as name:
                assert command["uid"] in queue.bodies
                assert command["lease"] == f"1-{command['uid']}"
                if name == "NACK":
                    queue.ready.append(command["uid"])
                return {"cmd": f"ok{name.lower()}", "uid": command["uid"], "qname": "bench"}
            case "HELLO":
                return {"cmd": "hello", "version": "a fake", "limits": {}, "session": command["session"]}
            case "DROP":
                del self.queues[command["qname"]]
                return {"cmd": "okdrop", "qname": "bench"}
            case "SUB" | "CREATE" | "UPDATE" as name:
                return {"cmd": f"ok{name.lower()}", "qname": "bench"}
            case "PING":
                return {"cmd": "pong"}
            case unknown:
                return {"cmd": "nok", "err": "BAD_COMMAND", "detail": unknown}


async def main() -> None:
    queues: defaultdict[str, Queue] = defaultdict(Queue)
    server = await asyncio.get_running_loop().create_server(lambda: Door(queues), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"wakeq ready worker=127.0.0.1:{port} http=127.0.0.1:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if "--version" in sys.argv:
        raise SystemExit("a fake")
    asyncio.run(main())
