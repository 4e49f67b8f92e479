"""Histories of brokers and clusters whose disks hang: hangs that end, and hangs that end only with their node.

    pipelined commands, held disks, kills, cuts --> what clients are told, and when --> the checker, by true time

Besides the promises of the checker the test judges whether a node serves, and whether every command is answered.  Only
deliveries of the AHEAD_MS before a disk was found to hang may be forgotten, and only on a fast queue.
"""

import random
from typing import Any

import pytest

from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode
from tests.helpers.clusters.told_life import Asked, ToldLife
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import seeds
from tests.helpers.histories.checker import check
from tests.helpers.histories.history import Event
from wakeq.actors.log.leadership import HAND_OVER_AGAIN_MS, HANG_ELECTIONS
from wakeq.actors.log.raft_log import UNKNOWN_AFTER_S

EPISODES = 5  # of a life
STEPS_WELL, STEPS_BROKEN = 7, (1, 4, 10)
TIMEOUT_S = 5
EXPIRES_S = 12
LAZY_S = 0.021  # by so much the record of a delivery on a fast queue may be later, in the moments of the history
AHEAD_S = 0.1  # what guarantees.md says: a test that took AHEAD_MS from the code could not see it grow
SLICE_S = 0.25  # of the time that passes: after each it is seen who serves and who waits
WITHOUT_SERVICE_S = 2 * HANG_ELECTIONS * ELECTION_S + 2 * SLICE_S  # an election takes up to two timeouts, as the wait
ANSWER_S = 1.0  # within which a command is answered where nothing is wrong
DRAINS_MAX = 300
Asking = tuple[Json, str, Json]  # a command, the task that it is about, and what the history has to know of it
FETCHES: list[Asking] = [({"cmd": "FET"}, "", {})] * 2


