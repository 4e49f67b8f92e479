"""A stand-in for a broker on a free port, for clients that are proved without one: it answers as a script says.

    commands of a connection --> script(number of the connection, command) --> replies, or None to hang up
    quiet_port --> a port that accepts nobody by itself, and knows whether somebody came

It holds no message and no rule; what a broker would do, the test says.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from wakeq.protocol.wire.worker import codec as wire

Script: TypeAlias = Callable[[int, wire.Command], "wire.Reply | list[wire.Reply] | None"]


def pong(_: int, command: wire.Command) -> wire.Reply:
    return wire.Pong(cmd_id=command.cmd_id)


def stored(_: int, command: wire.Command) -> wire.Reply:
    assert isinstance(command, wire.Pub)
    return wire.Ok(uid=f"uid of {command.message}", cmd_id=command.cmd_id)


def delivered(command: wire.Command, uid: str = "u") -> wire.Msg:
    return wire.Msg(qname="q", uid=uid, error_count=0, msg="x", lease="1-1", cmd_id=command.cmd_id)


@contextmanager
def scripted(script: Script, *, greets: bool = True) -> Iterator[str]:
    """Serve on a free port; HELLO is answered for the script, if at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=talk, args=(connection, len(connections)), daemon=True).start()

    def talk(connection: socket.socket, number: int) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as lines:  # clients may go at any time
            for line in lines:
                (command,) = wire.decode(line)
                assert not isinstance(command, wire.Bad)
                if isinstance(command, wire.Hello):
                    connection.sendall(wire.encode([wire.HelloReply(version="7.7")] if greets else []))
                    continue
                answer = script(number, command)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(wire.encode(answer if isinstance(answer, list) else [answer]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in connections:
            connection.close()


class QuietPort:
    """A port that listens."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.number: int = listener.getsockname()[1]

    @property
    def connections(self) -> int:
        """How many connections wait to be accepted; they are ended."""
        count = 0
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return count
            accepted.close()
            count += 1


@contextmanager
def quiet_port() -> Iterator[QuietPort]:
    """Listen on a port of loopback until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield QuietPort(listener)
