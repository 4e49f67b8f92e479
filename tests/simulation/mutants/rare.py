"""Bugs that need a coincidence: the scripts of tests/unit/protocol/raft find each of them."""

from typing import Any

from tests.simulation.mutants.plant import Patch, rare
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.messages import (
    AppendAnswer,
    Write,
)


@rare
def answers_of_earlier_terms_count() -> list[Patch]:
    original = Core._check_term

    def check_term(self: Core, message: Any) -> bool:
        if isinstance(message, AppendAnswer) and message.term < self.term:
            return True
        return original(self, message)

    return [(Core, "_check_term", check_term)]


@rare
def members_change_before_an_entry_of_the_term() -> list[Patch]:
    return [(Leader, "may_change", property(lambda self: self.core.commit >= self.core.members.index))]


@rare
def images_replace_entries_of_the_log() -> list[Patch]:
    def has(self: Follower, offer: Any) -> bool:
        if offer.index <= self.core.commit:
            self._acknowledge(offer.index)
            return True
        return False

    return [(Follower, "_has_entries_of", has)]


@rare
def appends_are_accepted_while_an_image_is_installed() -> list[Patch]:
    original = Follower.on_append

    def on_append(self: Follower, message: Any) -> Write | None:
        kept, self._restoring = self._restoring, None
        write = original(self, message)
        self._restoring = kept
        return write

    return [(Follower, "on_append", on_append)]
