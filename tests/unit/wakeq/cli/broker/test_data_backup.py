"""`wakeq import` on a node: which lines count as the same message."""

import io
import json
from pathlib import Path
from typing import Any

from tests.helpers.brokers.node_here import client_of, node_here, run
from wakeq.cli.broker.data import _lines_in, _publish_all
from wakeq.cli.progress import BYTES, Progress

# The first message of the first queue of any broker.
UID = "0000003_00000001"


def line(**fields: Any) -> bytes:
    made = {"kind": "message", "queue": "jobs", "uid": UID, "body": "x", "published_ms": 1_700_000_000_000} | fields
    return json.dumps(made).encode() + b"\n"


def imported(tmp_path: Path, *files: bytes) -> list[bytes]:
    """Return the bodies on the node after an import of each of these files."""

    async def story() -> list[bytes]:
        async with node_here(tmp_path / "data") as here:
            for file in files:
                await _publish_all(
                    here.worker, _lines_in(io.BytesIO(file), Progress("publishing", BYTES, is_wanted=False)), "all"
                )
            async with client_of(here) as client:
                return sorted([message.body for message in await client.fetch_many("all", 10)])

    return run(story())


def test_messages_of_two_brokers_with_the_same_uid_stay_two(tmp_path: Path) -> None:
    later = line(body="a", published_ms=1_700_000_000_001)

    assert imported(tmp_path, line(body="a"), later, line(body="b")) == [b"a", b"a", b"b"]


def test_message_imported_again_stays_one(tmp_path: Path) -> None:
    """A later export of the same message has a higher count of deliveries."""
    assert imported(tmp_path, line(deliveries=1), line(deliveries=2, error="it failed")) == [b"x"]
