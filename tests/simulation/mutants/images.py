"""Bugs of images: images of the state, and logs that are cut behind them."""

from typing import Any

import msgspec

from tests.simulation.disk import Disk, Image
from tests.simulation.machine import Machine
from tests.simulation.mutants.plant import Patch, mutant
from tests.simulation.transfer import Receiver
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.messages import (
    Restore,
)


@mutant
def the_log_is_cut_behind_state_that_is_only_in_memory() -> list[Patch]:
    def cut(self: Machine) -> None:
        floor = min(self.core.floor(self.applied), self.disk.last_index)
        if floor - self.base > self.world.knobs.keep_entries:
            self.core.cut(floor)
            self.disk.cut(floor)
            self.base_chain = self.entries[floor - self.base - 1][2]
            del self.entries[: floor - self.base]
            self.base = floor

    return [(Machine, "_cut", cut), (Disk, "flush", lambda self, image: None)]


@mutant
def the_log_is_reset_before_the_state_is_installed() -> list[Patch]:
    original = Disk._tear

    def tear(self: Disk, job: Any, random: Any) -> None:
        if job.do == self.restore:
            self.reset(job.what)
        else:
            original(self, job, random)

    def open_(self: Disk) -> None:
        self.incarnation += 1
        if self.chain_at(self.store.index) is None and self.store.index > self.base:
            self.reset(self.store)

    return [(Disk, "_tear", tear), (Disk, "open", open_)]


@mutant
def old_images_replace_newer_state() -> list[Patch]:
    return [(Follower, "_has_entries_of", lambda self, offer: False)]


@mutant
def pieces_of_another_stream_are_taken() -> list[Patch]:
    def belongs(self: Receiver, piece: Any) -> bool:
        return self._fetch is not None and piece.offset == len(self._pieces)

    return [(Receiver, "belongs", belongs)]


@mutant
def images_do_not_carry_the_members() -> list[Patch]:
    original = Machine.restore

    def restore(self: Machine, restore: Restore, image: Image) -> None:
        original(self, msgspec.structs.replace(restore, config=self.world.config), image)

    return [(Machine, "restore", restore)]
