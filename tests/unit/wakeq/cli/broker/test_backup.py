"""`wakeq import` on a node: which lines are one message, and which are two."""

import io
import json
from pathlib import Path
from typing import Any

from tests.helpers.node_here import client_of, node_here, run
from wakeq.cli.broker.backup import _lines_in, _publish_all

UID = "0000003_00000001"  # the first message of the first queue of any broker


def line(**fields: Any) -> bytes:
    made = {"kind": "message", "queue": "jobs", "uid": UID, "body": "x", "published_ms": 1_700_000_000_000} | fields
    return json.dumps(made).encode() + b"\n"


def imported(tmp_path: Path, *files: bytes) -> list[bytes]:
    """Return the bodies that are there behind an import of each of these files."""

    async def story() -> list[bytes]:
        async with node_here(tmp_path / "data") as here:
            for file in files:
                await _publish_all(here.worker, _lines_in(io.BytesIO(file)), "all")
            async with client_of(here) as client:
                return sorted([message.body for message in await client.fetch_many("all", 10)])

    return run(story())


def test_messages_of_two_brokers_are_two_even_if_they_have_one_uid(tmp_path: Path) -> None:
    later = line(body="a", published_ms=1_700_000_000_001)

    assert imported(tmp_path, line(body="a"), later, line(body="b")) == [b"a", b"a", b"b"]


def test_a_message_that_is_imported_again_is_one_whatever_became_of_it_meanwhile(tmp_path: Path) -> None:
    """For an export that is made again tells of more deliveries."""
    assert imported(tmp_path, line(deliveries=1), line(deliveries=2, error="it failed")) == [b"x"]
