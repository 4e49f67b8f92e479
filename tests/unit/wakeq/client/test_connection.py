"""Tests of connection.py: errors of the system for a peer that has vanished, and for one that closed the connection."""

import errno
import re
import select
import socket
from pathlib import Path

import pytest

from wakeq.client.connection import TcpConnection, broken, token_source, unreachable
from wakeq.client.session import PeerSilent
from wakeq.protocol.errors import BadSettings, Disconnected


@pytest.mark.parametrize(
    ("number", "is_silence"),
    [(errno.ETIMEDOUT, True), (errno.EHOSTUNREACH, True), (errno.ECONNRESET, False), (errno.EPIPE, False)],
)
def test_connection_given_up_by_the_system_counts_as_silent(number: int, is_silence: bool) -> None:
    error = broken("a:1", OSError(number, "it broke"))

    assert type(error) is (PeerSilent if is_silence else Disconnected)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        # As asyncio words it, for one address and for several of one name.
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
                "[Errno 111] Connect call failed ('127.0.0.1', 1)"
            ),
            "Connection refused",
        ),
        (OSError("Multiple exceptions: [Errno 111] one, [Errno 113] other"), "Multiple exceptions: .*"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "timed out"),
    ],
)
def test_broker_that_cannot_be_reached_is_reported_in_the_words_of_the_system(error: OSError, reason: str) -> None:
    assert re.match(rf"no broker answers at a:1 \({reason}\); start it with", str(unreachable("a:1", error)))


def test_fault_says_what_ended_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def settimeout(self, timeout_s: float) -> None: ...

        def recv(self, *_: int) -> bytes:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        transport = TcpConnection(address, timeout_s=5)
        peer, _ = listener.accept()

        assert transport.fault() is None
        with monkeypatch.context() as patch:
            patch.setattr(transport, "_socket", Gone())
            vanished = transport.fault()
        peer.close()
        select.select([transport._socket], [], [])
        ended = transport.fault()
        transport.close()

    assert type(vanished) is PeerSilent
    assert type(ended) is Disconnected


def test_token_file_is_read_again_for_each_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEQ_TOKEN", "of the environment")
    file = tmp_path / "token"
    token = token_source(file)
    for text in ("one", "two"):
        file.write_text(f" {text}\n")

        assert token() == text

    file.unlink()
    with pytest.raises(BadSettings, match=f"the token file {file} cannot be read: No such file"):
        token()
