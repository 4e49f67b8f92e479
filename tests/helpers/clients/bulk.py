"""A BulkClient for the real broker in memory, on a manual clock."""

from wakeq.client.bulk import BulkClient
from wakeq.client.connection import Connection
from wakeq.testing.connection import MemoryConnection
from wakeq.testing.machine import MemoryMachine
from wakeq.testing.manual_time import ManualTime


class MemoryClient(BulkClient):
    """A client of one machine; clients of the same machine see the same queues."""

    def __init__(self, machine: MemoryMachine | None = None) -> None:
        if machine is None:
            machine = MemoryMachine(ManualTime())
            machine.start()
        self.machine = machine
        super().__init__("memory")

    def _dial(self, address: str) -> Connection:
        return MemoryConnection(self.machine)
