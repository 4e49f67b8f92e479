"""MoniqueZmq: all ports of ZeroMQ to which MoniQue's components connect, as config.json names them.

    config.json --> PULL and PUB for both layers, PUSH for each controller --> tell(transfers, components)

The ports are open while this node leads, for a component cannot be redirected.  It makes no process.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import zmq

from wakeq.actors.monique.components import Layers, Taken
from wakeq.actors.monique.mail import Changed
from wakeq.actors.sessions.door import Admission
from wakeq.net.push_port import PushPort
from wakeq.net.zmq_ports import Frames, PubPort, PullPort

# For components to read the last published messages.
LINGER_MS = 1_000

Tell = Callable[[Any], None]


class Layered(Protocol):
    """The address of one end of the scheduler."""

    @property
    def host(self) -> str: ...

    @property
    def comport(self) -> int: ...

    @property
    def techport(self) -> int: ...


class MoniqueZmq:
    """All ports of ZeroMQ of one node."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        # The ports to which all components listen.
        self.layers: Layers | None = None
        self._context = zmq.Context(io_threads=1)
        self._ports: list[PullPort | PubPort | PushPort] = []

    def open_layers(self, scheduler_in: Layered, scheduler_out: Layered, tell: Tell) -> dict[str, str]:
        """Bind the ports of the scheduler; return their addresses by name."""

        def taken(transfers: list[Frames]) -> None:
            tell(Taken(transfers, communication_in.passed_on))

        def taken_technical(transfers: list[Frames]) -> None:
            tell(Taken(transfers, technical_in.passed_on, is_technical=True))

        host = scheduler_out.host
        communication_out = self._opened(PubPort(self._context, host, scheduler_out.comport))
        technical_out = self._opened(PubPort(self._context, host, scheduler_out.techport))
        self.layers = Layers(communication_out, technical_out)
        host, rounds = scheduler_in.host, self._admission.rounds
        communication_in = self._opened(PullPort(self._context, host, scheduler_in.comport, taken, rounds))
        technical_in = self._opened(PullPort(self._context, host, scheduler_in.techport, taken_technical, rounds))
        return {
            "scheduler-in": communication_in.address,
            "scheduler-out": communication_out.address,
            "technical-in": technical_in.address,
            "technical-out": technical_out.address,
        }

    def open_controller(self, host: str, port: int, tell: Tell, *, on_lease: bool) -> PushPort:
        """Bind the port of a controller."""

        def changed(components: Sequence[int]) -> None:
            tell(Changed(components))

        made: PushPort = self._opened(PushPort(host, port, changed, self._admission, on_lease=on_lease))
        return made

    def _opened(self, port: Any) -> Any:
        self._ports.append(port)
        return port

    def begin_again(self) -> None:
        """Forget earlier transfers: their receiver has ended, and another one begins."""
        for port in self._pulls():
            port.begin_again()

    def stop_reading(self) -> None:
        """Take the transfers that have arrived, and read nothing more."""
        for port in self._pulls():
            port.stop_reading()

    def _pulls(self) -> list[PullPort]:
        return [port for port in self._ports if isinstance(port, PullPort)]

    def close(self) -> None:
        """Close all ports at once; unsent transfers are lost."""
        for port in self._ports:
            port.close()
        self._context.destroy(linger=0)

    def finish(self) -> Callable[[], None]:
        """Close all ports; return a call that waits until the last messages are sent, and must not run on the loop."""
        for port in self._ports:
            if isinstance(port, PubPort):
                port.close(LINGER_MS)
            else:
                port.close()
        return self._context.term
