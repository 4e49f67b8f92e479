"""Load: publishers and workers that use everything the worker protocol offers, and record the answers.

    seed --> connections to wherever the broker is now --> history

Every operation is in the history before its bytes leave. A lost connection makes what was on the way
`unknown` and the driver connects again; it never repairs an answer. `drain` takes what is left, so that
"lost" can be told from "still there": what the broker neither hands out nor counts any more is not there.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.clients.lines import AsyncLineClient, Message, count_left
from tests.helpers.histories.history import History, Kind
from tests.helpers.loads.link import Connect, Link
from tests.helpers.loads.tasks import QUEUES, Held, LoadQueue, body_of, digest_of, task_of

BACKLOG_MAX = 3_000  # publishers wait while more than this many of their messages are not acknowledged
TIMEOUT_S = 5  # the shortest that the protocol allows: a message that nobody acknowledges is back soon
DRAIN_TIMEOUT_S = 90.0
DRAIN_PAUSE_S = 0.05
DEPOSED = ("NOT_LEADER", "NO_QUORUM")  # a FET that was refused so may have been counted: its delivery was not sent
IDLE_AFTER_S = 0.005


@dataclass
class Load:
    """The whole driver: two publishers and four workers on connections of their own, several things at once each."""

    address: Callable[[], tuple[str, int]]
    history: History
    seed: int
    publishers: int = 2
    workers: int = 4
    lanes: int = 8  # coroutines that share a connection: what is pipelined on it
    queues: tuple[LoadQueue, ...] = QUEUES
    timeout_s: int = TIMEOUT_S
    connect: Connect = AsyncLineClient.connect
    messages_max: int = 0  # publishers end after so many messages; 0 is no limit
    ops_ok: int = 0
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _published: int = 0
    _settled: int = 0
    _number: int = 0
    _given_up: dict[str, Held] = field(default_factory=dict)  # receipts of deliveries that a worker let go
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _links: list[Link] = field(default_factory=list)
    _stopping: bool = False

    # Life ---------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create the queues of the load; what is held of dead letters is back as soon as all else."""
        link = self._link()
        letters = [queue.dead_letter for queue in self.queues if queue.dead_letter]
        of_letters: list[Message] = [{"cmd": "CREATE", "qname": name, "timeout": self.timeout_s} for name in letters]
        for create in (*(queue.create for queue in self.queues), *of_letters):
            reply = await link.call(create)
            assert reply["cmd"] == "okcreate" or reply.get("err") == "Q_EXISTS", reply

    def start(self) -> None:
        """Let publishers and workers run until `stop`."""
        for number in range(self.publishers):
            self._run(self._publisher, number)
        for number in range(self.workers):
            self._run(self._worker, self.publishers + number)

    async def stop(self) -> None:
        """Finish what is on the way and end; raises what went wrong inside of the driver."""
        self._stopping = True
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.abandon()

    async def until_published(self) -> None:
        """Wait for the publishers to reach `messages_max`."""
        while self._number < self.messages_max and self.failure() is None:
            await asyncio.sleep(IDLE_AFTER_S)

    async def abandon(self) -> None:
        """Cut everything off: what is on the way stays unknown."""
        self._stopping = True  # a cancellation that meets an answer is lost
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            link.close()

    def failure(self) -> BaseException | None:
        """Return what ended one of the driver's own coroutines, if anything did."""
        return next((task.exception() for task in self._tasks if task.done() and not task.cancelled()), None)

    def _run(self, role: Callable[[Link, random.Random], Coroutine[Any, Any, None]], number: int) -> None:
        link = self._link()
        for lane in range(self.lanes):
            draw = random.Random(f"{self.seed}/{number}/{lane}")
            self._tasks.append(asyncio.create_task(role(link, draw)))

    def _link(self) -> Link:
        self._links.append(Link(self.address, self.connect))
        return self._links[-1]

    # Publishers ---------------------------------------------------------------------------------------------

    async def _publisher(self, link: Link, draw: random.Random) -> None:
        while not self._stopping and not (self.messages_max and self._number >= self.messages_max):
            if self._published - self._settled > BACKLOG_MAX:
                await asyncio.sleep(IDLE_AFTER_S)
                continue
            queue = draw.choice(self.queues)
            if draw.random() < 0.15:
                await self._publish_batch(link, queue, draw)
            else:
                await self._publish_one(link, queue, draw)

    def _draw_fields(self, draw: random.Random) -> Message:
        fields: Message = {"timeout": self.timeout_s, "priority": draw.choice((0, 0, 0, -20, 20))}
        chance = draw.random()
        if chance < 0.04:
            fields["delay"] = 1
        elif chance < 0.06:
            fields["expires"] = 3
        elif chance < 0.07:  # due after it has expired: it must never be seen
            fields |= {"delay": 2, "expires": 1}
        return fields

    def _new_task(self) -> str:
        self._number += 1
        return f"s{self.seed}-{self._number}"

    def _note_publish(
        self, task: str, queue: LoadQueue, fields: Message, *, publish_id: str = "", batch: int = 0
    ) -> int:
        return self.history.invoke(
            "publish",
            task=task,
            queue=queue.name,
            digest=digest_of(body_of(task)),
            priority=fields["priority"],
            delay_s=fields.get("delay", 0),
            timeout_s=fields["timeout"],
            expires_s=fields.get("expires", 0),
            publish_id=publish_id,
            batch=batch,
            max_deliveries=queue.max_deliveries,
            dead_letter=queue.dead_letter,
            strict=queue.strict,
        )

    async def _publish_one(self, link: Link, queue: LoadQueue, draw: random.Random) -> None:
        """Publish a message; with an id it is repeated until its outcome is known."""
        task, fields = self._new_task(), self._draw_fields(draw)
        publish_id = f"id-{task}" if draw.random() < 0.3 else ""
        message = {"cmd": "PUB", "qname": queue.name, "message": body_of(task), **fields}
        if publish_id:
            message["id"] = publish_id
        repeat = True
        while repeat:
            client = await link.client()
            op = self._note_publish(task, queue, fields, publish_id=publish_id)
            reply = await self._finish_publishes(client.call(message), [task], [op])
            repeat = reply is None and bool(publish_id) and not self._stopping

    async def _publish_batch(self, link: Link, queue: LoadQueue, draw: random.Random) -> None:
        tasks = [self._new_task() for _ in range(draw.randint(2, 20))]
        fields = [self._draw_fields(draw) for _ in tasks]
        parts = [{"message": body_of(task), **each} for task, each in zip(tasks, fields, strict=True)]
        client, batch = await link.client(), self.history.new_id()
        ops = [self._note_publish(task, queue, each, batch=batch) for task, each in zip(tasks, fields, strict=True)]
        await self._finish_publishes(client.call({"cmd": "PUB", "qname": queue.name, "messages": parts}), tasks, ops)

    async def _finish_publishes(
        self, future: "asyncio.Future[Message]", tasks: list[str], ops: list[int]
    ) -> Message | None:
        try:
            reply = await Link.finish(future)
        except ConnectionError:
            for op in ops:
                self.history.unknown("publish", op)
            return None
        if reply["cmd"] == "ok":
            uids = reply.get("uids") or [reply["uid"]]
            for task, op, uid in zip(tasks, ops, uids, strict=True):
                self.history.ok("publish", op, task=task, uid=uid)
            self._published += len(tasks)
            self.ops_ok += len(tasks)
        else:
            self._refuse(reply)
            for op in ops:
                self.history.fail("publish", op)
        return reply

    def _refuse(self, reply: Message) -> None:
        self.refused[str(reply.get("err", reply["cmd"]))] += 1

    # Workers ------------------------------------------------------------------------------------------------

    async def _worker(self, link: Link, draw: random.Random) -> None:
        names = [queue.name for queue in self.queues] * 4
        names += [queue.dead_letter for queue in self.queues if queue.dead_letter]
        while not self._stopping:
            held = await self._fetch(link, draw.choice(names), count=draw.choice((0, 1, 10, 30)))
            if held:
                await self._work(link, held, draw)
            else:
                await asyncio.sleep(IDLE_AFTER_S)

    async def _fetch(self, link: Link, queue: str, *, count: int) -> list[Held]:
        """Fetch once; a count of 0 is the original protocol's fetch of one."""
        message: Message = {"cmd": "FET", "qname": queue, **({"count": count} if count else {})}
        client = await link.client()
        op = self.history.invoke("deliver", queue=queue)
        try:
            reply = await Link.finish(client.call(message))
        except ConnectionError:
            self.history.unknown("deliver", op)
            return []
        match reply["cmd"]:
            case "msg":
                return self._note_deliveries(op, queue, [reply])
            case "msgs":
                return self._note_deliveries(op, queue, reply["messages"])
            case "nok":
                if reply["err"] != "Q_NOT_FOUND":
                    self._refuse(reply)
                if reply["err"] in DEPOSED:
                    self.history.unknown("deliver", op)
                    return []
        self.history.fail("deliver", op)
        return []

    def _note_deliveries(self, op: int, queue: str, messages: list[Message]) -> list[Held]:
        held = []
        for message in messages:
            body, lease = message["msg"], message.get("lease", "")
            self.history.ok(
                "deliver",
                op,
                task=task_of(body),
                queue=queue,
                uid=message["uid"],
                lease=lease,
                error_count=message["error_count"],
                digest=digest_of(body),
            )
            held.append(Held(task_of(body), queue, message["uid"], lease))
        self.ops_ok += len(messages)
        return held

    async def _work(self, link: Link, held: list[Held], draw: random.Random) -> None:
        """Do with each delivery what real workers do: most acknowledge, some give back, hold longer or forget."""
        done: list[Held] = []
        waiting: list[Coroutine[Any, Any, bool]] = []
        for one in held:
            chance = draw.random()
            older = self._given_up.pop(one.task, None)
            if older is not None and older.uid == one.uid:
                waiting.append(self._late_ack(link, older, one))
                continue
            if chance < 0.90:
                done.append(one)
                continue
            self._given_up[one.task] = one
            if chance < 0.95:
                waiting.append(self._settle(link, "nack", one, delay_s=draw.choice((0, 0, 1))))
            elif chance < 0.98:
                waiting.append(self._touch_then_ack(link, one))
            # the rest is forgotten and comes back after its timeout
        if len(done) > 1 and draw.random() < 0.5:
            waiting.append(self._ack_many(link, done))
        else:
            waiting += [self._settle(link, "ack", one) for one in done]
        await asyncio.gather(*waiting)

    async def _touch_then_ack(self, link: Link, held: Held) -> bool:
        touched = await self._settle(link, "touch", held)
        return touched and await self._settle(link, "ack", held)

    async def _late_ack(self, link: Link, older: Held, held: Held) -> bool:
        """Try the receipt of an earlier delivery first: it must be refused."""
        return await self._settle(link, "ack", older) or await self._settle(link, "ack", held)

    async def _settle(self, link: Link, kind: Kind, held: Held, *, delay_s: int = 0) -> bool:
        message: Message = {"cmd": kind.upper(), "qname": held.queue, "uid": held.uid, "lease": held.lease}
        if kind == "touch":
            message["timeout"] = self.timeout_s
        elif kind == "nack":  # always said: the default delay of a nack is the queue's retry policy
            message["delay"] = delay_s
        client = await link.client()
        op = self.history.invoke(
            kind,
            task=held.task,
            queue=held.queue,
            uid=held.uid,
            lease=held.lease,
            timeout_s=self.timeout_s,
            delay_s=delay_s,
        )
        try:
            reply = await Link.finish(client.call(message))
        except ConnectionError:
            self.history.unknown(kind, op)
            return False
        return self._note_settled(kind, op, held, reply, known=reply.get("known", True))

    async def _ack_many(self, link: Link, held: list[Held]) -> bool:
        """Acknowledge several of one queue in one command."""
        uids, leases = [one.uid for one in held], [one.lease for one in held]
        client = await link.client()
        ops = [self.history.invoke("ack", task=one.task, queue=one.queue, uid=one.uid, lease=one.lease) for one in held]
        try:
            reply = await Link.finish(
                client.call({"cmd": "ACK", "qname": held[0].queue, "uids": uids, "leases": leases})
            )
        except ConnectionError:
            for op in ops:
                self.history.unknown("ack", op)
            return False
        unknown = set(reply.get("unknown") or (() if reply.get("known", True) else uids))
        stale = set(reply.get("stale") or ())
        if stale:  # refused as a whole, although the others were done
            self._refuse(reply)
            reply = {"cmd": "okack"}
        for op, one in zip(ops, held, strict=True):
            if one.uid in stale:
                self.history.fail("ack", op)
            else:
                self._note_settled("ack", op, one, reply, known=one.uid not in unknown)
        return True

    def _note_settled(self, kind: Kind, op: int, held: Held, reply: Message, *, known: bool) -> bool:
        assert reply.get("uid", held.uid) == held.uid, f"answers out of order: {reply} to {kind} of {held.uid}"
        if reply["cmd"] != f"ok{kind}":
            self._refuse(reply)
        if reply["cmd"] != f"ok{kind}" or (kind != "ack" and not known):
            self.history.fail(kind, op)
            return False
        self.history.ok(kind, op, task=held.task, known=known)
        self.ops_ok += 1
        self._settled += kind == "ack" and known
        return True

    # The end ------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Fetch and acknowledge everything that is left, until the queues give nothing and count nothing."""
        link = self._link()
        names = [name for queue in self.queues for name in (queue.name, queue.dead_letter) if name]
        deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            assert time.monotonic() < deadline_s, f"the queues were not empty after {DRAIN_TIMEOUT_S} s"
            found = False
            for name in names:
                held = await self._fetch(link, name, count=100)
                found = found or bool(held)
                if held:
                    await self._ack_many(link, held)
            if not found and not await self._any_left(link, names):
                break
            if not found:
                await asyncio.sleep(DRAIN_PAUSE_S)
        link.close()

    @staticmethod
    async def _any_left(link: Link, names: list[str]) -> bool:
        """Whether a queue has a message that cannot be had yet: delayed, or with somebody who may be gone."""
        try:
            return any([await count_left(await link.client(), name) for name in names])
        except ConnectionError:
            return True  # who knows
