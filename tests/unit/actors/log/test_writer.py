"""LogWriter: where it syncs, in which order things happen to the files, and what it reports."""

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.disks.sync_place import sync_on_loop
from tests.helpers.disks.written_log import IDENTITY, indexes, open_log, payload
from wakeq.actors.log.writer import (
    CHECK,
    CHECKS_AN_ELECTION,
    FAST_SYNC_S,
    FLUSH,
    KEEP_ACKNOWLEDGED_MS,
    SLOW_SYNC_S,
    SLOW_SYNCS_MAX,
    STALL_PAUSE_S,
    STALL_S,
    SYNCS_REMEMBERED,
    Cut,
    Freed,
    Kept,
    LogServices,
    LogWriter,
    Roll,
    Saved,
    SyncPlace,
    Written,
)
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Batch
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import config_of
from wakeq.protocol.raft.messages import HardState
from wakeq.protocol.raft.settings import Me, Settings
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.sync_watch import SyncWatch


class Files:
    """A writer on a log of its own, whose mail is kept until `handle`."""

    def __init__(self, folder: Path, *, segment_bytes_max: int = 1 << 20) -> None:
        self.log = open_log(folder, segment_bytes_max=segment_bytes_max)
        self.metadata = Metadata.open(folder / "raft.metadata", IDENTITY)
        self.disk, self.state_disk = HandDisk(), HandDisk()
        self.sync_watch = SyncWatch()
        self.now_ms = 0
        self.mail: list[object] = []
        self.later: list[Callable[[], None]] = []
        self.synced: list[tuple[int, int]] = []
        self.room_checks = 0
        self.flushed = 0
        state = HardState(0, None)
        self.core = Core(
            Me(1, 1, 1),
            state,
            LogView(),
            [(0, config_of([1]))],
            committed=0,
            settings=Settings(),
            chance=lambda: 0.0,
            now_ms=0,
        )
        services = LogServices(
            log=self.log,
            metadata=self.metadata,
            disk=self.disk,
            stamp_ms=lambda: self.now_ms,
            behind_ms=lambda: 0,
            call_later=lambda _delay_s, call: self.later.append(call),
            check_room=self._check_room,
            state_disk=self.state_disk,
            monotonic_ms=lambda: self.now_ms,
            sync_watch=self.sync_watch,
        )
        self.writer = LogWriter(
            self.core,
            services,
            may_block=True,
            tell=self.mail.append,
            before_sync=self._before_sync,
            on_synced=lambda last_index, era: self.synced.append((last_index, era)),
        )

    def _check_room(self) -> None:
        self.room_checks += 1

    def _before_sync(self) -> None:
        self.flushed += 1

    def lead(self) -> None:
        """Become the leader, with the first entry in the log of both."""
        self.core.tick(10_000)
        ready = self.core.ready()
        assert ready is not None
        assert ready.save is not None
        self.core.saved(ready.save)
        self.put(1, term=self.core.term)

    def put(self, first: int, last: int | None = None, *, term: int = 1) -> None:
        self.writer.put(first, term, [payload(index) for index in range(first, (last or first) + 1)])

    def handle(self) -> list[object]:
        """Handle the mail as RaftLog does, and that which comes of it; return all of it."""
        handled = []
        while self.mail:
            message = self.mail.pop(0)
            handled.append(message)
            match message:
                case Written():
                    self.writer.on_written(message)
                case Freed():
                    self.writer.on_freed(message)
                case _ if message is FLUSH:
                    self.writer.is_flush_queued = False
                    self.writer.write()
                    continue
                case _:
                    continue
            self.writer.go_on()
        return handled

    def let_time_pass(self) -> None:
        """Do what was to be done later."""
        later, self.later = self.later, []
        for call in later:
            call()
        for message in [message for message in self.mail if message is CHECK]:
            self.mail.remove(message)
            self.writer.on_check()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    made.log.close()


# --- where to sync ---------------------------------------------------------------------------------------------------


def tried(place: SyncPlace, seconds: float, times: int = 1) -> bool:
    """Let syncs take so long; return whether the next one is done on the loop."""
    for _ in range(times):
        place.took(seconds, 0.0, on_loop=False)
    return place.loop_from_s <= 0.0


def test_syncs_are_done_on_the_loop_while_nearly_all_are_fast() -> None:
    place = SyncPlace()

    assert not tried(place, FAST_SYNC_S / 2, SYNCS_REMEMBERED - SLOW_SYNCS_MAX - 1)
    assert tried(place, FAST_SYNC_S / 2)
    assert tried(place, FAST_SYNC_S / 2, SLOW_SYNCS_MAX)
    assert tried(place, FAST_SYNC_S, SLOW_SYNCS_MAX)
    assert not tried(place, FAST_SYNC_S)


def test_sync_that_stalled_the_loop_is_not_risked_again_for_a_while() -> None:
    place = SyncPlace()
    tried(place, FAST_SYNC_S / 2, SYNCS_REMEMBERED)

    place.took(STALL_S, 1.0, on_loop=True)

    assert place.loop_from_s == 1.0 + STALL_PAUSE_S


