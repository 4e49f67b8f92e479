"""What the tests of the benchmark put in the place of a broker and of a socket."""

import sys
from pathlib import Path

from bench.peers.wakeq import Wakeq


class FakeWakeq(Wakeq):
    """wakeq's clients, and behind them a broker that promises nothing."""

    recovers = False

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("fake_broker.py"))]


class Wire:
    """A transport that keeps what was sent."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data
