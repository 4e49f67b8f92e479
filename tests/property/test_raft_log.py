"""SegmentedLog against a list: any run of writes, seals, cuts, truncations and power cuts."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import HEADER_BYTES, RECORD_BYTES, Identity
from wakeq.storage.log.segmented_log import SegmentedLog

IDENTITY = Identity(b"0123456789abcdef", 1)
PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=12)


class LogMachine(RuleBasedStateMachine):
    """The model is a dict index -> (term, payload) of what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = contextlib.ExitStack()
        self.path = self.exits.enter_context(memory_folder())
        self.model: dict[int, tuple[int, bytes]] = {}
        self.term = 1
        self.committed = 0
        self.log = self.opened()

    def opened(self) -> SegmentedLog:
        return SegmentedLog.open(self.path, IDENTITY, committed_at_least=self.committed)

    @initialize(first=st.sampled_from([1, 255, 1 << 24, (1 << 40) - 2]))
    def begin(self, first: int) -> None:
        self.log.reset(first, 0)
        self.committed = first - 1

    @rule(payloads=PAYLOADS, new_term=st.booleans())
    def write(self, payloads: list[bytes], new_term: bool) -> None:
        self.term += new_term
        first = self.log.last_index + 1
        self.log.append_many(first, self.term, payloads)
        batch = self.log.take_buffer()
        assert batch is not None
        self.log.write(batch)
        self.model |= {first + n: (self.term, payload) for n, payload in enumerate(payloads)}

    @rule()
    def commit_and_seal(self) -> None:
        self.committed = self.log.last_index
        self.log.roll(self.committed)

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        self.log.cut_below(data.draw(st.integers(self.log.first_index, self.committed + 1)))
        self.model = {index: entry for index, entry in self.model.items() if index >= self.log.first_index}

    @precondition(lambda self: self.log.last_index > self.committed)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed + 1, self.log.last_index))
        self.log.truncate_from(index)
        self.model = {each: entry for each, entry in self.model.items() if each < index}
        self.term += 1

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = self.opened()

    @rule(payloads=PAYLOADS, kept=st.sets(st.integers(0, 100)), grown=st.booleans())
    def power_cut_in_a_write(self, payloads: list[bytes], kept: set[int], grown: bool) -> None:
        """Of the write that was under way, any pieces of 16 bytes are on disk, or none."""
        file = self.path / "raft.log"
        before = file.read_bytes()
        first = self.log.last_index + 1
        self.log.append_many(first, self.term, payloads)
        batch = self.log.take_buffer()
        assert batch is not None
        at = HEADER_BYTES + sum(
            RECORD_BYTES + len(self.model[index][1]) for index in range(self.log._active.header.first_index, first)
        )
        content = bytearray(before.ljust(at + len(batch.data) if grown else at, b"\0"))
        for piece in kept:
            start, data = at + piece * 16, batch.data[piece * 16 : piece * 16 + 16]
            if data and (grown or start + len(data) <= len(content)):
                content[start : start + len(data)] = data
        self.log.close()
        file.write_bytes(content)
        self.log = self.opened()
        survived = self.log.last_index - first + 1
        self.model |= {first + n: (self.term, payload) for n, payload in enumerate(payloads[:survived])}

    @invariant()
    def log_and_model_agree(self) -> None:
        entries = {index: (term, payload) for index, term, payload in self.log.entries(self.log.first_index)}
        assert entries == self.model
        assert self.log.last_index == max(self.model, default=self.log.first_index - 1)
        for index, (term, _payload) in self.model.items():
            assert self.log.term_at(index) == term

    def teardown(self) -> None:
        self.log.close()
        self.exits.close()


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(batches=st.lists(PAYLOADS, min_size=2, max_size=5), data=st.data())
def test_flipped_bit_never_changes_the_entries_that_are_read(batches: list[list[bytes]], data: st.DataObject) -> None:
    """Either the log is refused, or it returns the entries before the flip, cut in the last write."""
    with memory_folder() as folder:
        log = SegmentedLog.open(folder, IDENTITY, committed_at_least=0)
        for payloads in batches:
            log.append_many(log.last_index + 1, 1, payloads)
            batch = log.take_buffer()
            assert batch is not None
            log.write(batch)
        synced = log.last_index - len(batches[-1])
        end = log.size_bytes
        log.close()
        file = folder / "raft.log"
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(HEADER_BYTES, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        written = [payload for payloads in batches for payload in payloads]

        try:
            again = SegmentedLog.open(folder, IDENTITY, committed_at_least=0)
        except DamagedFile:
            assert file.read_bytes() == content
            return

        read = [payload for _index, _term, payload in again.entries(1)]
        again.close()
        assert read == written[: len(read)]
        assert synced <= len(read) < len(written)
