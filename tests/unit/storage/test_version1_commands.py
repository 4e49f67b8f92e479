"""The logs of 2023, byte for byte: the result of each import, or the reason of its refusal."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.errors import DamagedFile
from wakeq.storage.version1 import (
    ImportedMessage,
    ImportedQueue,
    LogEntry,
    RemovedFirst,
    decode_command,
    decode_log,
    read_import,
)

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "log_2023.json").read_text(encoding="utf-8")
)["vectors"]
GOOD = [vector for vector in VECTORS if vector["expect"] == "import"]
BAD = [vector for vector in VECTORS if vector["expect"] != "import"]


def laid_out(directory: Path, vector: dict[str, Any]) -> Path:
    consensus = directory / "consensus"
    consensus.mkdir()
    for name in ("log", "snapshot"):
        if f"{name}_hex" in vector:
            (consensus / f"raft.{name}").write_bytes(bytes.fromhex(vector[f"{name}_hex"]))
    return directory


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: vector["name"])
def test_log_of_2023_is_imported_in_the_order_of_its_commands(vector: dict[str, Any], tmp_path: Path) -> None:
    found = read_import(laid_out(tmp_path, vector))

    queues = [item.name for item in found.items if isinstance(item, ImportedQueue)]
    messages = [[item.queue, item.key, item.payload.hex()] for item in found.items if isinstance(item, ImportedMessage)]
    notes = [note.removeprefix(f"{tmp_path / 'consensus'}/") for note in found.notes]
    assert (queues, messages, notes) == (vector["queues"], vector["messages"], vector["notes"])


@pytest.mark.parametrize("vector", BAD, ids=lambda vector: vector["name"])
def test_log_that_fits_neither_encoding_is_refused_unchanged(vector: dict[str, Any], tmp_path: Path) -> None:
    directory = laid_out(tmp_path, vector)

    with pytest.raises(DamagedFile, match=re.escape(vector["expect"].removeprefix("refuse: "))):
        read_import(directory)

    assert (directory / "consensus" / "raft.log").read_bytes().hex() == vector["log_hex"]


def test_truncated_command_with_a_string_is_refused() -> None:
    data = b"D" + bytes.fromhex("00000003") + b"abc"

    assert decode_command(data, names_are_strings=True) == RemovedFirst("abc")
    for size in range(len(data)):
        with pytest.raises(DamagedFile):
            decode_command(data[:size], names_are_strings=True)


def test_refusal_of_a_log_names_the_first_bad_command() -> None:
    entries = [LogEntry(1, b"D" + bytes.fromhex("0000000171"), 16), LogEntry(1, b"?", 29)]

    with pytest.raises(DamagedFile, match="at offset 29: expected Enqueue, Dequeue, Count, CreateQueue or DeleteQueue"):
        decode_log(entries, path="raft.log")
