"""Offsets of streams: which epoch of which source a batch ends with, as JSON in checkpoints and progress reports.

    text --> offset_of --> offset --> SETTLE

It needs no Spark.
"""

import json
from typing import Any

from wakeq.client.bulk import BulkClient

# An offset with this key is one of this data source.
MARK = "wakeq"


def offset_of(text: str | None) -> dict[str, Any] | None:
    """Return an offset from a checkpoint or progress report; None if it belongs to another data source."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and MARK in found else None


def settle_offset(offset: dict[str, Any], client: BulkClient) -> int:
    """Acknowledge everything up to an offset; a repetition does nothing."""
    return client.settle(offset["queue"], offset["source"], offset["epoch"]) if offset["epoch"] else 0