def test_first_sync_is_done_in_the_thread() -> None:
    assert SyncPlace().loop_from_s == math.inf


def test_sync_on_the_loop_comes_after_what_needs_no_sync_and_is_reported_at_once(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: True)
    files.disk.held = False

    files.put(1, 3)
    files.writer.write()

    assert (files.synced, files.flushed, files.mail) == ([(3, 0)], 1, [])
    assert indexes(files.log) == [1, 2, 3]


def test_sync_on_the_loop_is_watched_while_it_is_under_way(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, write = [], files.log.write

    def noting(batch: Batch) -> None:
        seen.append(files.sync_watch.since_s)
        write(batch)

    sync_on_loop(monkeypatch, lambda: True)
    monkeypatch.setattr(files.log, "write", noting)
    files.put(1)
    files.writer.write()

    assert [since_s > 0 for since_s in seen] == [True]
    assert files.sync_watch.since_s == 0


@pytest.mark.parametrize("busy", ["disk", "state_disk"])
def test_sync_is_not_done_on_the_loop_while_a_thread_uses_the_disk(
    files: Files, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    sync_on_loop(monkeypatch, lambda: True)
    getattr(files, busy).held = True

    files.put(1)
    files.writer.write()

    assert files.writer.is_writing
    assert (files.synced, files.flushed) == ([], 0)


def test_syncs_beside_a_busy_state_store_say_nothing_of_the_disk(files: Files) -> None:
    files.state_disk.held = True
    for index in range(1, SYNCS_REMEMBERED + 1):
        files.writer.on_written(Written(index, 0, FAST_SYNC_S / 2, None))
    files.state_disk.held = False

    files.put(1)
    files.writer.write()

    assert files.writer.is_writing, "in the thread"


def test_write_of_an_empty_buffer_does_nothing(files: Files) -> None:
    files.writer.write()

    assert not files.writer.is_writing
    assert (files.mail, files.synced, files.writer.syncs) == ([], [], 0)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_flush_is_queued_once(files: Files) -> None:
    files.put(1)
    files.writer.flush_soon()
    files.writer.flush_soon()

    assert files.mail == [FLUSH]


def test_entries_that_are_put_during_a_write_are_one_write_behind_it(files: Files) -> None:
    files.disk.held = True
    files.put(1)
    files.writer.write()
    for index in (2, 3):
        files.put(index)
        files.writer.flush_soon()
    assert files.mail == [], "who is done with the first one goes on"

    files.disk.held = False
    files.disk.complete()
    files.handle()

    assert [last for last, _ in files.synced] == [1, 3]
    assert (files.writer.syncs, files.writer.group_entries.count) == (2, 2)
    assert files.writer.group_entries.total == 3


def test_failed_write_is_raised_as_a_failed_sync_and_not_reported_as_synced(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(batch: Batch) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr(files.log, "write", fail)
    files.put(1)
    files.writer.write()

    with pytest.raises(SyncFailed, match="Input/output error"):
        files.handle()
    assert files.synced == []


def test_free_space_is_checked_now_and_then(files: Files) -> None:
    for index in range(1, 10):
        files.writer.put(index, 1, [bytes(100_000)])
        files.writer.write()
        files.handle()

    assert files.room_checks == 3


# --- behind a job ----------------------------------------------------------------------------------------------------


def test_truncation_waits_for_the_writes_before_it_and_later_entries_wait_for_it(files: Files) -> None:
    files.disk.held = True
    files.put(1, 3)
    files.writer.write()
    files.put(4)
    files.writer.truncate_from(2)
    files.core.era += 1
    files.put(2, 3, term=2)
    assert files.log.last_index == 4, "nothing is appended before the truncation"

    steps = []
    while files.disk.waiting or files.mail:
        files.disk.complete(1)
        files.handle()
        steps.append((files.log.written_index, files.log.term_at(files.log.written_index)))

    assert steps == [(3, 1), (4, 1), (1, 1), (3, 2)]
    assert files.synced == [(3, 0), (4, 0), (3, 1)]


def test_payloads_of_truncated_entries_are_forgotten(files: Files) -> None:
    files.writer.keeps_payloads = True
    files.put(1, 3)

    files.writer.truncate_from(2)

    assert files.writer.payloads.get(1, 1) == [payload(1)]
    assert files.writer.payloads.get(2, 2) is None


def test_job_is_reported_done_before_what_waits_behind_it_begins(files: Files) -> None:
    done: list[int] = []
    files.disk.held = True
    files.writer.do_behind(lambda: None, lambda: done.append(files.log.last_index))
    files.put(1)

    files.disk.held = False
    files.disk.complete()
    files.handle()

    assert done == [0]
    assert [last for last, _ in files.synced] == [1]


# --- between two batches ---------------------------------------------------------------------------------------------


def full(folder: Path) -> Files:
    """Return the files of a leader whose segment is full: one entry is written, and not known to be committed."""
    files = Files(folder, segment_bytes_max=1)
    files.lead()
    files.writer.write()
    files.handle()
    assert files.log.roll_due
    return files


def test_full_segment_waits_for_its_commit_and_is_sealed_then(tmp_path: Path) -> None:
    files = full(tmp_path)

    files.writer.on_roll(Roll(1))
    files.writer.go_on()
    waits = files.writer.waits_to_roll
    files.core.stable(1, 0)
    files.writer.go_on()
    files.handle()

    assert waits
    assert not files.writer.waits_to_roll
    assert files.log.sealed_bytes > 0
    assert files.metadata.state.committed == 1


def test_segment_that_is_not_full_is_not_sealed(files: Files) -> None:
    files.lead()
    files.writer.write()
    files.handle()
    files.core.stable(1, 0)

    files.writer.on_roll(Roll(1))
    files.writer.go_on()

    assert files.writer.roll is None
    assert files.log.sealed_bytes == 0


def test_segments_that_an_image_covers_are_removed_once_and_the_core_is_told(tmp_path: Path) -> None:
    files = full(tmp_path)
    files.core.stable(1, 0)
    files.writer.on_roll(Roll(1))
    files.writer.go_on()
    files.handle()

    files.writer.on_cut(Cut(1))
    files.writer.go_on()
    files.handle()
    files.writer.go_on()

    assert files.log.sealed_bytes == 0
    assert files.core.log.previous_index == 1
    assert not files.writer.is_writing


def test_segments_that_may_not_be_removed_yet_are_tried_again_with_the_next_roll(tmp_path: Path) -> None:
    files = full(tmp_path)
    files.core.stable(1, 0)
    files.writer.on_roll(Roll(1))
    files.writer.go_on()
    files.handle()
    files.core.commit = 0  # as if a peer still needed all of it
    files.writer.on_cut(Cut(1))
    files.writer.go_on()
    files.handle()
    before = files.log.sealed_bytes
    files.core.commit = 1

    files.writer.go_on()
    untold = files.log.sealed_bytes
    files.writer.on_roll(Roll(1))
    files.writer.go_on()
    files.handle()

    assert before == untold > 0
    assert files.log.sealed_bytes == 0


def test_failure_between_two_batches_is_raised(files: Files) -> None:
    def fail() -> None:
        raise SyncFailed("raft.log: truncate failed")

    files.writer.do_behind(fail)

    with pytest.raises(SyncFailed):
        files.handle()


# --- a disk that does not answer -------------------------------------------------------------------------------------


def test_hang_is_counted_by_checks_and_reported_now_and_then(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.disk.held = True
    files.put(1)
    files.writer.write()

    with caplog.at_level(logging.WARNING):
        for _ in range(1 + 2 * CHECKS_AN_ELECTION):
            files.let_time_pass()

    assert files.writer.hang_ms == 2 * files.core.settings.election_ms
    assert files.writer.hang == "2.0 s"
    assert [record.getMessage() for record in caplog.records] == [
        "the disk does not answer: a write of the log has taken 1.0 s so far"
    ]


def test_hang_ends_with_the_write_and_an_idle_disk_is_not_checked(files: Files) -> None:
    files.disk.held = True
    files.put(1)
    files.writer.write()
    for _ in range(3):
        files.let_time_pass()
    hang_ms = files.writer.hang_ms
    files.disk.held = False
    files.disk.complete()
    files.handle()

    files.let_time_pass()

    assert hang_ms > files.writer.hang_ms == 0
    assert not files.writer.is_check_queued
    assert files.later == []


def test_slow_sync_is_reported(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.put(1)
    batch = files.log.take_buffer()
    assert batch is not None

    files.writer.on_written(Written(1, 0, SLOW_SYNC_S + 0.1, None))

    assert caplog.messages == [
        "a sync of the log took 1.1 s: the disk is slow, and all clients wait for it",
    ]
    assert files.writer.longest_sync_s == SLOW_SYNC_S + 0.1


# --- term and vote ---------------------------------------------------------------------------------------------------


def test_saved_term_and_vote_are_reported_and_on_disk(files: Files) -> None:
    state = HardState(7, 1)

    files.writer.save(state)

    assert files.mail == [Saved(state, None)]
    assert (files.metadata.state.term, files.metadata.state.vote) == (7, 1)


def test_acknowledgements_are_saved_when_they_have_changed_and_not_too_often(files: Files) -> None:
    def kept() -> int:
        return sum(type(message) is Kept for message in files.mail)

    files.core.acknowledged.learn([(5, 10)])
    files.writer.keep_acknowledged()
    assert kept() == 0, "it has just begun"
    files.now_ms += KEEP_ACKNOWLEDGED_MS
    files.writer.keep_acknowledged()
    assert kept() == 1
    files.now_ms += KEEP_ACKNOWLEDGED_MS
    files.writer.keep_acknowledged()

    assert kept() == 1
    assert files.metadata.state.acknowledged == ((5, 10),)