class Life(ToldLife):
    """A broker or a cluster, and what happens to it."""

    def __init__(self, cluster: HandCluster, chance: random.Random, *, strict: bool) -> None:
        super().__init__(cluster, chance)
        self.policies: Json = {"timeout_s": TIMEOUT_S, "strict": strict}  # type: ignore[misc]
        self.hung_s: dict[HandNode, float] = {}  # by node that hangs: since when its disk has kept something waiting
        self.deposed_s: dict[HandNode, float] = {}  # by living node that does not lead: since when
        self.trouble_s = 0.0  # when something was wrong last
        self.unserved_s = 0.0  # for so long nobody has served, though a majority was well
        self.breaches: list[str] = []
        self.seen = {"successors": 0, "kills": 0, "ends": 0}

    @property
    def now_s(self) -> float:
        return self.cluster.time.monotonic_s()

    @property
    def is_whole(self) -> bool:
        return len(self.living) == len(self.cluster.nodes) and not self.cluster.cuts

    @property
    def hanging(self) -> list[HandNode]:
        return [node for node in self.living if node.log_disk.held]

    def live(self) -> None:
        """Something breaks, again and again; each time it hangs or is cut off until it is mended, or is killed."""
        for _ in range(EPISODES):
            self.work(STEPS_WELL)
            breaks = [self.hang_leader] * 4 + [self.hang_one, self.hang_two]
            self.chance.choice(breaks + [self.isolate] * (2 if len(self.cluster.nodes) > 1 else 0))()
            self.work(self.chance.choice(STEPS_BROKEN))
            while self.hanging:
                self.chance.choice([self.end_hang, self.kill_hanging])()
                self.wait_for_all()
                self.work(STEPS_WELL)
            self.bring_up()
            self.heal()
            self.wait_for_all()
            self.advance(HAND_OVER_AGAIN_MS / 1000)

    def work(self, steps: int) -> None:
        weights = {self.publish_one: 5, self.fetch: 4, self.wait_for_one: 1, self.ack: 2, self.nack: 0.7, self.touch: 2}
        weights |= {self.pipeline: 3, self.rest: 2, self.pass_time: 5, self.forget: 0.5, self.hand_over: 0.2}
        for _ in range(steps):
            self.draw(weights)

    # --- what clients do -------------------------------------------------------------------------------------------

    def publish_one(self) -> None:
        command, task, facts = self.any_message()
        self.ask(command, task, **facts)

    def any_message(self) -> Asking:
        name = f"t{self.tasks + 1}"
        match self.chance.choice(["plain", "plain", "delay", "expires"]):
            case "delay":
                delay_s = self.chance.choice([1, 6])
                return self.new_message(id=name, delay=delay_s, about={"delay_s": delay_s})
            case "expires":
                return self.new_message(id=name, expires=EXPIRES_S, about={"expires_s": EXPIRES_S})
        return self.new_message(id=name)

    def wait_for_one(self) -> None:
        self.ask({"cmd": "FET", "wait": self.chance.choice([2, 20])})

    def wait_for_all(self) -> None:
        """From now on a message is delivered once it may be, so that a delivery too early shows."""
        if (leader := self.cluster.leader()) is not None:
            self.ask_in_turn(leader, [({"cmd": "FET", "wait": 20, "cmd_id": place}, "", {}) for place in range(3)])

    def ack(self) -> None:
        self.end_one("ACK")

    def nack(self) -> None:
        self.end_one("NACK")

    def touch(self) -> None:
        self.end_one("TOUCH")

    def end_one(self, cmd: str) -> None:
        if self.held:
            command, task, facts = self.about_held(cmd)
            self.ask(command, task, **facts)

    def about_newest(self, cmd: str) -> list[Asking]:
        return [self.about(cmd, self.held[-1])] if self.held else []

    def about_held(self, cmd: str) -> Asking:
        return self.about(cmd, self.chance.choice(self.held[-4:]))

    def about(self, cmd: str, held: tuple[str, str, Any]) -> Asking:
        task, uid, lease = held
        return {"cmd": cmd, "uid": uid, "lease": lease}, task, {"uid": uid, "lease": lease}

    def pipeline(self, node: HandNode | None = None) -> None:
        """One read of a connection brings what changes the queue, and fetches behind it."""
        if self.living:
            first = self.about_held("ACK") if self.held and self.chance.random() < 0.6 else self.any_message()
            node = node or self.chance.choice(self.leading or self.living)
            self.ask_in_turn(node, [first, *FETCHES[: self.chance.choice([1, 2])]])

    def forget(self) -> None:
        """Bodies that are on disk leave memory, so that fetches wait for reads."""
        for node in self.living:
            process = node.queues.processes.by_name.get(self.queue)
            if process is not None and not (process.bodies._fresh.living or process.bodies._flushing.living):
                process.bodies.flushed(lambda count: [], 0)

    # --- what happens to nodes ---------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        self.advance(self.chance.choice([0.03, 0.06, 0.15, 0.5, 1.5, 3.0, 5.0]))

    def hang_leader(self) -> None:
        """The leader's disk answers nothing any more, while somebody is at work."""
        for node in self.leading:
            self.pipeline(node)
            self.rest()
            self.advance(self.chance.choice([0.03, 0.5, 1.5]))
            self.hang(node)
            if self.chance.random() < 0.8:
                self.work_while_it_hangs(node)

    def work_while_it_hangs(self, node: HandNode) -> None:
        self.pipeline(node)
        for _ in range(self.chance.choice([1, 4])):
            self.rest()
            self.advance(self.chance.choice([0.03, 0.06, 0.2]))
            self.ask_in_turn(node, FETCHES[:1])
            if self.held:
                self.ask_in_turn(node, [self.about_held("TOUCH")])
        self.rest()

    def hang_one(self) -> None:
        self.hang(self.chance.choice(self.living))

    def hang_two(self) -> None:
        """Then of three no majority is well, until one is killed or mended."""
        followers = [node for node in self.living if node not in self.leading]
        for node in [*self.leading, *followers][:2]:
            self.hang(node)

    def hang(self, node: HandNode) -> None:
        """Sometimes only the log is slow, sometimes all that is on the disk."""
        self.rest()
        node.log_disk.kept_waiting = lambda: self.note_hang(node)
        for disk in node.disks if self.chance.random() < 0.5 else [node.log_disk]:
            disk.held = True

    def note_hang(self, node: HandNode) -> None:
        """The first write waits: the node will notice, and does not know what became of the last deliveries."""
        if node not in self.hung_s:
            self.hung_s[node] = self.now_s
            self.may_forget()

    def may_forget(self) -> None:
        """Deliveries since the record that waits now, and until the node notices that it waits, may be forgotten."""
        self.history.record(Event("ok", "crash", self.history.new_id(), self.clock() + AHEAD_S))

    def end_hang(self) -> None:
        self.release(self.chance.choice(self.hanging))

    def release(self, node: HandNode) -> None:
        self.look()
        self.seen["ends"] += 1
        self.stop_hang(node)
        for disk in node.disks:
            disk.held = False
            disk.complete()
        self.rest()

    def stop_hang(self, node: HandNode) -> None:
        self.hung_s.pop(node, None)
        self.trouble_s = self.now_s

    def kill_hanging(self) -> None:
        """A hang that does not end: somebody kills the node, and perhaps starts it again on another disk."""
        node = self.chance.choice(self.hanging)
        self.look()
        self.seen["kills"] += 1
        self.stop_hang(node)
        node.kill()
        self.deposed_s.pop(node, None)
        for asked in self.asked:
            if asked.node is node:
                asked.lose()
        if self.chance.random() < 0.5:
            self.bring_up()

    def bring_up(self) -> None:
        for node in self.cluster.nodes:
            if not node.is_up:
                self.cluster.bring_up(node)
                self.trouble_s = self.now_s

    def isolate(self) -> None:
        """The leader is cut off while clients use it; what they wait for, others get, and are done with."""
        for node in self.leading:
            for _ in range(2):
                self.publish_one()
            self.fetch()
            self.rest()
            self.cluster.isolate(node)
            self.ask_in_turn(node, [*self.about_newest("ACK"), *FETCHES])
            self.may_forget()
            self.advance(HANG_ELECTIONS * ELECTION_S + SLICE_S)
            for new in self.leading:
                while self.fetch_and_ack(new):
                    pass
            self.advance(ELECTION_S)  # by now the one that is cut off has given up

    def fetch_and_ack(self, node: HandNode) -> bool:
        """Return whether there was something."""
        delivered = len(self.held)
        self.ask_in_turn(node, FETCHES[:1])
        self.rest()
        if len(self.held) == delivered:
            return False
        self.ask_in_turn(node, self.about_newest("ACK"))
        self.rest()
        return True

    def heal(self) -> None:
        if self.cluster.cuts:
            self.cluster.heal()
            self.trouble_s = self.now_s

    # --- who serves, and who waits -----------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        while seconds > 1e-9:
            passed_s = min(SLICE_S, seconds)
            seconds -= passed_s
            self.cluster.advance(passed_s)
            self.look(passed_s)

    def look(self, passed_s: float = 0.0) -> None:
        """Note whether a client waits too long or no node serves."""
        self.rest()
        now_s, serving = self.now_s, [node for node in self.living if node.can_serve]
        for node in self.living:
            if node.raft_log.core.leads:
                self.deposed_s.pop(node, None)
            elif node not in self.deposed_s:
                self.deposed_s[node] = now_s
                self.seen["successors"] += node in self.hung_s
        well = [node for node in self.living if node not in self.hanging]
        if self.hanging or not self.is_whole or not serving:
            self.trouble_s = now_s
        has_majority = len(well) * 2 > len(self.cluster.nodes) and not self.cluster.cuts
        self.unserved_s = self.unserved_s + passed_s if has_majority and not serving else 0.0
        if self.unserved_s > WITHOUT_SERVICE_S:
            self.breach(f"nobody has served for {self.unserved_s} s beside nodes that are well: {well}")
            self.unserved_s = 0.0
        for asked in self.asked:
            if asked.is_open and asked.node.is_up:
                self.judge_waiting(asked, now_s)
        self.asked = [asked for asked in self.asked if asked.is_open]

    def judge_waiting(self, asked: Asked, now_s: float) -> None:
        node, hung_s = asked.node, self.hung_s.get(asked.node)
        cmd, at = asked.command["cmd"], f"at node {asked.node.number}, {now_s - asked.asked_s:.2f} s"
        if node in self.deposed_s:
            knows = hung_s is not None and self.deposed_s[node] - hung_s >= (HANG_ELECTIONS - 1) * ELECTION_S + SLICE_S
            patience_s = 0.0 if knows else UNKNOWN_AFTER_S + SLICE_S
            if now_s - max(asked.asked_s, self.deposed_s[node]) > patience_s + SLICE_S:
                self.breach(f"{cmd} waits {at}, where nobody leads any more")
        elif now_s - max(asked.asked_s, self.trouble_s) > ANSWER_S + asked.command.get("wait", 0):
            self.breach(f"{cmd} waits {at}, and nothing is wrong")

    def breach(self, text: str) -> None:
        self.breaches.append(f"{self.now_s:.2f}: {text}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """One disk of several hangs until the end; nevertheless, all that is left is delivered and acknowledged."""
        if len(self.cluster.nodes) > 1:
            self.hang_one()
        self.work(max(STEPS_BROKEN))
        self.advance(WITHOUT_SERVICE_S)
        for _ in range(DRAINS_MAX):
            self.wait_for_leader()
            leader = self.cluster.leader()
            assert leader is not None, "waited for"
            if self.fetch_and_ack(leader):
                continue
            if leader.queues.processes.by_name[self.queue].ledger.columns.living:
                self.advance(1.0)
            else:
                break
        else:
            self.breach("messages are left that nobody gets")
        for node in self.hanging:
            self.release(node)
        self.advance(25.0)
        if left := [asked.command["cmd"] for asked in self.asked if asked.is_open]:
            self.breach(f"never answered: {left}")


@pytest.mark.parametrize("strict", [False, True], ids=["fast", "strict"])
@pytest.mark.parametrize("seed", seeds(1, of=6))
@pytest.mark.parametrize("nodes", [1, 3])
def test_promises_hold_and_commands_are_answered_where_disks_hang(nodes: int, seed: int, strict: bool) -> None:
    with memory_folder() as directory:
        cluster = HandCluster(directory, nodes)
        cluster.start()
        life = Life(cluster, random.Random(seed), strict=strict)
        life.create(lease="strict" if strict else "fast", timeout=TIMEOUT_S)
        life.advance(1.0)

        life.live()
        life.end()
        ledgers = [node.queues.processes.by_name[life.queue].ledger for node in cluster.nodes]
        states = [(sorted(ledger.columns.living_numbers()), ledger.totals) for ledger in ledgers]
        cluster.close()

    report = check(life.history.events, crash_window_s=AHEAD_S + LAZY_S)
    assert not report.violations, report.explain()
    assert not life.breaches, "\n".join(life.breaches)
    assert states[1:] == states[:1] * (nodes - 1)
    assert report.seen["deliveries"]
    assert life.seen["ends"] + life.seen["kills"] > 1, "disks hung"
