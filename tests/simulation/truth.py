"""Truth: the invariants, checked after every event at the node where it happened.

    entries, messages, commits, states and answers of a node --> nothing, or a Violation

It sees all nodes at once, which no node can.  The properties are those of Figure 3 of the paper, and the promises of
docs/internals/raft.md; each assertion names what was broken.
"""

from bisect import bisect_left
from typing import TYPE_CHECKING

from tests.simulation.entries import Entry, Payload, key_of
from wakeq.protocol.raft.messages import AnyMessage, AppendAnswer, RequestVote, VoteAnswer

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.world import World


class Violation(AssertionError):
    """An invariant is broken."""


class Truth:
    """The observer of one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.leaders: dict[int, int] = {}  # term -> node
        self.chains: dict[tuple[int, int], int] = {}  # (index, term) -> hash of the log up to there
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # the term of the leader that committed each entry
        self.states: list[int] = [0]  # behind each index
        self.acknowledged = 0  # the highest index that a client knows to be committed
        self.answered_count = 0
        self.refused: set[Payload] = set()  # operations that a client knows will never be committed
        self.unknown: set[int] = set()  # operations without an answer
        self.served_term = 0  # the latest term in which a leader could serve
        self._seen: dict[int, tuple[int, int]] = {}  # node -> (term, commit) at the last check

    def require(self, holds: bool, what: str, machine: "Machine") -> None:
        if not holds:
            core, log = machine.core, machine.core.log
            raise Violation(
                f"{what} (node {machine.node_id}, term {core.term}, {type(core.role).__name__}, log {log.first_index}.."
                f"{log.last_index}, stable {core.stable_index}, commit {core.commit}, applied {machine.applied})"
            )

    # --- after every event ------------------------------------------------------------------------------------------

    def check(self, machine: "Machine") -> None:
        core = machine.core
        term, commit = self._seen.get(machine.node_id, (0, machine.disk.store.index))
        if core.leads:
            self._check_leader(machine)
        if core.term < term:
            self.require(False, f"the term fell from {term}", machine)
        if core.commit != commit or core.term != term:
            self.require(core.commit >= commit, f"the commit index fell from {commit}", machine)
            self._seen[machine.node_id] = (core.term, core.commit)
            self._check_commit(machine, commit)
        if core.stable_index > core.log.last_index or machine.applied > core.commit:
            self.require(False, "stable <= last, applied <= commit", machine)

    def _check_leader(self, machine: "Machine") -> None:
        core = machine.core
        if core.term not in machine.terms_led:
            machine.terms_led.add(core.term)
            self.require(self.leaders.setdefault(core.term, machine.node_id) == machine.node_id, "two leaders", machine)
            self._require_all_committed(machine)
        now_ms = machine.now_ms()
        if core.may_serve(now_ms):
            self.require(machine.applied >= self.acknowledged, f"serves without {self.acknowledged}", machine)
            self.require(core.term >= self.served_term, "serves beside a later leader", machine)
            self.served_term = core.term

    def _require_all_committed(self, machine: "Machine") -> None:
        """Leader completeness: committed entries are in the log of the leader of every later term."""
        last = bisect_left(self.committed_in, machine.core.term)
        if last > machine.base:
            chain = machine.chain_at(last)
            self.require(chain == self.committed[last - 1][2], f"leads without entry {last}, committed", machine)

    def _check_commit(self, machine: "Machine", since: int) -> None:
        """State machine safety: all nodes commit the same entries, and only those that a majority has on disk."""
        core, committed = machine.core, self.committed
        for index in range(max(since, machine.base) + 1, core.commit + 1):
            entry = machine.entries[index - machine.base - 1]
            if index <= len(committed):
                self.require(entry[2] == committed[index - 1][2], f"commits another entry {index}", machine)
            else:
                # This very commit may have made it step down.
                leads = self.leaders.get(core.term) == machine.node_id
                self.require(leads, f"commits entry {index} before any leader did", machine)
                committed.append(entry)
                self.committed_in.append(core.term)
                refused = entry[1] in self.refused
                self.require(not refused, f"commits {entry[1]}, which was refused for certain", machine)
        if core.leads and core.commit == len(committed) and core.commit > since:
            self._require_majority(machine, core.commit)

    def _require_majority(self, machine: "Machine", index: int) -> None:
        voters = machine.core.members.voters
        chain = machine.chain_at(index)
        have = 0
        for voter in voters:
            disks = self.world.machines[voter].disks  # a disk that was emptied later counts too
            have += any(disk.base > index or disk.chain_at(index) == chain for disk in disks)
        self.require(have > len(voters) // 2, f"commits {index}, which {have} of {voters} have on disk", machine)

    # --- single events ----------------------------------------------------------------------------------------------

    def appended(self, machine: "Machine", index: int, entry: Entry) -> None:
        """Log matching: two logs with the same index and term are equal up to there."""
        term, _payload, chain = entry
        if self.chains.setdefault((index, term), chain) != chain:
            self.require(False, f"another log up to entry {index} of term {term}", machine)

    def leaves(self, machine: "Machine", message: AnyMessage) -> None:
        """No message leaves before the state that it rests on is on disk."""
        disk, is_pre = machine.disk, isinstance(message, RequestVote | VoteAnswer) and message.pre
        self.require(is_pre or message.term <= disk.state.term, f"speaks in term {message.term}, not on disk", machine)
        if isinstance(message, AppendAnswer):
            if message.rejected is None and message.match > disk.base:
                durable = disk.chain_at(message.match)
                self.require(durable is not None, f"acknowledges {message.match}, which is not on disk", machine)
                self.require(durable == machine.chain_at(message.match), "acknowledges what was replaced", machine)
        elif isinstance(message, VoteAnswer) and message.granted and not message.pre:
            saved = (disk.state.term, disk.state.vote) == (message.term, message.receiver)
            self.require(saved or disk.state.term > message.term, "a vote leaves before it is on disk", machine)

    def applied(self, machine: "Machine", index: int, state: int) -> None:
        """Every node has the same state behind the same index, replayed or from an image."""
        if index == len(self.states):
            self.states.append(state)
        else:
            self.require(self.states[index] == state, f"another state behind entry {index}", machine)
        self.require(machine.disk.last_index >= index, f"applies {index}, which is not on its disk", machine)

    def answered(self, machine: "Machine", index: int, asked: tuple[int, int], term: int, payload: Payload) -> None:
        """A client gets the outcome of its operation."""
        if asked == (term, key_of(payload)):
            self.acknowledged = max(self.acknowledged, index)
            self.answered_count += 1
        else:
            self.refused.add(asked[1])

    def read(self, machine: "Machine", index: int, must_see: int) -> None:
        """A barrier was passed: it sees all operations that were answered before it began."""
        self.require(index >= must_see, f"a read at {index} does not see {must_see}", machine)

    def lost(self, machine: "Machine") -> None:
        """A node crashed: its waiting clients do not learn the outcome."""
        self._seen.pop(machine.node_id, None)
        self.unknown.update(operation for _term, operation in machine.waiting.values())
