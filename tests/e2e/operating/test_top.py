"""`wakeq top` on a terminal: keys, the size of the terminal, and an end that leaves the terminal as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.helpers.brokers.process import BrokerProcess
from wakeq.client import Client

SECONDS_MAX = 60
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program on a terminal of its own; what it writes is kept."""

    def __init__(self, arguments: list[str], *, columns: int, lines: int) -> None:
        fixed = ("COLUMNS", "LINES", "NO_COLOR")
        environment = {name: value for name, value in os.environ.items() if name not in fixed}
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            # Not the environment of this process, to which readline adds the size of another terminal.
            command = [sys.executable, "-m", "wakeq", *arguments]
            # As in a terminal, also where these tests run in the background of a shell, which ignores it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, command, environment | {"TERM": "xterm-256color"})
        self.output = ""
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Press keys; only what is written from now on counts."""
        self.output = ""
        os.write(self.descriptor, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Read until the text matches, without its colours."""
        until_s = time.monotonic() + SECONDS_MAX
        while not re.search(pattern, SEQUENCE.sub("", self.output), re.DOTALL):
            assert time.monotonic() < until_s, f"{pattern} does not come: {self.output[-4000:]!r}"
            if select.select([self.descriptor], [], [], 1)[0]:
                self.output += os.read(self.descriptor, 65_536).decode(errors="replace")

    def wait(self) -> int:
        """Read until the program has ended; return its exit status."""
        try:
            while select.select([self.descriptor], [], [], SECONDS_MAX)[0]:
                self.output += os.read(self.descriptor, 65_536).decode(errors="replace")
            raise AssertionError(f"it does not end: {self.output[-4000:]!r}")
        # So Linux says that the other side is closed.
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.descriptor)


@pytest.fixture
def terminal(shared_broker: BrokerProcess) -> Iterator[Terminal]:
    host, port = shared_broker.http_address
    with Client("{}:{}".format(*shared_broker.worker_address)) as client:
        client.publish_many("emails", ["x"] * 5)
        client.publish_many("orders", ["x"] * 3, delay=1_000)
    made = Terminal(["--http", f"{host}:{port}", "top"], columns=120, lines=30)
    yield made
    made.close()


def test_keys_sort_and_filter_and_q_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.wait_for(r"emails +[0-9]+ .*orders +0 +[0-9]+ .*q: quit")

    terminal.press("d")
    terminal.wait_for(r"delayed▾.*orders .*emails ")
    terminal.press("/mai")
    terminal.wait_for(r"1 queues whose name contains mai.*/mai")
    # While a filter is typed, q belongs to it.
    terminal.press("q")
    terminal.wait_for("contains maiq")
    terminal.press("\x1b")
    terminal.wait_for("orders")
    terminal.resize(50, 30)
    terminal.press("v")
    terminal.wait_for(r"queue +ready +leased")

    terminal.press("q")

    assert terminal.wait() == 0
    # It leaves the screen of its own, and the cursor is there again.
    assert "\x1b[?1049l" in terminal.output
    assert "\x1b[?25h" in terminal.output


def test_control_c_ends_it_silently(terminal: Terminal) -> None:
    terminal.wait_for("q: quit")

    terminal.press("\x03")

    assert terminal.wait() == 0
    assert "Traceback" not in terminal.output
    assert "\x1b[?1049l" in terminal.output
