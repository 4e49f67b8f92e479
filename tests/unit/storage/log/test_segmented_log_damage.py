"""SegmentedLog at a start: a torn tail is removed; damaged files are refused and stay unchanged."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.disks.written_log import (
    IDENTITY,
    RECORD,
    change,
    flip,
    indexes,
    offset_of,
    open_log,
    three_batches,
    two_sealed,
    write,
)
from wakeq.protocol.errors import DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log.format import HEADER_BYTES, RECORD_BYTES, Identity, Read, decode_header, encode_header
from wakeq.storage.log import active_segment, segments
from wakeq.storage.log.segmented_log import SegmentedLog

# Torn tails -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, RECORD_BYTES - 4, RECORD_BYTES, RECORD - 1])
def test_torn_record_is_removed_and_reported(tmp_path: Path, kept: int) -> None:
    path = three_batches(tmp_path)
    os.truncate(path, offset_of(30) + kept)
    if kept < 4:
        change(path, offset_of(30), b"\x01")  # the first bytes of a record are zeros, like those written ahead

    log = open_log(tmp_path, committed=29)

    assert log.last_index == 29
    assert log.recovered.torn_bytes == kept
    assert f"{kept} bytes of an unfinished write at offset {offset_of(30)} were cut off" in log.recovered.text
    assert path.stat().st_size == offset_of(30)
    write(log, 2)
    assert indexes(log) == list(range(1, 32))


def test_last_write_may_be_torn_in_any_part(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, offset_of(23), bytes(2 * RECORD))  # later records of the same write are on disk

    log = open_log(tmp_path, committed=20)

    assert log.last_index == 22
    assert log.recovered.torn_bytes == 8 * RECORD


def test_zeros_written_ahead_are_not_records(tmp_path: Path) -> None:
    path = three_batches(tmp_path)

    assert path.stat().st_size > offset_of(31) + 100_000
    log = open_log(tmp_path)

    assert (log.last_index, log.recovered.torn_bytes) == (30, 0)


def test_empty_file_counts_as_never_written(tmp_path: Path) -> None:
    (tmp_path / "raft.log").touch()

    log = open_log(tmp_path)

    assert log.last_index == 0
    write(log, 1)
    assert indexes(log) == [1]


# Damage ---------------------------------------------------------------------------------------------------------------


def refused(directory: Path, *, committed: int = 0, match: str, error: type[StorageError] = DamagedFile) -> str:
    """Expect a refusal that leaves every file as it was; return its message."""
    before = {path: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(error, match=match) as caught:
        open_log(directory, committed=committed)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    return str(caught.value)


@pytest.mark.parametrize("byte", [0, 4, 9, 23, 26, RECORD_BYTES, RECORD - 1])
def test_bad_record_before_a_later_write_is_damage(tmp_path: Path, byte: int) -> None:
    path = three_batches(tmp_path)
    flip(path, offset_of(15) + byte)

    message = refused(tmp_path, match=f"at offset {offset_of(15)}: expected record 15, .*after it had been synced")

    assert f"record 21 at offset {offset_of(21)}" in message
    assert "restore" in message


def test_zeroed_records_before_a_later_write_are_damage(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, offset_of(12), bytes(5 * RECORD))

    refused(tmp_path, match="expected record 12, .*found a record with index 0")


def test_bad_committed_record_in_the_last_write_is_damage(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    flip(path, offset_of(30) + RECORD_BYTES)

    refused(tmp_path, committed=30, match="expected record 30, which is known to be committed")
    assert open_log(tmp_path, committed=29).last_index == 29


def test_log_that_ends_before_the_committed_index_is_damage(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    os.truncate(path, offset_of(25))

    refused(tmp_path, committed=25, match="expected entry 25, which is known to be committed")
    path.unlink()
    refused(tmp_path, committed=1, match="expected entry 1, which is known to be committed")


def test_record_inside_a_payload_is_not_a_record_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = open_log(tmp_path / "other", identity=Identity(b"x" * 16, 1))
    for _ in range(9):
        write(other, 1)
    stranger = (tmp_path / "other" / "raft.log").read_bytes()[HEADER_BYTES : offset_of(10)]
    (tmp_path / "log").mkdir()
    log = open_log(tmp_path / "log")
    write(log, 4)
    log.append_many(5, 1, [stranger, b"last"])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)
    log.close()
    flip(tmp_path / "log" / "raft.log", offset_of(5) + RECORD_BYTES + 3)

    again = open_log(tmp_path / "log", committed=4)

    assert again.last_index == 4


def test_file_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    change(path, 0, bytes.fromhex("1276ad55"))
    refused(tmp_path, match=r"raft\.log: at offset 0: expected file prefix 2f6f0f2f, found 1276ad55")
    change(path, 0, bytes.fromhex("2f0f6f2f"))
    refused(tmp_path, match="found 2f0f6f2f; it is little-endian")
    change(path, 0, bytes.fromhex("2f6f0f2f00000003"))
    refused(tmp_path, match="expected version 2, found 3", error=WrongVersion)
    change(path, 0, bytes.fromhex("2f6f0f2f00000001"))
    refused(tmp_path, match="expected version 2, found 1", error=WrongVersion)


def test_bad_header_is_refused(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    whole = path.read_bytes()
    flip(path, 30)
    refused(tmp_path, match="at offset 60: expected header checksum")
    path.write_bytes(whole[:40])
    refused(tmp_path, match="expected a header of 64 bytes, found a file of 40 bytes")


@pytest.mark.parametrize("other", [Identity(b"x" * 16, 1), Identity(IDENTITY.cluster_id, 2)])
def test_log_of_another_node_is_refused(tmp_path: Path, other: Identity) -> None:
    three_batches(tmp_path)

    with pytest.raises(DamagedFile, match=r"expected cluster .*, found cluster .*belongs to another node"):
        open_log(tmp_path, identity=other)


# Damage of sealed segments --------------------------------------------------------------------------------------------


def test_bad_last_record_before_a_footer_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 10)
    log.roll(10)
    log.close()
    segments.sealed_paths(tmp_path)[0].rename(tmp_path / "raft.log")
    flip(tmp_path / "raft.log", offset_of(10) + RECORD_BYTES)

    refused(tmp_path, match="expected record 10: the segment is sealed behind it")


def test_bad_byte_in_a_sealed_segment_is_found_at_start_and_by_reads(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[0]
    flip(path, offset_of(4) + RECORD_BYTES)

    message = refused(tmp_path, match="expected record 4 of a sealed segment, found a record with a wrong checksum")
    assert f"{path}: at offset {offset_of(4)}" in message
    log = SegmentedLog.open(tmp_path, IDENTITY, committed_at_least=0, verify=False)
    with pytest.raises(DamagedFile, match="expected record 4"):
        indexes(log)


def test_sealed_segment_without_a_whole_footer_is_damage(tmp_path: Path) -> None:
    path = two_sealed(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused(tmp_path, match="expected the trailer of a sealed segment")
    path.write_bytes(whole[: offset_of(11)])
    refused(tmp_path, match="expected the trailer of a sealed segment")
    path.write_bytes(whole)
    flip(path, offset_of(11) + 20)
    refused(tmp_path, match="expected the footer of a sealed segment")


def test_missing_segment_is_damage(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)
    paths[1].unlink()

    refused(tmp_path, match="expected 11, for a segment is missing between, found first index 21")


def test_read_only_log_beside_a_writer_has_no_torn_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_batches(tmp_path)
    now, written = 0, (4, 17, 30)  # how many records each read finds

    def reader(descriptor: int, path: Path) -> Read:
        def read(offset: int, size: int) -> bytes:
            nonlocal now
            data = os.pread(descriptor, size, offset)
            if offset == 0:
                return data
            end = max(0, offset_of(written[min(now, 2)] + 1) - offset)
            now += 1
            return data[:end] + bytes(len(data) - min(end, len(data)))

        return read

    monkeypatch.setattr(active_segment, "reader", reader)
    log = SegmentedLog.open(tmp_path, None, committed_at_least=None, read_only=True)

    assert (log.last_index, log.recovered.torn_bytes) == (30, 0)


def test_damage_in_the_log_of_a_running_node_is_not_a_torn_tail(tmp_path: Path) -> None:
    path = three_batches(tmp_path)
    flip(path, offset_of(15) + 30)

    with pytest.raises(DamagedFile, match=r"expected record 15, for record 21 .* was written after it had been synced"):
        SegmentedLog.open(tmp_path, None, committed_at_least=None, read_only=True)


@pytest.mark.parametrize(("empty", "found"), [(False, "no such file"), (True, "an empty file")])
def test_missing_active_segment_behind_sealed_ones_is_damage(tmp_path: Path, empty: bool, found: str) -> None:
    two_sealed(tmp_path)
    (tmp_path / "raft.log").unlink()
    if empty:
        (tmp_path / "raft.log").touch()
    message = f"expected the segment that goes on behind entry 20, found {found}"

    refused(tmp_path, match=message)
    with pytest.raises(DamagedFile, match=message):
        SegmentedLog.open(tmp_path, None, committed_at_least=0, read_only=True)


def test_segment_under_a_wrong_name_is_damage(tmp_path: Path) -> None:
    paths = two_sealed(tmp_path)
    paths[0].rename(paths[0].with_name("raft.log.0000000000000000002"))

    refused(tmp_path, match="expected the index in the file's name, found first index 1")


@pytest.mark.parametrize("number", [1, 2])
def test_segment_with_another_previous_term_is_damage(tmp_path: Path, number: int) -> None:
    path = [*two_sealed(tmp_path), tmp_path / "raft.log"][number]
    header = decode_header(path.read_bytes()[:HEADER_BYTES], path)
    change(path, 0, encode_header(replace(header, previous_term=header.previous_term + 1)))

    refused(tmp_path, match="expected 1, found previous term 2")
