"""An honest client beside those that abuse a broker, and what a test can see of the broker from outside.

Honest.works --> publishes, fetches and acknowledges, and fails if an answer took too long
"""

import random
import socket
import time
from pathlib import Path

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.line_client import LineClient

MIB = 1024 * 1024
ANSWER_S_MAX = 2.0  # for an honest client while others do their worst, on a machine that others use too


def rss_bytes(broker: BrokerProcess) -> int:
    """How much memory the broker holds."""
    pages = Path(f"/proc/{broker.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def open_files(broker: BrokerProcess) -> int:
    """How many files and sockets the broker has open."""
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


class Honest:
    """A client that does its work; `longest_s` is the longest that one answer took."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = LineClient(broker.worker_address)
        self._queue = f"honest-{random.randrange(10**9)}"
        self.longest_s = 0.0

    def works(self, times: int = 20) -> None:
        for _ in range(times):
            began_s = time.monotonic()
            assert self._client.ask("PUB", self._queue, message="x")["cmd"] == "ok"
            message = self._client.ask("FET", self._queue)
            assert self._client.ask("ACK", self._queue, uid=message["uid"])["cmd"] == "okack"
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        assert self.longest_s < ANSWER_S_MAX, f"an honest client waited for {self.longest_s:.2f} s"


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
