"""How much memory a queue takes that holds a message and at which nobody waits: there may be ten thousand of them."""

import gc
import tracemalloc

from wakeq.actors.sessions.door import Received
from wakeq.protocol.wire.worker import codec as wire
from wakeq.testing.connection import MemoryDoor
from wakeq.testing.machine import MemoryMachine
from wakeq.testing.manual_time import ManualTime

QUEUES = 200
BYTES_MAX = 3_600  # 3,525 by Python 3.11: 250 for the body that is at hand, 300 remembered of a thousand queues only
# The state store is in memory here.
NOT_COUNTED = "*/storage/*", "*/protocol/log/rows.py", "*/protocol/queue/ledger/chunks.py"


def publish_to_each(machine: MemoryMachine, names: list[str]) -> None:
    lines = b"".join(b'{"cmd":"PUB","qname":"%b","msg":"text"}\n' % name.encode() for name in names)
    with machine.turn():
        machine.connect(MemoryDoor()).tell(Received(wire.decode(lines), len(lines)))
        machine.settle()
    machine.advance(20.0)  # what is written down need not be kept


def test_queue_at_rest_takes_few_kilobytes() -> None:
    machine = MemoryMachine(ManualTime())
    machine.start()
    publish_to_each(machine, [f"warm-{number}" for number in range(QUEUES)])
    counted = [tracemalloc.Filter(False, pattern) for pattern in NOT_COUNTED]
    gc.collect()

    tracemalloc.start()
    before = tracemalloc.take_snapshot().filter_traces(counted)
    publish_to_each(machine, [f"queue-{number}" for number in range(QUEUES)])
    gc.collect()
    after = tracemalloc.take_snapshot().filter_traces(counted)
    tracemalloc.stop()

    grown = sum(difference.size_diff for difference in after.compare_to(before, "filename"))
    assert QUEUES * 1_000 < grown < QUEUES * BYTES_MAX
    machine.crash()
    machine.close()
