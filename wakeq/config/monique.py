"""MoniQue's config.json: the parts that concern the broker (section 5).

    config.json --> read_config --> MoniqueConfig --> check_config --> nothing, or BadSettings

Other parts of the file, such as `build`, are for components and ignored.  A file that cannot be read or does not match
the protocol is a BadSettings that names the file and the place in it.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct, field

from wakeq.protocol.errors import BadSettings

# Where the original programs look.
USUAL_PATH = Path("config.json")
CONTROLLER_HOST = "127.0.0.1"
# The queue on which workers put their answers to tasks with a route.
ANSWERS_QUEUE = "monique.answers"
NO_ZEROMQ = "config.json names ports of ZeroMQ, but pyzmq is not installed; pip install 'wakeq[monique]'"
NOT_GUARDED = "ZeroMQ has neither tokens nor TLS, and WebSocket needs both; pass --insecure if the network is protected"
NOT_BOTH = "config.json names one of scheduler-in and scheduler-out; components need both"

Port = Annotated[int, Meta(ge=0, le=65535)]


class SchedulerEnd(Struct, frozen=True):
    """One end of the scheduler: the ports of its communication layer and of its technical layer."""

    host: str
    comport: Port
    techport: Port


class WebSocket(Struct, frozen=True):
    host: str
    port: Port


class _Controller(Struct, frozen=True):
    host: str = CONTROLLER_HOST


class _Addresses(Struct, frozen=True):
    scheduler_in: SchedulerEnd | None = field(name="scheduler-in", default=None)
    scheduler_out: SchedulerEnd | None = field(name="scheduler-out", default=None)
    controller: _Controller = _Controller()
    websocket: WebSocket | None = None


class _Deploy(Struct, frozen=True):
    monique: _Addresses = _Addresses()


class _Logic(Struct, frozen=True):
    allow_messages: list[str] = field(name="allow-messages", default_factory=list)


class _Connections(Struct, frozen=True):
    connections: dict[str, Port] = {}


class _Params(Struct, frozen=True):
    logic: _Logic = field(name="scheduler-logic", default=_Logic())
    controller: _Connections = field(name="mq_controller", default=_Connections())


class _File(Struct, frozen=True):
    deploy: _Deploy = _Deploy()
    params: _Params = _Params()


class MoniqueConfig(Struct, frozen=True):
    """The parts of the file that the broker uses; None stands for a part that is missing."""

    scheduler_in: SchedulerEnd | None = None
    scheduler_out: SchedulerEnd | None = None
    websocket: WebSocket | None = None
    controller_host: str = CONTROLLER_HOST
    # Empty allows all messages.
    allow_messages: frozenset[str] = frozenset()
    # The port of each controller, by spec.
    connections: dict[str, int] = {}

    @property
    def wants_zeromq(self) -> bool:
        """Whether the broker must open a port of ZeroMQ."""
        return bool(self.scheduler_in or self.scheduler_out or self.connections)

    @property
    def bind_host(self) -> str:
        """The host on which controllers listen; components know it as `controller_host`."""
        return self.scheduler_in.host if self.scheduler_in is not None else self.controller_host

    def ports(self) -> Iterator[tuple[str, str, int]]:
        """Yield the purpose, host and number of each port."""
        for name, end in (("in", self.scheduler_in), ("out", self.scheduler_out)):
            if end is not None:
                yield f"scheduler-{name}", end.host, end.comport
                yield f"technical-{name}", end.host, end.techport
        if self.websocket is not None:
            yield "websocket", self.websocket.host, self.websocket.port
        for spec, port in self.connections.items():
            yield f"controller of {spec}", self.bind_host, port


class MayListen(Protocol):
    """Tells whether a port may be opened on a host."""

    def __call__(self, host: str, /, *, is_guarded: bool = True) -> bool: ...


def read_config(path: Path) -> MoniqueConfig:
    """Read the file, or raise BadSettings."""
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise BadSettings(f"cannot read MoniQue's {path}: {error.strerror}; check the path") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadSettings(f"MoniQue's {path} is not valid: {error}; correct it") from None
    addresses = read.deploy.monique
    return MoniqueConfig(
        addresses.scheduler_in,
        addresses.scheduler_out,
        addresses.websocket,
        addresses.controller.host,
        frozenset(read.params.logic.allow_messages),
        read.params.controller.connections,
    )


def check_config(config: MoniqueConfig, may_listen: MayListen) -> None:
    """Raise BadSettings if the broker cannot serve this configuration."""
    if (config.scheduler_in is None) != (config.scheduler_out is None):
        raise BadSettings(NOT_BOTH)
    if config.wants_zeromq and find_spec("zmq") is None:
        raise BadSettings(NO_ZEROMQ)
    for name, host, _ in config.ports():
        if not may_listen(host, is_guarded=name == "websocket"):
            raise BadSettings(
                f"MoniQue's config.json opens {name} at {host}, which other machines reach; {NOT_GUARDED}"
            )
