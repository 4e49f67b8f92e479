"""MemoryAsyncClient: an AsyncClient for a broker in memory, for code under test that awaits.

    await client.fetch(...)  -->  Request  -->  Caller  -->  MemoryConnection  -->  Machine

Every answer is there as soon as it is awaited. A fetch that waits lets the driven time pass, as with the blocking
client, because it uses the same Caller. It awaits the loop only to let other tasks run.
"""

import asyncio
from typing import TypeVar

from wakeq.client.aio import AsyncClient
from wakeq.client.aio_caller import AsyncCaller
from wakeq.client.caller import Caller
from wakeq.client.identity import of_client
from wakeq.client.requests import Request
from wakeq.client.route import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Timeouts
from wakeq.testing.connection import ADDRESS, RECONNECT_FOR_S, MemoryConnection
from wakeq.testing.machine import Machine

T = TypeVar("T")


class ImmediateCaller(AsyncCaller):
    """An AsyncCaller whose answers take no time: it passes every call on to a Caller."""

    def __init__(self, caller: Caller) -> None:
        self._blocking = caller

    @property
    def address(self) -> str:
        return self._blocking.address

    @property
    def broker_version(self) -> str:
        return self._blocking.broker_version

    async def connect(self) -> None:
        """Do nothing: the Caller has connected already."""

    async def call(self, request: Request[T]) -> T:
        # A real call lets other tasks run, too; a task that only makes calls must not block them.
        await asyncio.sleep(0)
        return self._blocking.call(request)

    async def drain(self) -> None:
        """Do nothing: every call is answered already."""

    async def close(self) -> None:
        self._blocking.close()


class MemoryAsyncClient(AsyncClient):
    """An AsyncClient for a broker in memory."""

    def __init__(self, machine: Machine) -> None:
        self._introduce = of_client
        timeouts = Timeouts(CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, RECONNECT_FOR_S)
        self._caller = ImmediateCaller(
            Caller(ADDRESS, timeouts, lambda address: MemoryConnection(machine), waits=False)
        )
