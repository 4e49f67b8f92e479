"""An honest client beside abusive ones, and the figures of a broker that a test can see from outside.

Honest.works --> publishes, fetches and acknowledges, and fails if the broker did too much else before it answered
"""

import os
import random
import socket
from pathlib import Path

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient

MIB = 1024 * 1024
ANSWER_CPU_S_MAX = 2.0  # what a broker may work until an answer while others do their worst


def rss_bytes(broker: BrokerProcess) -> int:
    """How much memory the broker holds."""
    pages = Path(f"/proc/{broker.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def cpu_s(broker: BrokerProcess) -> float:
    """How long the broker has worked, by the CPU: a machine that others use too makes it wait, not work."""
    user, system = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def open_files(broker: BrokerProcess) -> int:
    """How many files and sockets the broker has open."""
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


class Honest:
    """A client that does its work."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._client = LineClient(broker.worker_address)
        self._queue = f"honest-{random.randrange(10**9)}"

    def works(self, times: int = 20) -> None:
        for _ in range(times):
            before_s = cpu_s(self._broker)
            assert self._client.ask("PUB", self._queue, message="x")["cmd"] == "ok"
            message = self._client.ask("FET", self._queue)
            assert self._client.ask("ACK", self._queue, uid=message["uid"])["cmd"] == "okack"
            spent_s = cpu_s(self._broker) - before_s
            assert spent_s < ANSWER_CPU_S_MAX, f"an honest client was served after {spent_s:.2f} s of work"


def dial(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def is_shut_out(connection: socket.socket, timeout_s: float = 20.0) -> bool:
    """Whether the broker ends the connection in that time."""
    connection.settimeout(timeout_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
