"""W13: commands of several kinds in turns, beside the same commands sorted by kind.

Each connection sends a wave of 64 commands in one write, and the next wave when all of them are answered.  Slices of
waves in turns and of sorted ones take turns on one server, each on queues of its own; the ratio of their CPU says what
it costs that a program mixes its commands.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import partial

import msgspec

from bench.load.clients import PeerFailed, connect
from bench.load.flow import Load
from bench.peers.peer import Peer, close_all
from bench.peers.wakeq import MESSAGES, Handle, WakeqCaller, begun, first_refusal, handles_in, line
from bench.workloads.workload import (
    COST,
    DRAIN_S_MAX,
    NOISE,
    Column,
    Figures,
    Plan,
    Workload,
    bulk_load,
    cpu_us,
    publish_all,
    start_fresh,
    until_quiet,
)

CONNECTIONS = 16
WINDOW = 64  # commands in a wave
WAVES = 100  # of each connection in one slice
PAIRS = 2  # of slices
FETCH_COUNT_MAX = 1_000
NEXT_QUEUE = "w13-next"
BODY = Load().body.decode()
AWK, NOK = b'"cmd":"awk"', b'"cmd":"nok"'


class Kind(IntEnum):
    """In the order of a sorted wave: what reads comes first, and what ends a lease comes behind what needs it."""

    SUB = auto()
    FET = auto()
    ISLP = auto()
    TOUCH = auto()
    NACK = auto()
    ACK = auto()
    PUB = auto()


class Command(msgspec.Struct, frozen=True, gc=False):
    kind: Kind
    line: bytes


class Worker(WakeqCaller):
    """A connection with its messages in hand, and the commands that it can say about its two queues."""

    def __init__(self, queue: str, next_queue: str, seed: str) -> None:
        super().__init__()
        self.queue = queue
        self.hand: deque[Handle] = deque()
        self.random = random.Random(seed)
        self.sub = Command(Kind.SUB, line("SUB", qname=queue))
        self.fet = Command(Kind.FET, line("FET", qname=queue))
        self.islp = Command(Kind.ISLP, line("ISLP", qname=queue))
        self.pub = Command(Kind.PUB, line("PUB", qname=queue, msg=BODY))
        self.pub_next = Command(Kind.PUB, line("PUB", qname=next_queue, msg=BODY))
        self._begun = {kind: begun(kind.name, qname=queue) for kind in (Kind.TOUCH, Kind.NACK, Kind.ACK)}
        self._follow_up = b',"publish":%b}\n' % msgspec.json.encode([{"qname": next_queue, "message": BODY}])

    def touch(self) -> Command:
        """The message stays in hand, where it is the next one."""
        return self._about(Kind.TOUCH, self.hand[0])

    def nack(self) -> Command:
        return self._about(Kind.NACK, self._take(), b',"failed":false}\n')

    def acknowledge(self) -> Command:
        return self._about(Kind.ACK, self._take())

    def acknowledge_and_publish(self) -> Command:
        return self._about(Kind.ACK, self._take(), self._follow_up)

    def _take(self) -> Handle:
        if not self.hand:
            raise PeerFailed("no message is in hand: fetches found nothing although messages wait")
        return self.hand.popleft()

    def _about(self, kind: Kind, handle: Handle, end: bytes = b"}\n") -> Command:
        return Command(kind, b'%b,"uid":"%b","lease":%b%b' % (self._begun[kind], *handle, end))

    async def ask(self, lines: bytes, answers: int, *, until_awoken: bool = False) -> None:
        """Send commands in one write and wait until all are answered; what they brought is in hand then."""
        self.send(lines)
        is_awoken = not until_awoken
        while answers or not is_awoken:
            reply = await self.reply()
            if AWK in reply:
                is_awoken = True
                continue
            answers -= 1
            if MESSAGES in reply:
                self.hand += handles_in(reply)
            elif NOK in reply:
                raise first_refusal(reply)

    async def gather(self, messages: int) -> None:
        """Fetch until so many messages are in hand."""
        while (missing := messages - len(self.hand)) > 0:
            await self.ask(line("FET", qname=self.queue, count=min(missing, FETCH_COUNT_MAX)), 1)
            if len(self.hand) + missing == messages:
                raise PeerFailed(f"{self.queue} is empty, and {missing} more messages are wanted in hand")


# Mixtures -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mixture:
    """A wave is as many steps as make 64 commands."""

    step: Callable[[Worker], list[Command]]
    commands: int  # of a step
    takes: bool = True  # each step takes a message out of hand
    fetches: bool = False  # each step fetches one; otherwise all that a slice takes is fetched before it begins
    sleeps: bool = False  # each wave ends with a PUB to the connection's own queue, and the next one waits for its awk

    @property
    def steps(self) -> int:
        """Of a wave."""
        return WINDOW // self.commands

    def in_hand(self, waves: int) -> int:
        """Messages that a connection has in hand when a slice of so many waves begins."""
        return self.takes * self.steps * (1 if self.fetches else waves)

    def in_stock(self, waves: int) -> int:
        """Messages that a queue needs for the fetches of one connection."""
        return self.fetches * self.steps * (waves + 1)

    def wave(self, worker: Worker, *, is_sorted: bool) -> list[Command]:
        commands = [command for _ in range(self.steps) for command in self.step(worker)]
        if is_sorted:
            commands.sort(key=lambda command: command.kind)
        if self.sleeps:
            commands.append(worker.pub)
        return commands


def _random_step(worker: Worker) -> list[Command]:
    """A command by chance: there are as many fetches as ends of leases, and as many publishes as acknowledgements."""
    return [worker.random.choice(ANY_OF)(worker) if worker.hand else worker.fet]


ANY_OF: tuple[Callable[[Worker], Command], ...] = (
    *(lambda worker: worker.fet,) * 6,
    *(Worker.acknowledge,) * 4,
    Worker.acknowledge_and_publish,
    Worker.nack,
    Worker.touch,
    *(lambda worker: worker.pub,) * 4,
    lambda worker: worker.pub_next,
    lambda worker: worker.sub,
    lambda worker: worker.islp,
)
FETCHES = Mixture(lambda worker: [worker.acknowledge(), worker.fet], 2, fetches=True)
PUBLISHES = Mixture(lambda worker: [worker.pub_next, worker.acknowledge()], 2)
FOLLOW_UPS = Mixture(lambda worker: [worker.acknowledge_and_publish()], 1)
RETURNS = Mixture(lambda worker: [worker.touch(), worker.nack()], 2)
SLEEPS = Mixture(lambda worker: [worker.sub, worker.fet, worker.islp], 3, takes=False, sleeps=True)
RANDOM = Mixture(_random_step, 1, fetches=True)


# Slices -------------------------------------------------------------------------------------------------------


async def compare(peer: Peer, plan: Plan, *, mixture: Mixture, reference: Mixture | None = None) -> Figures:
    """CPU of a step in turns, and of the reference sorted; every second pair of slices in the opposite order."""
    await start_fresh(peer)
    waves = plan.count(WAVES, least=1)
    in_turns: list[Figures] = []
    in_order: list[Figures] = []
    for pair in range(PAIRS):
        for is_sorted in (False, True) if pair % 2 == 0 else (True, False):
            measured = reference if reference and is_sorted else mixture
            figures = await one_slice(peer, measured, waves, seed=pair, is_sorted=is_sorted)
            (in_order if is_sorted else in_turns).append(figures)
    us, sorted_us = cpu_us(together(in_turns)), cpu_us(together(in_order))
    return together([*in_turns, *in_order]) | {
        "us": us,
        "sorted_us": sorted_us,
        "ratio": us / (sorted_us or float("nan")),
        "more_us": us - sorted_us,
    }


async def one_slice(peer: Peer, mixture: Mixture, waves: int, *, seed: int, is_sorted: bool) -> Figures:
    """Waves of all connections; what it takes before and after is not measured."""
    queues = [f"w13-{number}" for number in range(CONNECTIONS if mixture.sleeps else 1)]
    workers = [
        await connect(Worker(queues[number % len(queues)], NEXT_QUEUE, f"{seed} {number}"), peer.port)
        for number in range(CONNECTIONS)
    ]
    boss = await peer.caller()
    for queue in (*queues, NEXT_QUEUE):
        boss.expect(await boss.call(line("CREATE", qname=queue)), b'"okcreate"')
    if stock := CONNECTIONS * (mixture.in_hand(waves) + mixture.in_stock(waves)):
        load = bulk_load(peer, body_bytes=len(BODY), queues=(queues[0],))
        await publish_all(peer, load, count=math.ceil(stock / load.batch) * load.batch)
    for worker in workers:
        await worker.gather(mixture.in_hand(waves))
    await until_quiet(peer)
    meter = peer.meter()
    work = asyncio.gather(*(live(worker, mixture, waves, is_sorted=is_sorted) for worker in workers))
    await asyncio.wait_for(work, DRAIN_S_MAX)
    figures = meter.stop(CONNECTIONS * waves * mixture.steps)
    close_all(workers)
    for queue in (*queues, NEXT_QUEUE):
        boss.expect(await boss.call(line("DROP", qname=queue)), b'"okdrop"')
    boss.close()
    return figures


async def live(worker: Worker, mixture: Mixture, waves: int, *, is_sorted: bool) -> None:
    for _ in range(waves):
        wave = mixture.wave(worker, is_sorted=is_sorted)
        await worker.ask(b"".join([command.line for command in wave]), len(wave), until_awoken=mixture.sleeps)


def together(slices: list[Figures]) -> Figures:
    """The figures of several stretches of work as those of one."""
    walls_s = [one["count"] / one["rate"] for one in slices]
    count, wall_s = sum(one["count"] for one in slices), sum(walls_s)
    shares = {
        name: sum(one[name] * one_wall_s for one, one_wall_s in zip(slices, walls_s, strict=True)) / wall_s
        for name in ("server", "generator", "other")
    }
    return {"count": count, "rate": count / wall_s} | shares


COLUMNS = (
    Column("us", "server CPU us a step, in turns", ".1f"),
    Column("sorted_us", "sorted", ".1f"),
    Column("ratio", "ratio", ".2f"),
    *COST,
    *NOISE,
)
FOLLOW_UP_COLUMNS = (
    Column("us", "server CPU us, ACK with publish", ".1f"),
    Column("sorted_us", "PUB and ACK, sorted", ".1f"),
    Column("more_us", "more", ".1f"),
    *COST,
    *NOISE,
)
OURS = ("wakeq",)
WORKLOADS = (
    Workload("W13A", "ACK and FET in turns", partial(compare, mixture=FETCHES), COLUMNS, OURS),
    Workload("W13B", "PUB to a second queue and ACK in turns", partial(compare, mixture=PUBLISHES), COLUMNS, OURS),
    Workload(
        "W13C", "ACK with publish, beside PUB and ACK",
        partial(compare, mixture=FOLLOW_UPS, reference=PUBLISHES), FOLLOW_UP_COLUMNS, OURS,
    ),
    Workload("W13D", "TOUCH and NACK in turns", partial(compare, mixture=RETURNS), COLUMNS, OURS),
    Workload("W13E", "SUB, FET, ISLP in turns, and awk", partial(compare, mixture=SLEEPS), COLUMNS, OURS),
    Workload("W13F", "commands by chance", partial(compare, mixture=RANDOM), COLUMNS, OURS),
)  # fmt: skip
