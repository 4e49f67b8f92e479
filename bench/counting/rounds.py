"""The cost of a life without sockets: connections that all send a command in one round of the loop.

    python -m bench rounds --rounds 3      prints a table and keeps it in bench/results/<date>-rounds.md

A node runs on a loop by hand (`bench/hand`).  Its doors are given bytes as reads of sockets bring them, and what they
write is kept.  Measured is the CPU time of this one thread until all is answered: decoding, everything between,
encoding, writing and syncing the log.  The state store has its own thread, as always; making commands and reading
answers are the client's and do not count.  The least of many times is shown: it is what the product needs where nobody
disturbs it.  Neighbours share caches with it all the same, so where they are busy more passes are needed (`--rounds`).
"""

import gc
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.hand.loop import End, HandLoop
from bench.hand.node import HandNode, memory
from bench.machine import facts
from bench.peers.wakeq import LEASE, MESSAGES, UID, line
from bench.report import NOTHING, table

BODY = "x" * 100
BUSY, WINDOW = 16, 64  # connections that have much in flight, and how much
CYCLES_MIN = 10
ANSWER_S_MAX = 10.0
KINDS = ("PUB", "FET", "ACK")
RESULTS = Path(__file__).parents[1] / "results"


@dataclass(slots=True)
class Connection:
    """One connection, the queue that it works on, and its messages that it has not acknowledged."""

    end: End
    queue: str
    held: list[bytes] = field(default_factory=list)  # an ACK for each

    def take(self) -> int:
        """Keep the messages that came; return how many answers did."""
        data = self.end.take()
        assert b'"nok"' not in data, data[:200]
        assert b'"nomsg"' not in data, data[:200]
        answers = data.splitlines()
        for answer in answers:
            if MESSAGES in answer:
                self.held += map(self._ack, zip(UID.findall(answer), LEASE.findall(answer), strict=True))
        return len(answers)

    def _ack(self, message: tuple[bytes, bytes]) -> bytes:
        return b'{"cmd":"ACK","qname":"%b","uid":"%b","lease":%b}\n' % (self.queue.encode(), *message)

    def acks(self, count: int) -> list[bytes]:
        """The ACKs of the messages that it has had the longest."""
        taken, self.held = self.held[:count], self.held[count:]
        assert len(taken) == count, "it holds too few messages"
        return taken


class Stage:
    """A node and connections to it, which say something in one round."""

    def __init__(self, loop: HandLoop, node: HandNode, connections: int, queues: int) -> None:
        self._loop = loop
        self.connections = [Connection(node.connect("worker"), f"q{at % queues}") for at in range(connections)]

    def round(self, said: Callable[[Connection], list[bytes]]) -> float:
        """Let each connection say its lines in one read; return the seconds of CPU until all of them are answered."""
        reads = [(one.end, said(one)) for one in self.connections]
        expected = sum(len(lines) for _, lines in reads)
        joined = [(end, b"".join(lines)) for end, lines in reads]
        began = time.thread_time()
        for end, data in joined:
            end.protocol.data_received(data)
        self._loop.settle()
        used_s = time.thread_time() - began
        answered = sum(one.take() for one in self.connections)
        until_s = time.monotonic() + ANSWER_S_MAX
        while answered < expected:  # the log was synced in its thread, or an answer waits for a timer
            assert time.monotonic() < until_s, f"{expected - answered} commands are not answered"
            began = time.thread_time()
            self._loop.wait()
            self._loop.settle()
            used_s += time.thread_time() - began
            answered += sum(one.take() for one in self.connections)
        return used_s


def pub(queue: str) -> bytes:
    return line("PUB", qname=queue, msg=BODY)


