"""MemoryConnection: the end of a client, and several threads."""

import threading

import pytest

from wakeq.protocol.errors import Disconnected
from wakeq.testing import broker
from wakeq.testing.connection import MemoryConnection


def test_broker_that_another_thread_crashes_is_never_told_anything_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as made:
        machine = made._machine
        connection = MemoryConnection(machine)
        check = connection._check
        crasher = threading.Thread(target=machine.crash)

        def check_while_another_thread_crashes() -> None:
            check()
            crasher.start()
            crasher.join(0.2)

        monkeypatch.setattr(connection, "_check", check_while_another_thread_crashes)
        connection.send(b"", timeout_s=1)
        crasher.join()

        assert isinstance(connection.fault(), Disconnected)
