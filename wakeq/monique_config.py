"""MoniQue's config.json, as far as it concerns the one place that everything connects to (section 5).

    config.json --> read_config --> MoniqueConfig

`build` and whatever else is in it is for components, and ignored.  A file that cannot be read, or is not as the
protocol has it, is a BadSettings that names the file and the place.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from wakeq.protocol.errors import BadSettings

USUAL_PATH = Path("config.json")  # where the original's programs look
CONTROLLER_HOST = "127.0.0.1"

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


def read_config(path: Path) -> MoniqueConfig:
    """Return what the file says, or raise BadSettings."""
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise BadSettings(f"cannot read MoniQue's {path}: {error.strerror}; check the path") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadSettings(f"MoniQue's {path} is not as it should be: {error}; mend that place") from None
    addresses = read.deploy.monique
    return MoniqueConfig(
        addresses.scheduler_in,
        addresses.scheduler_out,
        addresses.websocket,
        addresses.controller.host,
        frozenset(read.params.logic.allow_messages),
        read.params.controller.connections,
    )