def fet(queue: str, count: int = 1) -> bytes:
    return line("FET", qname=queue, count=count) if count > 1 else line("FET", qname=queue)


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table.  `cycle` lets `lives` lives pass, and returns the seconds of each round that counts."""

    title: str
    cycle: Callable[[Stage], list[float]]
    connections: int = BUSY
    queues: int = 1
    window: int = WINDOW  # lives of each connection
    begin: Callable[[Stage], object] = lambda _: None

    @property
    def lives(self) -> int:
        return self.connections * self.window


# What connections say in a cycle --------------------------------------------------------------------------------------


def one_at_a_time(stage: Stage) -> list[float]:
    return [
        stage.round(lambda one: [pub(one.queue)]),
        stage.round(lambda one: [fet(one.queue)]),
        stage.round(lambda one: one.acks(1)),
    ]


def in_flight(stage: Stage) -> list[float]:
    """W1: FET with a count."""
    return [
        stage.round(lambda one: [pub(one.queue)] * WINDOW),
        stage.round(lambda one: [fet(one.queue, WINDOW)]),
        stage.round(lambda one: one.acks(WINDOW)),
    ]


def fetched_one_by_one(stage: Stage) -> list[float]:
    return [
        stage.round(lambda one: [pub(one.queue)] * WINDOW),
        stage.round(lambda one: [fet(one.queue)] * WINDOW),
        stage.round(lambda one: one.acks(WINDOW)),
    ]


def hold_some(stage: Stage) -> None:
    """Have each connection hold as many messages as it acknowledges in a round."""
    stage.round(lambda one: [pub(one.queue)] * WINDOW)
    stage.round(lambda one: [fet(one.queue, WINDOW)])


def fet_and_ack_in_turns(stage: Stage) -> list[float]:
    stage.round(lambda one: [pub(one.queue)] * WINDOW)
    return [stage.round(lambda one: in_turns([fet(one.queue)] * WINDOW, one.acks(WINDOW)))]


def all_in_turns(stage: Stage) -> list[float]:
    return [stage.round(lambda one: in_turns([pub(one.queue)] * WINDOW, [fet(one.queue)] * WINDOW, one.acks(WINDOW)))]


def pub_elsewhere_and_ack_in_turns(stage: Stage) -> list[float]:
    hold_some(stage)
    return [stage.round(lambda one: in_turns([pub("second")] * WINDOW, one.acks(WINDOW)))]


def ack_with_publish(stage: Stage) -> list[float]:
    hold_some(stage)
    follow_up = b',"publish":[{"qname":"second","msg":"%b"}]}\n' % BODY.encode()
    return [stage.round(lambda one: [ack.removesuffix(b"}\n") + follow_up for ack in one.acks(WINDOW)])]


def in_turns(*kinds: list[bytes]) -> list[bytes]:
    return [one for together in zip(*kinds, strict=True) for one in together]


CELLS = (
    Cell("1 connection", one_at_a_time, connections=1, window=1),
    Cell("16 connections", one_at_a_time, connections=16, window=1),
    Cell("300 connections", one_at_a_time, connections=300, window=1),
    Cell("1,000 connections, one queue", one_at_a_time, connections=1_000, window=1),
    Cell("1,000 connections, 100 queues", one_at_a_time, connections=1_000, queues=100, window=1),
    Cell("1,000 connections, 1,000 queues", one_at_a_time, connections=1_000, queues=1_000, window=1),
    Cell("16 with 64 in flight: 64 PUBs, FET count=64, 64 ACKs", in_flight),
    Cell("16 with 64 in flight: 64 PUBs, 64 FETs, 64 ACKs", fetched_one_by_one),
    Cell("16 with 64 in flight: FET and ACK in turns, a pair", fet_and_ack_in_turns, begin=hold_some),
    Cell("16 with 64 in flight: PUB, FET and ACK in turns", all_in_turns, begin=hold_some),
    Cell("16 with 64 in flight: PUB to a second queue and ACK in turns, a pair", pub_elsewhere_and_ack_in_turns),
    Cell("16 with 64 in flight: 64 ACKs with `publish` to a second queue", ack_with_publish),
)


# Measuring -----------------------------------------------------------------------------------------------------------


@contextmanager
def prepared(cell: Cell) -> Iterator[Stage]:
    """A fresh node with the connections of a cell, and nothing collected meanwhile."""
    loop = HandLoop()
    with loop.running(), tempfile.TemporaryDirectory(prefix="wakeq-rounds-", dir=memory()) as folder:
        node = HandNode(loop, Path(folder) / "data")
        stage = Stage(loop, node, cell.connections, cell.queues)
        cell.begin(stage)
        gc.collect()
        gc.disable()
        try:
            yield stage
        finally:
            gc.enable()
            for connection in stage.connections:
                connection.end.close()
            node.stop()


def cost_of(cell: Cell, seconds: float) -> list[float]:
    """Return the least cost of a life in each round of a cycle, in microseconds of CPU."""
    with prepared(cell) as stage:
        cycles: list[list[float]] = []
        until_s = time.perf_counter() + seconds
        while len(cycles) < CYCLES_MIN or time.perf_counter() < until_s:
            cycles.append(cell.cycle(stage))
    return [min(rounds_s) * 1e6 / cell.lives for rounds_s in zip(*cycles, strict=True)]


def row_of(cell: Cell, costs: list[float]) -> list[str]:
    """A cell's figures: of all rounds together, and of each if they are one for each kind of command."""
    apart = [f"{cost:.1f}" for cost in costs] if len(costs) > 1 else [NOTHING] * len(KINDS)
    return [cell.title, f"{sum(costs):.1f}", *apart]


def report(seconds: float, passes: int, command: str) -> str:
    """Measure all cells, several times if asked; return the figures with what a reader must know of them."""
    logging.disable(logging.WARNING)  # that the files of these nodes are in memory
    least = [cost_of(cell, seconds) for cell in CELLS]
    for _ in range(passes - 1):
        least = [list(map(min, costs, cost_of(cell, seconds))) for cell, costs in zip(CELLS, least, strict=True)]
    rows = [row_of(cell, costs) for cell, costs in zip(CELLS, least, strict=True)]
    return (
        f"# Rounds without sockets, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n\n"
        f"    {command}\n\n"
        f"{facts(memory() or Path(tempfile.gettempdir()))}.\n\n"
        f"Microseconds of CPU for a life, the least of {passes} times {seconds:g} s.\n\n"
        f"{table(['connections', 'a life', *KINDS], rows)}\n"
    )


def keep(text: str) -> None:
    """Keep a report as that of today."""
    (RESULTS / f"{time.strftime('%Y-%m-%d', time.gmtime())}-rounds.md").write_text(text, encoding="utf-8")
