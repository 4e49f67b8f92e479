"""MoniqueDoors: everything that MoniQue's clients and components connect to, and the processes behind it.

    settings, config.json --> exchange --> /monique of the HTTP port, and the ports that config.json names

The exchange is built again if it fails; who was connected to it has to come again, for its subscriptions are gone.
It knows no byte of the protocol.
"""

from collections.abc import Callable
from typing import NamedTuple

from wakeq.actors.door import Admission
from wakeq.actors.messages import Refusal
from wakeq.actors.monique_exchange import MoniqueExchange, Rules
from wakeq.actors.monique_subscriber import MoniqueSubscriber, PushingDoor
from wakeq.actors.runtime import Child, Process, Runtime, Supervisor
from wakeq.monique_config import MoniqueConfig, WebSocket, read_config
from wakeq.settings import Monique
from wakeq.web.monique import MoniquePath
from wakeq.web.server import WebServer


class Services(NamedTuple):
    """What it is given by the node."""

    runtime: Runtime
    refusal: Callable[[], Refusal | None]  # why this node serves nobody now, if it does not
    admission: Admission


class MoniqueDoors:
    """See the head of this file."""

    def __init__(self, settings: Monique, services: Services) -> None:
        self._settings = settings
        self._services = services
        self._config = MoniqueConfig() if settings.config_file is None else read_config(settings.config_file)
        self.supervisor = services.runtime.spawn(Supervisor, [Child("the MoniQue exchange", self._start_exchange)])
        self._own_port: WebServer | None = None
        self.path = MoniquePath(
            self._make_subscriber,
            admission=services.admission,
            wants_id_cookie=settings.id_cookie,
            refusal=services.refusal,
        )

    def _start_exchange(self) -> Process:
        """Make the processes; also after a failure, when the others have ended with the exchange."""
        runtime, config = self._services.runtime, self._config
        self._exchange = runtime.spawn(MoniqueExchange, Rules(config.allow_messages))
        return self._exchange

    def _make_subscriber(self, door: PushingDoor) -> MoniqueSubscriber:
        return self._services.runtime.spawn(MoniqueSubscriber, door, self._exchange)

    async def start(self) -> dict[str, str]:
        """Open the ports that config.json names; return their addresses by name."""
        addresses: dict[str, str] = {}
        if self._config.websocket is not None:
            addresses["monique"] = await self._listen(self._config.websocket)
        return addresses

    async def _listen(self, where: WebSocket) -> str:
        self._own_port = WebServer(greeting=None)
        self._own_port.add("GET", "/", self.path.handle)
        host = "0.0.0.0" if where.host == "*" else where.host
        return f"{host}:{await self._own_port.start(host, where.port)}"

    def stop_reading(self) -> None:
        """Take no more; what was taken is still answered."""
        self.path.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Close everything."""
        await self.path.close(reason)
        if self._own_port is not None:
            await self._own_port.close()
