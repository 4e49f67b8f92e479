"""Metadata under power cuts: at every moment one slot is whole, whatever the disk did with unsynced writes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.helpers.disks.unsure_file import Sync, Write, contents_after_a_cut, watched
from wakeq.protocol.clock import Mark
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.log.format import Identity
from wakeq.storage.files import sync_data, write_all
from wakeq.storage.log.metadata import SLOT_OFFSETS, Metadata, State

IDENTITY = Identity(bytes(range(16)), 3)
SAVES: tuple[Callable[[Metadata], object], ...] = (
    lambda metadata: metadata.save(term=7, vote=0),
    lambda metadata: metadata.save(committed=41),
    lambda metadata: metadata.begin_incarnation(70),
    lambda metadata: metadata.keep_clock(Mark(1_700_000_000_000, 1_700_000_010_000, 86_400_000, bytes(range(16)))),
    lambda metadata: metadata.save(term=8),
)


def state_of(path: Path, content: bytes) -> State:
    """Return the state that a start would read from these bytes."""
    path.write_bytes(content)
    try:
        metadata = Metadata.open(path, IDENTITY, read_only=True)
    except WakeqError as error:
        raise AssertionError(f"the file cannot be read: {error}") from error
    metadata.close()
    return metadata.state


def cut_everywhere(path: Path, patch: pytest.MonkeyPatch) -> int:
    """Save with a power cut at every moment, and with another one while that is repaired; return the number of cuts."""
    metadata = Metadata.open(path, IDENTITY)
    before = path.read_bytes()
    states, ends = [metadata.state], [0]  # after each save: the state, and the number of steps so far
    with watched(patch) as steps:
        for save in SAVES:
            save(metadata)
            states.append(metadata.state)
            ends.append(len(steps))
    metadata.close()
    cuts, seen = 0, set[bytes]()
    for done, content in contents_after_a_cut(before, steps):
        confirmed = max(place for place, end in enumerate(ends) if end <= done)
        possible = states[confirmed : confirmed + 2]
        assert state_of(path, content) in possible, f"after {done} steps"
        cuts += 1
        if content not in seen:
            seen.add(content)
            cuts += cut_while_repairing(path, content, possible, patch)
    return cuts


def cut_while_repairing(path: Path, content: bytes, possible: list[State], patch: pytest.MonkeyPatch) -> int:
    """Do the same while the file is opened; once `open` has returned, its state is the only possible one."""
    path.write_bytes(content)
    with watched(patch) as steps:
        opened = Metadata.open(path, IDENTITY)
    opened.close()
    contents = list(contents_after_a_cut(content, steps)) if steps else []
    for done, after in contents:
        found = state_of(path, after)
        assert found in (possible if done < len(steps) else [opened.state]), f"after {done} steps of the repair"
    return len(contents)


def test_power_cut_at_any_moment_loses_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = cut_everywhere(tmp_path / "raft.metadata", monkeypatch)

    assert cuts > 500


def put_without_syncs(self: Metadata, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
    for offset in offsets:
        write_all(self._descriptor, slot, offset, self.path)


def put_with_one_sync_behind(self: Metadata, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
    put_without_syncs(self, slot, offsets)
    sync_data(self._descriptor, self.path)


def put_with_one_sync_between(self: Metadata, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
    write_all(self._descriptor, slot, offsets[0], self.path)
    sync_data(self._descriptor, self.path)
    write_all(self._descriptor, slot, offsets[1], self.path)


def put_with_both_syncs_behind(self: Metadata, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
    put_with_one_sync_behind(self, slot, offsets)
    sync_data(self._descriptor, self.path)


def put_into_one_slot(self: Metadata, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
    write_all(self._descriptor, slot, offsets[0], self.path)
    sync_data(self._descriptor, self.path)


@pytest.mark.parametrize(
    "fault",
    [
        put_without_syncs,
        put_with_one_sync_behind,
        put_with_one_sync_between,
        put_with_both_syncs_behind,
        put_into_one_slot,
    ],
)
def test_power_cut_test_finds_missing_and_misplaced_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None]
) -> None:
    """The test above can fail: each of these faults makes it fail."""
    monkeypatch.setattr(Metadata, "_put", fault)

    with pytest.raises(AssertionError):
        cut_everywhere(tmp_path / "raft.metadata", monkeypatch)


def test_unsynced_writes_may_survive_in_any_combination() -> None:
    steps = [Write(0, b"aaaa"), Sync(), Write(0, b"bbbb"), Write(4, b"cccc")]

    contents = {(done, content) for done, content in contents_after_a_cut(b"........", steps)}

    assert {content for done, content in contents if done == 2} == {b"aaaa...."}
    assert {(4, b"aaaacccc"), (4, b"bbbb...."), (4, b"bbbbcccc"), (4, b"aaaa...."), (4, b"baaac...")} <= contents
