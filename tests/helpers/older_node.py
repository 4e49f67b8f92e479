"""A node of the release before this one: `python -m tests.helpers.older_node serve ...` takes what `wakeq` takes.

It knows one level less, says so, and cannot read an entry that came with this release: it ends if it meets one.  Nor
does it know the commands that would become such an entry.
"""

import sys
from typing import cast

from wakeq.protocol.errors import BadField
from wakeq.protocol.log import level
from wakeq.protocol.log import reader as record_reader
from wakeq.protocol.log.entries import Entry
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.wire.worker import checks as worker_checks
from wakeq.protocol.wire.worker.commands import Update

OLDER = level.LEVEL - 1
_decode = record_reader.decode_entry
_check_update = worker_checks.CHECKS[Update]


def decode_entry(payload: bytes) -> tuple[Entry, int]:
    """Read an entry as the release before would."""
    entry, at_ms = _decode(payload)
    if level.level_of(entry) > OLDER:
        raise BadRecord(f"an entry of level {level.level_of(entry)}, of which this release knows nothing")
    return entry, at_ms


def check_update(command: Update) -> Update:
    """Refuse the policy that came with this release, as the release before would."""
    if command.wake == "sleeper":
        raise BadField('wake must be "all" or "ready"')
    return cast(Update, _check_update(command))


if __name__ == "__main__":
    # Before anything else is imported: the rest of the node must not know better.
    record_reader.decode_entry = decode_entry
    worker_checks.CHECKS[Update] = check_update
    level.LEVEL = OLDER  # type: ignore[misc]
    from wakeq.cli import main

    sys.exit(main())
