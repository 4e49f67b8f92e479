"""MoniQue's config.json, as far as it concerns the one place that everything connects to (section 5).

    config.json --> read_config --> MoniqueConfig --> check_config --> nothing, or BadSettings

`build` and whatever else is in it is for components, and ignored.  A file that cannot be read, or is not as the
protocol has it, is a BadSettings that names the file and the place.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct, field

from wakeq.protocol.errors import BadSettings

USUAL_PATH = Path("config.json")  # where the original's programs look
CONTROLLER_HOST = "127.0.0.1"
ANSWERS_QUEUE = "monique.answers"  # on which workers put their answers to tasks with a route
NO_ZEROMQ = "config.json names ports of ZeroMQ, and pyzmq is not installed; pip install 'wakeq[monique]'"
NOT_GUARDED = "ZeroMQ knows neither tokens nor TLS, and WebSocket needs both; say --insecure if the network is guarded"
NOT_BOTH = "config.json names one of scheduler-in and scheduler-out; components need both"

Port = Annotated[int, Meta(ge=0, le=65535)]


class Ports(Struct, frozen=True):
    """One end of the scheduler: the communication layer and the technical layer."""

    host: str
    comport: Port
    techport: Port


class WebSocket(Struct, frozen=True):
    host: str
    port: Port


class _Controller(Struct, frozen=True):
    host: str = CONTROLLER_HOST


class _Addresses(Struct, frozen=True):
    scheduler_in: Ports | None = field(name="scheduler-in", default=None)
    scheduler_out: Ports | None = field(name="scheduler-out", default=None)
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
    """What the file says to us; None is what it does not say."""

    scheduler_in: Ports | None = None
    scheduler_out: Ports | None = None
    websocket: WebSocket | None = None
    controller_host: str = CONTROLLER_HOST
    allow_messages: frozenset[str] = frozenset()  # empty: all of them
    connections: dict[str, int] = {}  # spec -> port of its controller

    @property
    def wants_zeromq(self) -> bool:
        """Whether a port of ZeroMQ is to be opened."""
        return bool(self.scheduler_in or self.scheduler_out or self.connections)

    @property
    def bind_host(self) -> str:
        """Where controllers listen: components know them as `controller_host`."""
        return self.scheduler_in.host if self.scheduler_in is not None else self.controller_host

    def ports(self) -> Iterator[tuple[str, str, int]]:
        """Return what each port is for, its host and its number."""
        for name, end in (("in", self.scheduler_in), ("out", self.scheduler_out)):
            if end is not None:
                yield f"scheduler-{name}", end.host, end.comport
                yield f"technical-{name}", end.host, end.techport
        if self.websocket is not None:
            yield "websocket", self.websocket.host, self.websocket.port
        for spec, port in self.connections.items():
            yield f"controller of {spec}", self.bind_host, port


class MayListen(Protocol):
    """Says whether a port may be opened on a host."""

    def __call__(self, host: str, /, *, is_guarded: bool = True) -> bool: ...


def read_config(path: Path) -> MoniqueConfig:
    """Return what the file says, or raise BadSettings."""
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
    """Raise BadSettings for what cannot be served."""
    if (config.scheduler_in is None) != (config.scheduler_out is None):
        raise BadSettings(NOT_BOTH)
    if config.wants_zeromq and find_spec("zmq") is None:
        raise BadSettings(NO_ZEROMQ)
    for name, host, _ in config.ports():
        if not may_listen(host, is_guarded=name == "websocket"):
            raise BadSettings(
                f"MoniQue's config.json opens {name} at {host}, which other machines reach; {NOT_GUARDED}"
            )
