"""Pipelining: workers that send commands without waiting for answers, and what each of them may rely on.

    draw --> commands in pieces of any size --> a broker --> replies --> judged one by one, and once more at the end

The promises are those of the rules of order: answers in the order of the commands; publishes of one connection to one
queue in their order; a read behind the writes before it; one worker for each message at a time; nothing lost, nothing
made up.  It knows no rule of a queue beside these, and must never ask a queue what it should have done.
"""

import json
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.brokers.broker import Client
from tests.helpers.brokers.by_hand import Json
from wakeq.actors.sessions.door import Received
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.worker import codec as wire

SHARED = {"a": {}, "b": {}, "strict": {"lease": "strict"}}
AT_ONCE = {"retry": {"backoff": "fixed", "base": 0}}  # what is returned may be delivered again at once
LEASE_S = 60
WAIT_S = 1
NOBODYS = "0000000_00000001"  # the uid of no message
FITTING = {
    "PUB": {"ok"}, "FET": {"msg", "msgs", "nomsg"}, "ACK": {"okack"}, "DEL": {"okack"}, "NACK": {"oknack"},
    "TOUCH": {"oktouch"}, "PING": {"pong"}, "SUB": {"oksub"}, "UNS": {"okuns"}, "ISLP": {"okslp"},
    "STATS": {"stats"}, "PEEK": {"peeked"}, "LIST": {"queues"}, "UPDATE": {"okupdate"}, "XYZ": {"nok"},
}  # fmt: skip
KINDS = (
    ["PUB"] * 12 + ["FET"] * 10 + ["ACK"] * 7 + ["DEL", "NACK", "NACK", "TOUCH", "UPDATE", "STATS", "LIST", "PEEK"]
    + ["SUB", "SUB", "UNS", "ISLP", "ISLP", "PING", "XYZ"]
)  # fmt: skip


@dataclass
class Message:
    """One message as its users know it."""

    uid: str
    queue: str
    text: str | None = None  # None until somebody has seen it
    is_confirmed: bool = False  # its publisher has its ok
    holder: "Worker | None" = None
    may_return: bool = False  # its holder has sent a NACK
    is_done: bool = False  # its holder has sent an ACK that was not refused
    is_unsure: bool = False  # nobody knows whether that was done


@dataclass
class Asked:
    """One command, what it publishes and ends, and its answer."""

    command: Json
    place: int  # among all commands of its connection
    publishes: list[tuple[str, str]] = field(default_factory=list)  # queue and text
    ends: list[Message] = field(default_factory=list)
    once: str = ""  # what makes a second one the same publish
    reply: Json | None = None

    @property
    def is_apart(self) -> bool:
        return self.command["cmd"] == "FET" and "wait" in self.command and "cmd_id" in self.command


def ask(cmd: str, queue: str | None = None, **fields: Any) -> Asked:
    """Make one command with an id, which it is given when it is sent."""
    return Asked({"cmd": cmd, **({} if queue is None else {"qname": queue}), "cmd_id": 0, **fields}, 0)


class World:
    """All messages, and what may be said of them."""

    def __init__(self, *, refusals: Sequence[str] = (), is_exact: bool = True) -> None:
        self.messages: dict[str, Message] = {}
        self.uids: dict[str, str] = {}  # by text
        self.refusals = set(refusals)  # codes that commands may be refused with
        self.is_exact = is_exact  # no read may come back empty for any other reason than an empty queue
        self.refused: set[str] = set()  # texts of publishes that were refused, and so are not there
        self.unsure: set[str] = set()  # texts of publishes that are there, or not

    def publish(self, uid: str, queue: str, text: str) -> None:
        """A publisher has the ok for a message."""
        message = self._find(uid, queue, text)
        assert not message.is_confirmed, f"{text}: {uid} was given twice"
        message.is_confirmed = True

    def deliver(self, worker: "Worker", queue: str, found: Json) -> Message:
        """A worker has got a message."""
        message = self._find(found["uid"], queue, found["msg"])
        assert not message.is_done, f"{message.text} was delivered after its acknowledgement"
        holder = message.holder
        assert holder is None or message.may_return, f"{message.text} went to {worker} while {holder} held it"
        message.holder, message.may_return = worker, False
        return message

    def _find(self, uid: str, queue: str, text: str) -> Message:
        message = self.messages.setdefault(uid, Message(uid, queue))
        assert message.text in (None, text), f"{uid} was {message.text} and now is {text}"
        assert self.uids.setdefault(text, uid) == uid, f"{text} is stored as {self.uids[text]} and as {uid}"
        assert message.queue == queue
        assert text not in self.refused, f"{text} was refused and is there"
        message.text = text
        return message

    def check_left(self, left: dict[str, str]) -> None:
        """Compare what is in the queues at the end, text by uid."""
        for uid, text in left.items():
            message = self.messages.get(uid)
            assert text not in self.refused, f"{text} was refused and is there"
            assert message is not None or text in self.unsure, f"{text} is there and nobody has published it"
            assert message is None or not message.is_done, f"{text} is there after its acknowledgement"
        wanted = {uid: one.text for uid, one in self.messages.items() if not (one.is_done or one.is_unsure)}
        lost = {uid: text for uid, text in wanted.items() if uid not in left}
        assert not lost, f"{len(lost)} of {len(wanted)} are neither done nor there, such as {list(lost.items())[:3]}"
        assert len(set(left.values())) == len(left), "a message is there twice"


