"""ZeroMQ sockets on the event loop: PULL to take from components, PUB to tell all of them.

    PULL --> take(transfers of one turn) --> passed_on          publish --> PUB

libzmq carries the bytes in a thread of its own, which runs no Python and is there only while such a port is open; its
file descriptor says once that something has changed, so a socket is always read until nothing is left; but not while
much of what was taken has not been passed on: then libzmq holds back those who send.  Nothing here looks inside a
frame.  A component that is slow misses messages, and holds nobody up.
"""

import asyncio
from collections.abc import Callable, Sequence

import zmq

from wakeq.actors.runtime import Rounds
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX
from wakeq.net.listening import KEEPALIVE_EVERY_S, KEEPALIVE_IDLE_S, KEEPALIVE_TRIES, cannot_listen
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX

TOGETHER_TRANSFERS_MAX, TOGETHER_BYTES_MAX = 256, 4 << 20  # read in one turn of the loop
TAKEN_MAX = 16  # of such turns that have not been passed on; beyond it nothing is read
LAST_TRANSFERS_MAX, LAST_BYTES_MAX = 4_096, 256 << 20  # read when it stops
RECEIVED_MAX = 64  # transfers of one component that libzmq keeps until we read
UNSENT_MAX = 1_000  # transfers for one subscriber of PUB; what is more, it misses
COPIED_BYTES_MAX = 64 * 1024  # a longer frame is not copied when it is sent

Frames = Sequence[bytes]

_OPTIONS = {
    zmq.LINGER: 0,
    zmq.MAXMSGSIZE: MESSAGE_BYTES_MAX,
    zmq.HANDSHAKE_IVL: int(HANDSHAKE_S_MAX * 1000),
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: KEEPALIVE_IDLE_S,
    zmq.TCP_KEEPALIVE_INTVL: KEEPALIVE_EVERY_S,
    zmq.TCP_KEEPALIVE_CNT: KEEPALIVE_TRIES,
}


class ZmqPort:
    """A bound socket."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], kind: int, host: str, port: int, *, kept_max: int
    ) -> None:
        """Bind to a host, `*` for all of this machine's, and a port, 0 for a free one.

        `kept_max` is how many transfers libzmq keeps for one component.
        """
        self._loop = asyncio.get_running_loop()
        where = f"tcp://{host}:{port or '*'}"
        try:
            self._socket = context.socket(kind)
        except zmq.ZMQError as error:
            raise cannot_listen(where, error) from error
        self._socket.set_hwm(kept_max)
        for option, value in _OPTIONS.items():
            self._socket.setsockopt(option, value)
        try:
            self._socket.bind(where)
        except zmq.ZMQError as error:
            self._socket.close()
            raise cannot_listen(where, error) from error
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")

    def close(self, linger_ms: int = 0) -> None:
        """End it; libzmq tries for so long to send what it still has."""
        self._socket.close(linger=linger_ms)


class PullPort(ZmqPort):
    """Where components send."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        host: str,
        port: int,
        take: Callable[[list[Frames]], None],
        rounds: Rounds | None = None,
    ) -> None:
        """What was told by one `take` is over with one `passed_on`."""
        super().__init__(context, zmq.PULL, host, port, kept_max=RECEIVED_MAX)
        self._take = take
        self._rounds = rounds or Rounds()
        self._is_waiting = False  # for its turn
        self._fd = self._socket.fileno()
        self._under_way = 0  # how often something was taken that has not been passed on
        self._is_deaf = False  # to the file descriptor, which would go on saying what we cannot hear now
        self._loop.add_reader(self._fd, self._read)
        self._loop.call_soon(self._read)

    def passed_on(self) -> None:
        """What was taken at once is over."""
        self._go_on(max(0, self._under_way - 1))

    def begin_again(self) -> None:
        """Whoever was told before will not say what was passed on; somebody else is told from now on."""
        self._go_on(0)

    def _go_on(self, under_way: int) -> None:
        self._under_way = under_way
        if self._is_deaf and not self._socket.closed:
            self._is_deaf = False
            self._loop.add_reader(self._fd, self._read)
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Read what is there; come back when it is this port's turn again if that was a lot."""
        if self._socket.closed or self._is_waiting:
            return
        if self._under_way >= TAKEN_MAX:
            self._loop.remove_reader(self._fd)
            self._is_deaf = True
        elif self._read_up_to(TOGETHER_TRANSFERS_MAX, TOGETHER_BYTES_MAX):
            self._is_waiting = True
            self._rounds.wait(self)

    def take_turn(self) -> None:
        """Go on reading, in turn with all doors."""
        self._is_waiting = False
        self._read()

    def _read_up_to(self, count: int, size_bytes: int) -> bool:
        """Read until there are so many, or so large ones; False if there are no more."""
        taken: list[Frames] = []
        try:
            while len(taken) < count and size_bytes > 0:
                taken.append(self._socket.recv_multipart(zmq.NOBLOCK))
                size_bytes -= sum(map(len, taken[-1]))
            is_empty = False
        except zmq.Again:
            is_empty = True  # the file descriptor says when it no longer is
        if taken:
            self._under_way += 1
            self._rounds.left -= len(taken)
            self._take(taken)
        return not is_empty

    def stop_reading(self) -> None:
        """Take what has come, and then no more: whoever sent it believes that it was delivered."""
        if not self._socket.closed:
            self._read_up_to(LAST_TRANSFERS_MAX, LAST_BYTES_MAX)
            self.close()

    def close(self, linger_ms: int = 0) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._fd)
        super().close(linger_ms)


class PubPort(ZmqPort):
    """Where all components listen."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], host: str, port: int) -> None:
        super().__init__(context, zmq.PUB, host, port, kept_max=UNSENT_MAX)

    def publish(self, transfers: Sequence[Frames]) -> None:
        """Tell all who are subscribed."""
        if self._socket.closed:
            return
        for frames in transfers:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=_is_short(frames))


def _is_short(frames: Frames) -> bool:
    return sum(map(len, frames)) <= COPIED_BYTES_MAX
