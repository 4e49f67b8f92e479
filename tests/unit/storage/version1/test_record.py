"""The record of version 1: every golden one is decoded and encoded, and impossible bytes are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.errors import BadField
from wakeq.storage.version1.record import RecordVersion1, decode_record_v1, encode_record_v1

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "lmdb_records.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_golden_record_is_decoded_and_encoded(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    record = RecordVersion1(
        fields["qname"], fields["uid"], fields["status"], fields["timeout"], fields["delay"], fields["expires"],
        fields["item"],
    )  # fmt: skip
    key, value = bytes.fromhex(vector["key_hex"]), bytes.fromhex(vector["value_hex"])

    assert decode_record_v1(key, value) == record
    assert encode_record_v1(record) == (key, value)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        (b"nodash", bytes(25), "expected a queue name, a dash and a uid"),
        (b"a-", bytes(25), "expected a queue name, a dash and a uid"),
        (b"a-b", bytes(24), "expected 25 bytes or more, found 24"),
        (b"a-b", bytes(25) + b"\xff", "expected text"),
        (b"\xff-b", bytes(25), "expected text"),
    ],
)
def test_bad_record_is_refused(key: bytes, value: bytes, match: str) -> None:
    with pytest.raises(BadField, match=match):
        decode_record_v1(key, value)


def test_record_beyond_version_1_is_not_encoded() -> None:
    with pytest.raises(BadField):
        encode_record_v1(RecordVersion1("q", "u", 256, 60, 0, 0, ""))
    with pytest.raises(BadField):
        encode_record_v1(RecordVersion1("q", "u-1", 0, 60, 0, 0, ""))