class Worker:
    """One connection: what it sends, and what it was promised."""

    def __init__(self, world: World, client: Client, number: int, draw: random.Random) -> None:
        self.world, self.client, self.number, self.draw = world, client, number, draw
        self.own = f"own-{number}"  # a queue that nobody else uses
        self.asked: list[Asked] = []
        self.waiting: deque[Asked] = deque()  # for their answers, in their order
        self.apart: dict[int, Asked] = {}  # fetches that are answered in any order
        self.held: list[Message] = []  # delivered to this worker, and nothing was sent about it
        self.leases: dict[str, str] = {}  # by uid
        self.first: dict[str, Asked] = {}  # by what makes a publish the same as another
        self.newest: dict[str, int] = {}  # by queue: the number of the last publish
        self.asleep: set[str] = set()
        self.subscribed: set[str] = set()
        self.ordinal = 0
        self.texts = 0
        self.returns = number % 2 == 0  # the others never do, so that their messages stay in their order
        policies = AT_ONCE | ({"lease": "strict"} if number % 4 < 2 else {})
        assert client.call("CREATE", self.own, **policies)["cmd"] == "okcreate"
        client.call("HELLO", session=f"session {number}")

    def __str__(self) -> str:
        return f"worker {self.number}"

    # --- what it sends -----------------------------------------------------------------------------------------------

    def send(self, count: int) -> None:
        """Send some commands in one read."""
        self.send_these([self._draw() for _ in range(count)])

    def send_these(self, several: Sequence[Asked]) -> None:
        """The same with commands that a test has made."""
        for asked in several:
            asked.place = len(self.asked)
            if "cmd_id" in asked.command:
                asked.command["cmd_id"] = asked.place
            self.asked.append(asked)
            if asked.is_apart:
                self.apart[asked.place] = asked
            else:
                self.waiting.append(asked)
        lines = b"".join(json.dumps(asked.command).encode() + b"\n" for asked in several)
        received = Received(wire.decode(lines), len(lines))
        # What a TCP door brings is filed at once, what a WebSocket brings when the session has its turn.
        (self.client.process.arrive if self.number % 3 else self.client.process.tell)(received)

    def publish(self, queue: str, count: int = 1, **fields: Any) -> Asked:
        """Make a publish of texts that nobody else publishes."""
        texts = [self._text() for _ in range(count)]
        asked = ask("PUB", queue, **({"message": texts[0]} if count == 1 else {"messages": texts}), **fields)
        asked.publishes = [(queue, text) for text in texts]
        return asked

    def settle(self, cmd: str, mine: Sequence[Message], *, leased: bool = True) -> Asked:
        """Make an ACK, NACK or TOUCH of messages of one queue that this worker holds."""
        if len(mine) == 1:
            lease = {"lease": self.leases[mine[0].uid]} if leased else {}
            asked = ask(cmd, mine[0].queue, uid=mine[0].uid, **lease)
        else:
            asked = ask(
                cmd, mine[0].queue, uids=[one.uid for one in mine], leases=[self.leases[one.uid] for one in mine]
            )
        if cmd != "TOUCH":
            asked.ends = list(mine)
            for one in mine:
                self.held.remove(one)
                one.may_return = cmd == "NACK"
                one.is_done = cmd != "NACK"
        return asked

    def follow_up(self, asked: Asked, *queues: str) -> Asked:
        """Let an acknowledgement publish to these queues."""
        asked.publishes = [(queue, self._text()) for queue in queues]
        asked.command["publish"] = [{"qname": queue, "message": text} for queue, text in asked.publishes]
        return asked

    def _text(self) -> str:
        self.texts += 1
        return f"{self.number}-{self.texts}"

    def _draw(self) -> Asked:
        draw = self.draw
        cmd = draw.choice(KINDS)
        queue = self.own if draw.random() < 0.5 else draw.choice(list(SHARED))
        match cmd:
            case "PUB":
                return self._draw_publish(queue)
            case "FET":
                asked = ask(cmd, queue, **draw.choice([{}, {}, {"count": 3}]))
                if draw.random() < 0.2:
                    asked.command["wait"] = WAIT_S
                    if draw.random() < 0.5:
                        del asked.command["cmd_id"]
                return asked
            case "ACK" | "DEL" | "NACK" | "TOUCH":
                return self._draw_settle("ACK" if cmd == "NACK" and not self.returns else cmd, queue)
            case "LIST":
                return ask(cmd, prefix=self.own)
            case "PING" | "XYZ":
                return ask(cmd)
            case "UPDATE":
                return ask(cmd, self.own, max_size=10_000)
        return ask(cmd, queue)

    def _draw_publish(self, queue: str) -> Asked:
        draw = self.draw
        asked = self.publish(queue, draw.choice([1, 1, 1, 1, 2, 3]))
        chance = draw.random()
        if "message" in asked.command and chance < 0.25:
            self.ordinal += draw.random() < 0.8 or not self.ordinal
            asked.command["n"] = self.ordinal
            asked.once = f"{queue} n {self.ordinal}"
        elif "message" in asked.command and chance < 0.35:
            asked.command["id"] = f"{self.number} {draw.randint(1, 5)}"
            asked.once = f"{queue} id {asked.command['id']}"
        return asked

    def _draw_settle(self, cmd: str, queue: str) -> Asked:
        draw = self.draw
        if not self.held or draw.random() < 0.1:
            return ask(cmd, queue, uid=NOBODYS)
        mine = [draw.choice(self.held)]
        if draw.random() < 0.3:
            mine += [one for one in self.held if one.queue == mine[0].queue and one is not mine[0]][:2]
        asked = self.settle(cmd, mine, leased=draw.random() < 0.7)
        if cmd in ("ACK", "DEL") and draw.random() < 0.3:
            self.follow_up(asked, *(draw.choice([self.own, *SHARED]) for _ in range(draw.randint(1, 2))))
        return asked

    # --- what it hears -----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Judge what has come since the last time."""
        replies = list(self.client.door.sent)
        self.client.door.sent.clear()
        for reply in replies:
            if reply["cmd"] == "awk":
                self.asleep.discard(reply["qname"])
                continue
            asked = self.apart.pop(reply.get("cmd_id", -1), None)
            if asked is None:
                assert self.waiting, f"{self} has asked nothing and hears {reply}"
                asked = self.waiting.popleft()
                assert reply.get("cmd_id") == asked.command.get("cmd_id"), f"{self}: {asked.command}, then {reply}"
            asked.reply = reply
            self._judge(asked, reply)

    def _judge(self, asked: Asked, reply: Json) -> None:
        command, cmd = asked.command, asked.command["cmd"]
        if reply["cmd"] == "nok" and reply["err"] in self.world.refusals:
            self._refused(asked, reply["err"])
            return
        assert reply["cmd"] in FITTING[cmd], f"{self}: {command} was answered by {reply}"
        match cmd:
            case "SUB":
                self.subscribed.add(command["qname"])
            case "UNS":
                self.subscribed.discard(command["qname"])
            case "ISLP":
                self.asleep.add(command["qname"])
        match cmd:
            case "PUB":
                self._published(asked, reply["uids"] if "messages" in command else [reply["uid"]])
            case "FET" if reply["cmd"] != "nomsg":
                for found in reply.get("messages", [reply]):
                    message = self.world.deliver(self, command["qname"], found)
                    self.held.append(message)
                    self.leases[message.uid] = found["lease"]
            case "ACK" | "DEL" | "NACK" | "TOUCH":
                assert reply["qname"] == command["qname"]
                is_known = command.get("uid") != NOBODYS
                assert (reply.get("known", True), reply.get("unknown")) == (is_known, None), f"{command}: {reply}"
                if asked.publishes and is_known:
                    self._published(asked, reply["published"])
            case "XYZ":
                assert reply["err"] == "BAD_COMMAND"

    def _published(self, asked: Asked, uids: list[str]) -> None:
        if asked.once:
            before = self.first.setdefault(asked.once, asked)
            if before is not asked:
                assert uids == [(before.reply or {})["uid"]], f"{asked.command} was stored again"
                return
        for uid, (queue, text) in zip(uids, asked.publishes, strict=True):
            parsed = parse(uid)
            assert parsed is not None
            number = parsed[1]
            assert number > self.newest.get(queue, 0), (
                f"{self}: {text} is {number} behind {self.newest[queue]} in {queue}"
            )
            self.newest[queue] = number
            self.world.publish(uid, queue, text)

    def _refused(self, asked: Asked, code: str) -> None:
        """It was not done, or (UNKNOWN) nobody knows."""
        is_unsure = code == "UNKNOWN"
        (self.world.unsure if is_unsure else self.world.refused).update(text for _, text in asked.publishes)
        for message in asked.ends:
            message.is_done, message.may_return, message.is_unsure = False, is_unsure, is_unsure
            if not is_unsure:
                self.held.append(message)

    # --- the end -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything is answered; and nobody but this worker has used its own queue, so it is known what was there."""
        assert not self.waiting, f"{self} waits for {[asked.command for asked in self.waiting]}"
        assert not self.apart, f"{self} waits for {[asked.command for asked in self.apart.values()]}"
        if self.world.is_exact:
            self._check_own_queue()

    def sleeps_at(self, queue: str) -> bool:
        """Whether this worker relies on being woken for a message of a queue."""
        commands = (asked.command for asked in reversed(self.asked) if asked.command.get("qname") == queue)
        last = next((command["cmd"] for command in commands if command["cmd"] in ("FET", "UNS", "ISLP")), "")
        return last == "ISLP" and queue in self.asleep and queue in self.subscribed

    def _check_own_queue(self) -> None:
        published = available = 0  # by the commands so far: ever, and at least still in line
        newest = 0
        stored: set[str] = set()
        for asked in self.asked:
            command, reply = asked.command, asked.reply or {}
            if reply.get("cmd") in ("ok", "okack"):
                uids = {uid for uid in (reply.get("published") or reply.get("uids") or [reply.get("uid")]) if uid}
                fresh = sum(queue == self.own for queue, _ in asked.publishes)
                if command["cmd"] == "PUB" and uids & stored:
                    fresh = 0
                if command["cmd"] == "PUB":
                    stored |= uids
                published, available = published + fresh, available + fresh
            if command["cmd"] == "LIST":
                rows = [row["published"] for row in reply["queues"] if row["qname"] == self.own]
                assert rows, f"{self} has created its queue before, and does not see it"
                assert rows[0] >= published, f"{self} has published {published} before, and sees {rows[0]}"
            if command.get("qname") != self.own:
                continue
            match command["cmd"]:
                case "FET":
                    found = reply.get("messages", [reply] if reply["cmd"] == "msg" else [])
                    wanted = min(command.get("count", 1), max(available, 0))
                    assert len(found) >= wanted, (
                        f"{self}: {command} got {len(found)}, and {wanted} were there before it"
                    )
                    available -= len(found)
                    numbers = [parse(one["uid"])[1] for one in found]  # type: ignore[index]
                    if not (self.returns or "wait" in command):
                        assert numbers == sorted(numbers)
                        assert not numbers or numbers[0] > newest, f"{self}: {command} overtook an earlier one"
                        newest = numbers[-1] if numbers else newest
                case "NACK":
                    available += len(asked.ends)
                case "STATS":
                    seen = reply["stats"]["published"]
                    assert seen >= published, f"{self} has published {published} before, and sees {seen}"
