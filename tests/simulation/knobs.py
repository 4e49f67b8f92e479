"""Knobs: the parameters that a seed draws first: sizes, time spans, and the severity of faults.

    random --> Knobs

Small limits make rare events common: a window of one message, a log that is cut after five entries.
"""

from random import Random

import msgspec

from wakeq.protocol.raft.progress import Window
from wakeq.protocol.raft.settings import Settings

ENTRY_BYTES = 100  # assumed for each payload


class Knobs(msgspec.Struct, frozen=True):
    voters: int
    spares: int  # nodes that may be added
    settings: Settings
    drop: float
    duplicate: float
    delay_us: int
    late: float  # the share of messages that are delayed by election timeouts
    is_ordered: bool  # messages keep their order, as on one connection
    sync_us: int
    report_us: int  # delay of a write's report, at most
    writes_open: int  # submitted to the disk at once
    flush_us: int  # between two flushes of the state
    keep_entries: int  # the log is cut when it has more
    chunks: int  # of an image
    client_us: int
    batch: int
    fault_us: int
    rate: float  # difference of clocks, at most
    stale: float  # the share of messages that are delivered again much later


def draw(random: Random, voters: int | None = None) -> Knobs:
    """Draw the parameters of one world."""
    choose = random.choice
    election_ms = choose((200, 500, 1000))
    is_harsh = random.random() < 0.5
    return Knobs(
        voters=voters or choose((1, 2, 3, 3, 3, 3, 4, 5)),
        spares=choose((0, 1, 2)),
        settings=Settings(
            election_ms,
            election_ms // choose((5, 8)),
            Window(ENTRY_BYTES * choose((1, 2, 8, 64)), ENTRY_BYTES * choose((1, 4, 200)), choose((1, 2, 8, 64))),
        ),
        drop=choose((0.0, 0.02, 0.1, 0.3)) if is_harsh else 0.0,
        duplicate=choose((0.0, 0.05, 0.2)),
        delay_us=election_ms * choose((5, 20, 80)),
        late=choose((0.0, 0.01, 0.05)),
        is_ordered=random.random() < 0.3,
        sync_us=election_ms * choose((1, 10, 100)),
        report_us=election_ms * choose((0, 0, 100, 1500)),
        writes_open=choose((1, 3)),
        flush_us=election_ms * choose((100, 500, 2000)),
        keep_entries=choose((1, 5, 50, 500)),
        chunks=choose((1, 2, 4)),
        client_us=election_ms * choose((20, 60, 200)),
        batch=choose((1, 2, 8)),
        fault_us=election_ms * choose((500, 1500, 4000)),
        rate=choose((0.0, 0.01, 0.05)),
        stale=choose((0.0, 0.01, 0.05)),
    )
