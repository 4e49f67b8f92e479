"""Histories of brokers and clusters whose machines sleep, stand still, are switched off, and have wrong clocks.

    quiet, pauses, cuts, restarts, set wall clocks --> what clients are told --> the checker, by true time

Whatever the clocks of the machines say, no lease, delay or expiry may end before its time.  Where the clocks are
right, an expiry is late by no more than the pauses before it.
"""

import random
from typing import ClassVar

import pytest

from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.clusters.told_life import ToldLife
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from tests.helpers.histories.checker import check

STEPS = 120
TIMEOUT_S = 20
HOUR_MS = 3_600_000
LATE = "Q6"  # the checker's rule for messages that are delivered after their expiry
DRAINS_MAX = 200
RESTART_S = 0.1  # that a start may lose


class Life(ToldLife):
    """A broker or a cluster, and what happens to it.  The clock of one machine of several may be wrong at its boot."""

    policies: ClassVar[Json] = {"timeout_s": TIMEOUT_S, "strict": True}
    steps_ms: ClassVar[list[int]] = [0, HOUR_MS, -HOUR_MS]  # by which a wall clock may be wrong
    expires_s: ClassVar[int] = 1_800  # longer than a life, so that none is over
    lean: ClassVar[float] = (
        0.01  # by so much a delay is shorter if a wall clock is set, or another one counts meanwhile
    )

    def __init__(self, cluster: HandCluster, chance: random.Random) -> None:
        super().__init__(cluster, chance)
        self.pauses: list[tuple[float, float]] = []  # when a clock stood still, or a start may have lost time: how long

    def step(self) -> None:
        weights = {self.publish_one: 4, self.fetch: 5, self.ack: 2, self.nack: 1, self.rest: 2, self.pass_time: 3}
        weights |= {self.be_quiet: 1, self.sleep_all: 0.7, self.sleep_one: 0.7, self.set_wall: 0.7}
        weights |= {self.restart_one: 1, self.restart_all: 0.5, self.hand_over: 0.7}
        weights |= {self.isolate: 0.5, self.cluster.heal: 0.7, self.wait_for_one: 3}
        self.draw(weights)

    def publish_one(self) -> None:
        kind, span_s = self.chance.choice(["plain", "delay", "expires"]), self.chance.choice([10, 30])
        if kind == "delay":
            certain_s = span_s * (1 - self.lean)
            self.publish(id=f"t{self.tasks + 1}", delay=span_s, about={"delay_s": certain_s})
        elif kind == "expires":
            self.publish(id=f"t{self.tasks + 1}", expires=self.expires_s, about={"expires_s": self.expires_s})
        else:
            self.publish(id=f"t{self.tasks + 1}")

    def wait_for_one(self) -> None:
        """A waiting fetch gets a message in the moment of its delivery, so that a delivery too early shows."""
        self.ask({"cmd": "FET", "wait": 60})

    def ack(self) -> None:
        if self.held:
            self.settle_one("ACK", self.chance.choice(self.held[-6:]))

    def nack(self) -> None:
        if self.held:
            self.settle_one("NACK", self.chance.choice(self.held[-6:]))

    def pass_time(self) -> None:
        self.rest()
        self.cluster.advance(self.chance.choice([0.03, 0.5, 3.0]))

    def be_quiet(self) -> None:
        """Nobody asks for anything."""
        self.rest()
        self.cluster.advance(self.chance.choice([9.0, 15.0, 60.0]))

    def sleep_all(self) -> None:
        """Every process stands still, as in a laptop that is closed."""
        self.rest()
        self.pause(self.chance.choice([2.5, 12.0, 30.0]))
        self.cluster.time.stall(self.pauses[-1][1])
        self.rest()

    def sleep_one(self) -> None:
        node = self.chance.choice(self.living)
        self.pause(self.chance.choice([0.3, 2.5, 12.0]))
        node.freeze()
        self.cluster.advance(self.pauses[-1][1])
        node.thaw()

    def pause(self, span_s: float) -> None:
        """Note that a clock is late by so much from now on."""
        self.pauses.append((self.clock(), span_s))

    def set_wall(self) -> None:
        """The wall clock of one machine is wrong from now on, or right again; its node runs and notices."""
        clock = self.chance.choice(self.cluster.nodes).machine_clock
        clock.step_ms = self.chance.choice(self.steps_ms)
        self.cluster.advance(1.5)

    def restart_one(self) -> None:
        """With several nodes the first one's wall clock may be wrong then, and in another way after a boot."""
        node = self.chance.choice(self.cluster.nodes)
        self.lose(node)
        if len(self.cluster.nodes) > 1 and node.number == 0:
            node.machine_clock.step_ms = self.chance.choice(self.steps_ms)
        self.start_again([node])

    def restart_all(self) -> None:
        for node in self.living:
            self.lose(node)
        self.start_again(self.cluster.nodes)

    def start_again(self, nodes: list[HandNode]) -> None:
        reboots = self.chance.random() < 0.5
        self.cluster.advance(self.chance.choice([0.1, 5.0]))
        self.pause(RESTART_S)
        for node in nodes:
            if reboots:
                node.machine_clock.reboot()
            elif node.number == 0 and self.chance.random() < 0.5:  # set while the node is down
                node.machine_clock.step_ms = self.chance.choice(self.steps_ms)
            self.cluster.bring_up(node)
        if self.chance.random() < 0.8:
            self.wait_for_leader()

    def lose(self, node: HandNode) -> None:
        self.rest()
        node.kill()
        for asked in self.asked:
            if asked.node is node:
                asked.lose()

    def end(self) -> None:
        """Nothing happens any more; all that is left is delivered and acknowledged."""
        self.cluster.heal()
        for _ in range(DRAINS_MAX):
            self.wait_for_leader()
            delivered = len(self.held)
            self.fetch()
            self.rest()
            if len(self.held) > delivered:
                self.settle_one("ACK", self.held[-1])
                self.rest()
            elif any(node.queues.processes.by_name[self.queue].ledger.columns.living for node in self.living):
                self.cluster.advance(5.0)
            else:
                return
        raise AssertionError("messages are left that nobody gets")


class RightLife(Life):
    """The same where all wall clocks are right: then no delay is shorter at all."""

    steps_ms: ClassVar[list[int]] = [0]
    expires_s: ClassVar[int] = TIMEOUT_S + 1  # about when the first lease ends, and somebody gets it if he may
    lean: ClassVar[float] = 0.0


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", seeds(2, of=24))
def test_leases_delays_and_expiries_end_no_earlier_whatever_the_clocks_say(nodes: int, seed: int) -> None:
    judge(Life, nodes, seed)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", seeds(1, of=8))
def test_expiries_are_late_by_pauses_only_where_clocks_are_right(nodes: int, seed: int) -> None:
    judge(RightLife, nodes, seed)


def judge(kind: type[Life], nodes: int, seed: int) -> None:
    """Run a history and check that nothing in it ended too early."""
    with memory_folder() as directory:
        cluster = HandCluster(directory, nodes)
        cluster.start()
        life = kind(cluster, random.Random(seed))
        life.create(lease="strict", timeout=TIMEOUT_S)
        cluster.advance(1.0)

        for _ in range(STEPS):
            life.step()
        life.end()
        cluster.close()

    report = check(life.history.events, pauses=life.pauses)
    if kind is Life:
        report.violations = [violation for violation in report.violations if violation.rule != LATE]
    assert not report.violations, report.explain()
    assert report.seen["deliveries"]
