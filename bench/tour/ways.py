"""One command of each kind, alone, at a node that has nothing else to do.

    KINDS: the page and the words of each kind            see_all(clock), see_cycle(clock) --> the way of each kind

Each command is sent so often that nothing is done for the first time any more, and the last two times must have gone
the same way.  Time passes only until a delayed message is due.  Commands are bytes as they stand on the wire, so this
file does not depend on how the product is made inside; only `bench/hand/node.py` does.
"""

import gc
import json
import logging
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any

from bench.cluster import free_ports
from bench.hand.clock import HandClock
from bench.hand.loop import End, HandLoop
from bench.hand.node import HandNode, member, memory, turn_of, without_threads
from bench.tour.recorder import Recorder, Way
from bench.workloads.monique import HELLO as UPGRADE
from bench.workloads.monique import client_frame, push_frame

Ways = dict[str, Way]  # by the kind's name

TIMES = 48  # that each is done: the product looks back at no more syncs and rounds of the loop than that
WRITTEN = {End.write.__code__: "bytes are written to a socket"}
BODY = "x" * 100
DELAY_S = 3  # long enough for the message to be in the state store by then
SPEC = "tour_example"

TASKFLUX_HELLO = b"AN" + b"B" + pack(">iii", 1, 0, 0)
ENQUEUE = b"CE" + b"\x04flux" + pack(">qi", 0, len(BODY)) + BODY.encode()
DEQUEUE = b"CD" + b"\x04flux" + pack(">I", 0)
CREATE_QUEUE = b"CQ" + b"\x04flux" + pack(">iii", 0, -1, -1) + b"\x00"
ACK = b"Q"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of command: the name of its page, its title, what is done, and what is not counted."""

    name: str
    title: str
    text: str


KINDS = [
    Kind("pub", "PUB", "A connection of the worker protocol publishes one message to a queue that is empty."),
    Kind(
        "fet",
        "FET",
        "The same connection fetches that message. The entry `Delivered` is made here and waits in memory: it is "
        "written with the next entry that somebody waits for, which is that of the ACK, or 20 ms later by itself.",
    ),
    Kind(
        "ack",
        "ACK",
        "The same connection acknowledges the message. What the FET has left is written and applied here too.",
    ),
    Kind("islp", "ISLP", "A connection that has subscribed to a queue and found nothing goes to sleep."),
    Kind(
        "awk",
        "PUB with awk",
        "Another connection publishes to the queue of that sleeper, which is woken by `awk` before the publisher has "
        "its `ok`.",
    ),
    Kind(
        "enqueue",
        "Enqueue",
        "A connection of the TaskFlux protocol stores one record: an Enqueue and its Ack, which come in one read.",
    ),
    Kind(
        "dequeue",
        "Dequeue",
        "The same connection takes the record: a Dequeue, and, when it has the record, the Ack that removes it.",
    ),
    Kind(
        "push",
        "MoniQue push",
        "A WebSocket client of MoniQue pushes a message; another one, which has subscribed to its spec, gets it. "
        "Neither the log nor a queue takes part. The frames are cut by aiohttp, whose functions do not count.",
    ),
    Kind(
        "append",
        "Append at a follower",
        "A follower, one of three nodes, receives a message of the leader: the entry that a PUB has become, and the "
        "news that the entry of the PUB before it is committed. The follower applies the earlier entry, saves the new "
        "one and says so. What the leader does is not counted. A follower syncs in the thread of its log; here the "
        "sync is done at once, so that it can be seen.",
    ),
    Kind(
        "delayed",
        "Delayed message that falls due",
        "A message was published with a delay of three seconds, and a connection waits for it in a FET. The delay "
        "ends. By then the body of the message is in the state store, from which it is read.",
    ),
]


def see_all(clock: HandClock) -> Ways:
    """Drive one of each kind; the clock is that by which this process goes."""
    return see(clock, see_worker, see_sleeper, see_taskflux, see_monique, see_follower, see_delayed)


def see_cycle(clock: HandClock) -> Ways:
    """Drive a PUB, a FET and an ACK."""
    return see(clock, see_worker)


def see(clock: HandClock, *seers: Callable[[HandLoop, Path], Ways]) -> Ways:
    """Let each of these drive nodes of its own."""
    logging.disable(logging.WARNING)  # that three nodes on one machine are not safe from each other
    without_threads()
    gc.disable()  # what it finds, and when, is nobody's way
    random.seed(1)  # by which nodes choose when to stand for election
    ways: Ways = {}
    for seer in seers:
        with (
            HandLoop(clock.advance).running() as loop,
            tempfile.TemporaryDirectory(prefix="wakeq-tour-", dir=memory()) as folder,
        ):
            ways |= seer(loop, Path(folder))
    return ways


def steady(cycle: Callable[[], Ways]) -> Ways:
    """Do it until nothing is new any more; return the ways of the last time."""
    for _ in range(TIMES - 2):
        cycle()
    before, last = cycle(), cycle()
    assert before == last, "a way that is not the same each time cannot be shown"
    assert all(way.turns for way in last.values()), "nobody has a turn; correct `turn_of` in bench/hand/node.py"
    return last


def say(loop: HandLoop, end: End, data: bytes) -> None:
    """Let one read bring this, and all be done that comes of it."""
    end.give(data)
    loop.settle()


def way_of(loop: HandLoop, end: End, data: bytes) -> Way:
    """The same, seen."""
    recorder = Recorder(turn_of, WRITTEN)
    with recorder.see():
        say(loop, end, data)
    return recorder.way


# The worker protocol -------------------------------------------------------------------------------------------------


def line(cmd: str, **fields: Any) -> bytes:
    return json.dumps({"cmd": cmd, **fields}, separators=(",", ":")).encode() + b"\n"


PUB, FET = line("PUB", qname="q", msg=BODY), line("FET", qname="q")


def replies(end: End, *expected: str) -> list[Any]:
    """What a client has been answered, which must be this."""
    came = [json.loads(reply) for reply in end.take().splitlines()]
    assert [reply["cmd"] for reply in came] == list(expected), came
    return came


def ack_of(message: Any) -> bytes:
    return line("ACK", qname=message["qname"], uid=message["uid"], lease=message["lease"])


def see_worker(loop: HandLoop, folder: Path) -> Ways:
    node = HandNode(loop, folder / "data")
    end = node.connect("worker")

    def cycle() -> Ways:
        published = way_of(loop, end, PUB)
        replies(end, "ok")
        fetched = way_of(loop, end, FET)
        (message,) = replies(end, "msg")
        acknowledged = way_of(loop, end, ack_of(message))
        replies(end, "okack")
        return {"pub": published, "fet": fetched, "ack": acknowledged}

    ways = steady(cycle)
    node.stop()
    return ways


def see_sleeper(loop: HandLoop, folder: Path) -> Ways:
    node = HandNode(loop, folder / "data")
    publisher, sleeper = node.connect("worker"), node.connect("worker")
    say(loop, publisher, line("CREATE", qname="q"))
    say(loop, sleeper, line("SUB", qname="q"))
    replies(publisher, "okcreate")
    replies(sleeper, "oksub")

    def cycle() -> Ways:
        say(loop, sleeper, FET)
        replies(sleeper, "nomsg")
        asleep = way_of(loop, sleeper, line("ISLP", qname="q"))
        replies(sleeper, "okslp")
        woken = way_of(loop, publisher, PUB)
        replies(publisher, "ok")
        replies(sleeper, "awk")
        say(loop, sleeper, FET)
        (message,) = replies(sleeper, "msg")
        say(loop, sleeper, ack_of(message))
        replies(sleeper, "okack")
        return {"islp": asleep, "awk": woken}

    ways = steady(cycle)
    node.stop()
    return ways


def see_delayed(loop: HandLoop, folder: Path) -> Ways:
    """See the timer that is followed by the delivery; those before it have other work."""
    node = HandNode(loop, folder / "data")
    publisher, waiting = node.connect("worker"), node.connect("worker")

    def cycle() -> Ways:
        say(loop, publisher, line("PUB", qname="q", msg=BODY, delay=DELAY_S))
        replies(publisher, "ok")
        say(loop, waiting, line("FET", qname="q", wait=60))
        recorder = Recorder(turn_of, WRITTEN)
        while not waiting.written:
            loop.wait()
            recorder = Recorder(turn_of, WRITTEN)
            with recorder.see():
                loop.settle()
        (message,) = replies(waiting, "msg")
        say(loop, waiting, ack_of(message))
        replies(waiting, "okack")
        return {"delayed": recorder.way}

    ways = steady(cycle)
    node.stop()
    return ways


# The other protocols -------------------------------------------------------------------------------------------------


def see_taskflux(loop: HandLoop, folder: Path) -> Ways:
    node = HandNode(loop, folder / "data")
    end = node.connect("taskflux")
    say(loop, end, TASKFLUX_HELLO + CREATE_QUEUE)
    assert end.take() == b"a\x01b\x01k"

    def cycle() -> Ways:
        stored = way_of(loop, end, ENQUEUE + ACK)
        assert end.take() == b"kk"
        recorder = Recorder(turn_of, WRITTEN)
        for text, data in (("the Dequeue is read", DEQUEUE), ("its Ack is read", ACK)):
            with recorder.see(text):
                say(loop, end, data)
        assert end.take().endswith(BODY.encode() + b"k")
        return {"enqueue": stored, "dequeue": recorder.way}

    ways = steady(cycle)
    node.stop()
    return ways


def see_monique(loop: HandLoop, folder: Path) -> Ways:
    node = HandNode(loop, folder / "data")
    pusher, subscriber = node.connect("http"), node.connect("http")
    for end in (pusher, subscriber):
        say(loop, end, UPGRADE)
        assert b" 101 " in end.take()
    say(loop, subscriber, client_frame("subscribe", [{"spec": SPEC, "type": "*"}]))
    assert b"subscribed" in subscriber.take()

    def cycle() -> Ways:
        way = way_of(loop, pusher, push_frame(SPEC))
        assert b"pushed_to_mq" in pusher.take()
        assert b"pushed_from_mq" in subscriber.take()
        return {"push": way}

    ways = steady(cycle)
    node.stop()
    return ways


# A cluster -----------------------------------------------------------------------------------------------------------


def see_follower(loop: HandLoop, folder: Path) -> Ways:
    """See one node of three that follows: the others are real too, and what they do is not recorded."""
    peers = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
    nodes = [HandNode(loop, folder / f"node-{node}", **member(node, peers)) for node in range(3)]
    publisher = connected_to_leader(loop, nodes)

    def cycle() -> Ways:
        say(loop, publisher, PUB)
        follower = loop.flying[0][0]  # at its end of the connection to the leader
        recorder = Recorder(turn_of, WRITTEN)
        while any(end is follower for end, _ in loop.flying):
            with recorder.see():
                loop.land(follower)
            loop.deliver(but=follower)
        replies(publisher, "ok")
        return {"append": recorder.way}

    ways = steady(cycle)
    for node in nodes:
        node.stop()
    return ways


def connected_to_leader(loop: HandLoop, nodes: list[HandNode]) -> End:
    """Let time pass until one of them leads; return a connection to it."""
    ends = [node.connect("worker") for node in nodes]
    while True:
        for end in ends:
            end.give(PUB)
            loop.deliver()
            if b'"ok"' in end.take():
                return end
        loop.wait()
