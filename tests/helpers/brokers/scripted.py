"""A peer on a free port that answers as a script says: what both clients are proved against, without a broker.

commands of a connection  -->  script(number of the connection, command)  -->  replies, or None to hang up
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from wakeq.protocol.wire.worker import codec as wire

Script: TypeAlias = Callable[[int, wire.Command], "wire.Reply | list[wire.Reply] | None"]


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
