"""ZeroMQ sockets on the event loop: PULL receives from components, PUB publishes to all of them.

    PULL --> take(transfers of one turn) --> passed_on          publish --> PUB

libzmq carries the bytes in a thread of its own, which runs no Python and exists only while such a port is open.  Its
file descriptor signals a change once, so a socket is always read until it is empty; but not while many transfers have
not been passed on: then libzmq holds back the senders.  A slow component misses messages and delays no other one.
Nothing here looks inside a frame.
"""

import asyncio
from collections.abc import Callable, Sequence

import zmq

from wakeq.actors.runtime import Rounds
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX
from wakeq.net.listening import KEEPALIVE_EVERY_S, KEEPALIVE_IDLE_S, KEEPALIVE_TRIES, cannot_listen
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX

# Read in one turn of the loop.
TOGETHER_TRANSFERS_MAX, TOGETHER_BYTES_MAX = 256, 4 << 20
# With so many turns not passed on, the port reads nothing.
TAKEN_MAX = 16
# Read at a stop.
LAST_TRANSFERS_MAX, LAST_BYTES_MAX = 4_096, 256 << 20
# Transfers of one component that libzmq keeps until they are read.
RECEIVED_MAX = 64
# Unsent transfers for one subscriber of PUB; it misses further ones.
UNSENT_MAX = 1_000
# A longer frame is not copied when it is sent.
COPIED_BYTES_MAX = 64 * 1024

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
        """Bind to a host, `*` for all addresses of this machine, and a port, 0 for a free one.

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
        """Close the socket; libzmq tries for so long to send the rest."""
        self._socket.close(linger=linger_ms)


class PullPort(ZmqPort):
    """A port to which components send."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        host: str,
        port: int,
        take: Callable[[list[Frames]], None],
        rounds: Rounds | None = None,
    ) -> None:
        """Each call of `take` is followed by one of `passed_on`, when its transfers have been passed on."""
        super().__init__(context, zmq.PULL, host, port, kept_max=RECEIVED_MAX)
        self._take = take
        self._rounds = rounds or Rounds()
        # Whether the port waits for its turn.
        self._is_waiting = False
        self._fd = self._socket.fileno()
        # Calls of `take` whose transfers have not been passed on.
        self._under_way = 0
        # Whether the file descriptor is not watched, because it would signal all the time.
        self._is_deaf = False
        self._loop.add_reader(self._fd, self._read)
        self._loop.call_soon(self._read)

    def passed_on(self) -> None:
        """Note that the transfers of one `take` have been passed on."""
        self._resume(max(0, self._under_way - 1))

    def begin_again(self) -> None:
        """Forget earlier transfers: their receiver has ended, and another one begins."""
        self._resume(0)

    def _resume(self, under_way: int) -> None:
        self._under_way = under_way
        if self._is_deaf and not self._socket.closed:
            self._is_deaf = False
            self._loop.add_reader(self._fd, self._read)
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Read what has arrived, and wait for another turn if that was a lot."""
        if self._socket.closed or self._is_waiting:
            return
        if self._under_way >= TAKEN_MAX:
            self._loop.remove_reader(self._fd)
            self._is_deaf = True
        elif self._read_up_to(TOGETHER_TRANSFERS_MAX, TOGETHER_BYTES_MAX):
            self._is_waiting = True
            self._rounds.wait(self)

    def take_turn(self) -> None:
        """Read more, in turn with all doors."""
        self._is_waiting = False
        self._read()

    def _read_up_to(self, count: int, size_bytes: int) -> bool:
        """Read up to so many transfers or bytes; return whether more may be there."""
        taken: list[Frames] = []
        try:
            while len(taken) < count and size_bytes > 0:
                taken.append(self._socket.recv_multipart(zmq.NOBLOCK))
                size_bytes -= sum(map(len, taken[-1]))
            is_empty = False
        except zmq.Again:
            # The file descriptor signals further ones.
            is_empty = True
        if taken:
            self._under_way += 1
            self._rounds.left -= len(taken)
            self._take(taken)
        return not is_empty

    def stop_reading(self) -> None:
        """Take the transfers that have arrived, because their senders believe them delivered; then close."""
        if not self._socket.closed:
            self._read_up_to(LAST_TRANSFERS_MAX, LAST_BYTES_MAX)
            self.close()

    def close(self, linger_ms: int = 0) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._fd)
        super().close(linger_ms)


class PubPort(ZmqPort):
    """A port to which all components listen."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], host: str, port: int) -> None:
        super().__init__(context, zmq.PUB, host, port, kept_max=UNSENT_MAX)

    def publish(self, transfers: Sequence[Frames]) -> None:
        """Send transfers to all subscribed components."""
        if self._socket.closed:
            return
        for frames in transfers:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=_is_short(frames))


def _is_short(frames: Frames) -> bool:
    return sum(map(len, frames)) <= COPIED_BYTES_MAX
