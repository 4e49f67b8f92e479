"""Script: a scene of a few consensus cores, written down as commands and all that comes of them.

    > lead 1                      a command; what follows, up to the next one, is its trace
    1 -> 2 Heartbeat ...

Disks obey at once unless they are held; messages wait until they are delivered; time passes when it is told to.
`python -m tests.helpers.raft.script FILE ...` writes the traces anew, to be read before they are kept.
"""

import sys
from pathlib import Path
from typing import Any

from tests.helpers.raft.actor import ENTRY_BYTES, Actor
from tests.helpers.raft.words import describe_config, vote_of
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, Member
from wakeq.protocol.raft.messages import Fetch, HardState, Write


class Scene:
    """The commands, as methods named `do_...`; their arguments are words."""

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.flying: list[Any] = []
        self.kept: dict[str, list[Any]] = {}
        self.lines: list[str] = []
        self.is_quiet = False

    def say(self, line: str) -> None:
        if not self.is_quiet:
            self.lines.append(line)

    def play(self, command: str) -> list[str]:
        """Do one command; return its trace."""
        self.lines = []
        name, *words = command.split()
        try:
            getattr(self, f"do_{name}")(*words)
        except (WakeqError, AssertionError) as error:
            self.say(f"{type(error).__name__}: {error}")
        return self.lines

    def _actor(self, word: str) -> Actor:
        return self.actors[int(word)]

    # --- setting up -------------------------------------------------------------------------------------------------

    def do_cluster(self, *words: str) -> None:
        """cluster 1 2 3 [learner=4] [new]: founded, unless it is new."""
        is_new = "new" in words
        members = [Member(int(word), 0 if is_new else int(word) * 10) for word in words if word.isdigit()]
        members += [Member(int(w[8:]), int(w[8:]) * 10, voter=False) for w in words if w.startswith("learner=")]
        config = Config(tuple(members), founded=not is_new)
        self.actors = {member.node_id: Actor(self, member.node_id, config) for member in members}
        for actor in self.actors.values():
            actor.start()

    def do_node(self, node: str, *words: str) -> None:
        """node 4 [log=1,1,2] [term=2] [vote=1] [committed=1] [cut=1] [disk=41]: (re)start it with this on its disk."""
        given = dict(word.split("=") for word in words)
        if int(node) not in self.actors:
            self.actors[int(node)] = Actor(self, int(node), next(iter(self.actors.values())).config)
        actor = self._actor(node)
        terms = [int(term) for term in given.get("log", "").split(",") if term]
        cut = int(given.get("cut", 0))
        actor.previous = (cut, terms[cut - 1] if cut else 0)
        actor.disk = terms[cut:]
        actor.disk_id = int(given.get("disk", actor.disk_id))
        actor.state = HardState(int(given.get("term", max(terms, default=0))), vote_of(given.get("vote")))
        actor.committed = int(given.get("committed", cut))
        actor.start()

    def do_lead(self, node: str) -> None:
        """Let it be elected by everybody, everything being well, without a trace."""
        self.is_quiet = True
        actor = self._actor(node)
        while not actor.core.leads or self.flying:
            if not self.flying:
                for other in self.actors.values():
                    other.now_ms += 1000 if other is not actor else 2000
                actor.core.tick(actor.now_ms)
                actor.settle()
            self.do_settle()
        self.is_quiet = False
        self.do_show(node)

    # --- time, messages, disks --------------------------------------------------------------------------------------

    def do_tick(self, node: str, span_ms: str = "0") -> None:
        for actor in self.actors.values() if node == "all" else [self._actor(node)]:
            actor.now_ms += int(span_ms)
            actor.core.tick(actor.now_ms)
            actor.settle()

    def do_wait(self, node: str, span_ms: str) -> None:
        """Time passes and nobody looks at the clock."""
        for actor in self.actors.values() if node == "all" else [self._actor(node)]:
            actor.now_ms += int(span_ms)

    def _taken(self, path: str) -> list[Any]:
        """Take the messages of a path (1>2, 1>, >2) or of a kind out of the air."""
        sender, arrow, receiver = path.partition(">")

        def fits(message: Any) -> bool:
            if not arrow:
                return path in ("all", type(message).__name__)
            return sender in ("", str(message.sender)) and receiver in ("", str(message.receiver))

        taken = [message for message in self.flying if fits(message)]
        self.flying = [message for message in self.flying if not fits(message)]
        return taken

    def do_deliver(self, path: str = "all") -> None:
        """Deliver what is in the air; what comes of it stays there."""
        self._hand_over(self._taken(path))

    def _hand_over(self, messages: list[Any]) -> None:
        for message in messages:
            actor = self.actors.get(message.receiver)
            if actor is None:
                continue
            found = actor.core.step(message, actor.now_ms)
            if isinstance(found, Write):
                actor.write(found, message)
            elif isinstance(found, Fetch):
                self.say(f"{actor.node} fetches stream {found.stream} at {found.index}")
            actor.settle()

    def do_settle(self) -> None:
        """Deliver until nothing is in the air."""
        while self.flying:
            self.do_deliver()

    def do_drop(self, path: str = "all") -> None:
        self._taken(path)

    def do_keep(self, name: str, path: str) -> None:
        """Take a copy, to deliver it again."""
        before = list(self.flying)
        self.kept[name] = self._taken(path)
        self.flying = before

    def do_again(self, name: str) -> None:
        self._hand_over(self.kept[name])

    def do_hold(self, node: str) -> None:
        """From now on its disk obeys only when told to."""
        self._actor(node).is_held = True

    def do_saved(self, node: str) -> None:
        self._actor(node).saved()

    def do_synced(self, node: str) -> None:
        self._actor(node).synced()

    def do_late(self, node: str) -> None:
        """The second report comes before the first one."""
        actor = self._actor(node)
        for jobs in (actor.saves, actor.writes):
            jobs[:2] = reversed(jobs[:2])  # type: ignore[call-overload]

    def do_release(self, node: str) -> None:
        actor = self._actor(node)
        actor.is_held = False
        actor.release()

    def do_restart(self, node: str) -> None:
        """Lose what is not on disk, and begin a new life."""
        self._actor(node).start()

    def do_wipe(self, node: str) -> None:
        """Begin with an empty disk, and the settings of a new cluster."""
        actor = self._actor(node)
        actor.disk_id += 1
        actor.incarnation = 0
        actor.disk, actor.previous, actor.state, actor.committed = [], (0, 0), HardState(0, None), 0
        actor.configs = []
        voters = tuple(Member(member.node_id) for member in actor.config.members)
        actor.config = Config(voters)
        actor.start()

    def do_forget(self, node: str, index: str) -> None:
        """The disk loses entries that were on it, and the node restarts."""
        actor = self._actor(node)
        del actor.disk[int(index) - actor.previous[0] - 1 :]
        actor.committed = min(actor.committed, int(index) - 1)
        actor.start()

    # --- asking for things ------------------------------------------------------------------------------------------

    def do_propose(self, node: str, count: str = "1") -> None:
        actor = self._actor(node)
        if not actor.core.accepts:
            self.say(f"{node} does not accept")
            return
        first = actor.core.propose(int(count), int(count) * ENTRY_BYTES)
        for index in range(first, first + int(count)):
            del actor.terms[index - actor.previous[0] - 1 :]
            actor.terms.append(actor.core.term)
        actor.writes.append((first + int(count) - 1, actor.core.era))
        actor.settle()

    def do_read(self, node: str) -> None:
        actor = self._actor(node)
        self.say(f"barrier {actor.core.leader().read_barrier()}")
        actor.settle()

    def do_serves(self, node: str) -> None:
        actor = self._actor(node)
        self.say("yes" if actor.core.may_serve(actor.now_ms) else "no")

    def do_transfer(self, node: str, heir: str) -> None:
        actor = self._actor(node)
        actor.core.leader().transfer(int(heir))
        actor.settle()

    def do_change(self, node: str, *words: str) -> None:
        """change 1 1 2 3 learner=4: these members, with the disks that are known."""
        actor = self._actor(node)
        voters = [(int(word), True) for word in words if word.isdigit()]
        learners = [(int(word[8:]), False) for word in words if word.startswith("learner=")]
        old = actor.core.members.config
        members = []
        for number, votes in sorted(voters + learners):
            known = old.member(number)
            members.append(Member(number, known.disk_id if known else 0, votes))
        actor.core.leader().change_members(Config(tuple(members)))
        actor.settle()

    def do_offer(self, node: str, peer: str, index: str, stream: str) -> None:
        actor = self._actor(node)
        actor.core.leader().offer_image(int(peer), int(index), int(stream))
        actor.settle()

    def do_failed(self, node: str, peer: str, stream: str) -> None:
        actor = self._actor(node)
        actor.core.leader().image_failed(int(peer), int(stream))
        actor.settle()

    def do_lost(self, node: str, peer: str) -> None:
        actor = self._actor(node)
        actor.core.leader().lost(int(peer))
        actor.settle()

    def do_fetched(self, node: str, stream: str) -> None:
        actor = self._actor(node)
        actor.restore = actor.core.fetched(int(stream)) or actor.restore
        self.say(f"{node} restores {actor.restore.index}" if actor.restore else f"{node} does not want it any more")
        actor.settle()

    def do_broken(self, node: str, stream: str) -> None:
        actor = self._actor(node)
        actor.core.fetch_failed(int(stream))
        actor.settle()

    def do_restored(self, node: str) -> None:
        actor = self._actor(node)
        assert actor.restore is not None, "nothing to restore"
        actor.previous, actor.terms, actor.disk = (actor.restore.index, actor.restore.term), [], []
        actor.committed = actor.restore.index
        actor.core.restored()
        actor.settle()

    def do_cut(self, node: str, index: str) -> None:
        """Cut the log as far as that is allowed."""
        actor = self._actor(node)
        floor = actor.core.floor(int(index))
        term = actor.core.log.term_at(floor) or 0
        actor.core.cut(floor)
        del actor.terms[: floor - actor.previous[0]]
        del actor.disk[: floor - actor.previous[0]]
        actor.previous = (floor, term)
        self.say(f"{node} cuts at {floor}")

    def do_show(self, node: str) -> None:
        core = self._actor(node).core
        runs = ", ".join(f"{first}: term {term}" for first, term in core.log.runs_between(*_bounds(core.log)))
        self.say(
            f"{node} is {type(core.role).__name__.lower()} in term {core.term}, leader {core.leader_id}, "
            f"log {core.log.first_index}..{core.log.last_index} ({runs or 'empty'}), on disk {core.stable_index}, "
            f"committed {core.commit}; {describe_config(core.members.config)}"
        )

    def do_behind(self, node: str) -> None:
        self.say(f"{self._actor(node).core.leader().behind_bytes()} bytes")


def _bounds(log: LogView) -> tuple[int, int]:
    return log.first_index, log.last_index


def replay(text: str) -> str:
    """Return a script with the traces that its commands give now; comments and empty lines stay."""
    scene, lines = Scene(), []
    for line in text.splitlines():
        if line.startswith(">"):
            lines += [line, *scene.play(line[1:].strip())]
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(replay(path.read_text(encoding="utf-8")), encoding="utf-8")
