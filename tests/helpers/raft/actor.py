"""Actor: one consensus core with its disk, which obeys at once unless it is held.

    what the core wants --> Actor --> the disk, messages into the air, a line for each of it

It decides nothing: the core does, and the scene of which it is a part.
"""

from typing import Any, Protocol

from tests.helpers.raft.words import describe, describe_config
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import Append, HardState, Ready, Restore, Write
from wakeq.protocol.raft.progress import Window
from wakeq.protocol.raft.settings import Me, Settings

ENTRY_BYTES = 100
SETTINGS = Settings(1000, 100, Window(10 * ENTRY_BYTES, 20 * ENTRY_BYTES, 4))


class Scene(Protocol):
    """Where it plays."""

    flying: list[Any]

    def say(self, line: str, /) -> None: ...


class Actor:
    """One core with its disk.  `terms` is its log in memory, `disk` what of it is written."""

    core: Core

    def __init__(self, scene: Scene, node: int, config: Config) -> None:
        self.scene = scene
        self.node = node
        self.config = config
        self.disk_id, self.incarnation = node * 10, 0
        self.now_ms = 0
        self.previous = (0, 0)
        self.terms: list[int] = []
        self.disk: list[int] = []
        self.state = HardState(0, None)
        self.committed = 0
        self.configs: list[tuple[int, Config]] = []
        self.is_held = False
        self.saves: list[HardState] = []
        self.writes: list[tuple[int, int]] = []  # (last index, era at the hand-over)
        self.restore: Restore | None = None
        self.seen: tuple[Any, ...] = ()

    def start(self) -> None:
        self.incarnation += 1
        self.terms = list(self.disk)
        self.saves, self.writes, self.restore = [], [], None
        index, term = self.previous
        runs = []
        for place, entry in enumerate(self.terms, index + 1):
            if not runs or runs[-1][1] != entry:
                runs.append((place, entry))
        last = index + len(self.terms)
        configs = [(0, self.config)] + [(at, config) for at, config in self.configs if at <= last]
        self.core = Core(
            Me(self.node, self.disk_id, self.incarnation),
            self.state,
            LogView(index, term, runs, last, len(self.terms) * ENTRY_BYTES),
            configs,
            committed=self.committed,
            settings=SETTINGS,
            chance=lambda: 0.5,
            now_ms=self.now_ms,
        )
        self.seen = self._standing()

    def _standing(self) -> tuple[Any, ...]:
        core = self.core
        return (type(core.role).__name__.lower(), core.term, core.disowned)

    # --- doing what the core wants ----------------------------------------------------------------------------------

    def settle(self) -> None:
        while (ready := self.core.ready()) is not None:
            self._obey(ready)
        if self._standing() != self.seen:
            self.seen = self._standing()
            role, term, disowned = self.seen
            self.scene.say(f"{self.node} is {role} in term {term}{', disowned' if disowned else ''}")
        if not self.is_held:
            self.release()

    def _obey(self, ready: Ready) -> None:
        say = self.scene.say
        if ready.save is not None:
            say(f"{self.node} saves term {ready.save.term} vote {ready.save.vote}")
            self.saves.append(ready.save)
        for own in ready.entries:
            what = "a no-op" if own.config is None else describe_config(own.config)
            say(f"{self.node} puts {what} at {own.index}")
            self.append(own.index, own.term)
            if own.config is not None:
                self.configs.append((own.index, own.config))
        for message in ready.messages:
            say(describe(message))
            self.scene.flying.append(message)
        if ready.commit != self.committed:
            say(f"{self.node} commits up to {ready.commit}")
            self.committed = ready.commit
            self.core.applied(ready.commit)
        for peer in ready.images:
            say(f"{self.node} wants an image for {peer}")
        for number, index in ready.reads:
            say(f"{self.node} passes barrier {number} at {index}")

    def append(self, index: int, term: int) -> None:
        del self.terms[index - self.previous[0] - 1 :]
        self.terms.append(term)
        self.writes.append((index, self.core.era))

    def write(self, write: Write, message: Append) -> None:
        if write.truncate_from:
            self.scene.say(f"{self.node} truncates from {write.truncate_from}")
            del self.terms[write.truncate_from - self.previous[0] - 1 :]
            del self.disk[write.truncate_from - self.previous[0] - 1 :]
        self.scene.say(f"{self.node} writes {write.first_index}..{write.last_index}")
        for index in range(write.first_index, write.last_index + 1):
            self.terms.append(next(term for start, term in reversed(message.runs) if start <= index))
        self.configs = [(at, config) for at, config in self.configs if at < write.first_index]
        self.configs += [(at, config) for at, config in message.configs if at >= write.first_index]
        self.writes.append((write.last_index, self.core.era))

    def release(self) -> None:
        """Let the disk finish what it was given."""
        while self.saves or self.writes:
            if self.saves:
                self.saved()
            if self.writes:
                self.synced()

    def saved(self) -> None:
        assert self.saves, f"node {self.node} saves nothing"
        self.state = self.saves.pop(0)
        self.core.saved(self.state)
        self.settle()

    def synced(self) -> None:
        assert self.writes, f"node {self.node} writes nothing"
        index, era = self.writes.pop(0)
        self.disk = self.terms[: index - self.previous[0]]
        self.core.stable(index, era)
        self.settle()
