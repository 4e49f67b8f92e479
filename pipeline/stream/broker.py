"""Broker: how a process of Spark reaches the broker, and how long it tries.

    options --> Broker --> pickled to planner and tasks --> ask(call): one connection in each process, tried again

Every call that is made here may be repeated, so a broker that is away for a while only makes it take longer. The token
appears in no error and no log.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wakeq.client.bulk import BulkClient
from wakeq.client.connection import Tls
from wakeq.client.route import parse_address
from wakeq.protocol.access import is_this_machine
from wakeq.protocol.errors import NOT_NOW, BadSettings, WakeqError

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0
SWITCHES: dict[str, Tls] = {"": None, "true": True, "false": False}

# Errors of a client advise what helps a program of its own; here it has another name.
NAMES_HERE = {
    "or give its address: WAKEQ_BROKER=HOST:PORT (HTTP and MoniQue: WAKEQ_HTTP, TaskFlux: WAKEQ_TASKFLUX)": (
        "or set option broker"
    ),
    "check --token-file or WAKEQ_TOKEN_FILE": "check option tokenFile or WAKEQ_TOKEN_FILE",
    "(WAKEQ_TOKEN, or token= of a client)": "(option token, or tokenFile)",
    "(tls=, WAKEQ_TLS)": "(option tls)",
}

T = TypeVar("T")

logger = logging.getLogger("wakeq.pipeline")
# Spark reuses its Python workers, so each keeps one connection for each broker. A forked worker makes its own.
_clients: dict[tuple[int, "Broker"], BulkClient] = {}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, by its address, and what it takes to log in there."""

    # HOST:PORT, or several, separated by commas.
    address: str
    # Empty for the token of the environment.
    token: str = field(default="", repr=False)
    # A file on every machine; it is read again for each connection.
    token_file: str = ""
    # true, false, system, or a file of authorities; empty for the environment's setting.
    tls: str = ""
    # How long a call is tried again while the broker is away; 0: as long as its client tries by itself.
    reconnect_s: int = 0

    def connect(self) -> BulkClient:
        """Return a new connection."""
        token = Path(self.token_file) if self.token_file else self.token or None
        return BulkClient(self.address, token=token, tls=SWITCHES.get(self.tls.lower(), self.tls))

    def client(self) -> BulkClient:
        """Return the connection of this process."""
        key = os.getpid(), self
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = self.connect()
        return client

    def ask(self, call: Callable[[BulkClient], T]) -> T:
        """Return the result of a call, which is repeated until the broker answers or `reconnect_s` is over."""
        pause_s, until_s = PAUSE_S_MIN, None
        while True:
            try:
                return call(self.client())
            except WakeqError as error:
                name_options(error)
                if not isinstance(error, NOT_NOW):
                    raise
                if until_s is None:
                    until_s = time.monotonic() + self.reconnect_s
                    if self.reconnect_s:
                        logger.warning("%s; trying again for %d s", error, self.reconnect_s)
                if time.monotonic() + pause_s > until_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def check_is_shared(self, master: str) -> None:
        """Refuse an address that is another machine's own on each machine of a cluster."""
        if not master or master.startswith("local"):
            return
        for address in self.address.split(","):
            if is_this_machine(parse_address(address.strip())[0]):
                raise BadSettings(
                    f"{address.strip()} is another place on each machine, and the master is {master}: set option "
                    "broker to an address that all executors reach"
                )


def name_options(error: WakeqError) -> None:
    """Have an error of the client advise what helps in Spark."""
    text = str(error)
    for name, here in NAMES_HERE.items():
        text = text.replace(name, here)
    error.args = (text,)
