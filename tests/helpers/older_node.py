"""A node of the release before this one: `python -m tests.helpers.older_node serve ...` takes what `wakeq` takes.

It knows one level less, says so, and cannot read an entry that came with this release: it ends if it meets one.
"""

import sys

from wakeq.protocol import level, record_reader
from wakeq.protocol.commands import Entry
from wakeq.protocol.record_layout import BadRecord

OLDER = level.LEVEL - 1
_decode = record_reader.decode_entry


def decode_entry(payload: bytes) -> tuple[Entry, int]:
    """Read an entry as the release before would."""
    entry, at_ms = _decode(payload)
    if level.level_of(entry) > OLDER:
        raise BadRecord(f"an entry of level {level.level_of(entry)}, of which this release knows nothing")
    return entry, at_ms


if __name__ == "__main__":
    # Before anything else is imported: the rest of the node must not know better.
    record_reader.decode_entry = decode_entry
    level.LEVEL = OLDER  # type: ignore[misc]
    from wakeq.cli import main

    sys.exit(main())
